import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ProofrunError, errnoOf } from '../core/errors.ts';
import { decodeDocument } from './document.ts';
import { compilePresets, type PresetFile, type Presets } from './presets.ts';

const SENSITIVE = 'sensitive.yaml';
const EXECUTES = 'executes-on-host.yaml';
/** Below policies/: what is in it are profiles. */
const PROFILES = 'profiles';

let loaded: Presets | undefined;

/** The shipped presets: from the JSON that the build wrote next to the program, else from policies/ of the source tree. Read once a process. */
export async function loadPresets(): Promise<Presets> {
  loaded ??= readBuilt() ?? (await compileDirectory(fileURLToPath(new URL('../../policies/', import.meta.url))));
  return loaded;
}

/** The file name that the build gives to the JSON, in the directory of the program. */
export const PRESETS_FILE = 'presets.json';

function readBuilt(): Presets | undefined {
  // A bundle lies in dist/, a chunk of it in a directory below.
  for (const place of [`./${PRESETS_FILE}`, `../${PRESETS_FILE}`]) {
    const text = readIfThere(new URL(place, import.meta.url));
    if (text === undefined) continue;
    const value: unknown = JSON.parse(text);
    if (!isPresets(value)) {
      throw new ProofrunError('ERR_INTERNAL', { message: `${PRESETS_FILE} was not written by this version`, hint: 'install the package again' });
    }
    return value;
  }
  return undefined;
}

function readIfThere(file: URL): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENOTDIR') return undefined;
    throw error;
  }
}

/** Compiles policies/ as the build does. Throws ERR_POLICY_FILE for a file that doesn't match its schema. */
export async function compileDirectory(directory: string): Promise<Presets> {
  const read = (path: string, file: string): Omit<PresetFile, 'kind'> => {
    const bytes = readFileSync(path);
    return { file, text: decodeDocument(bytes, file, 'ERR_POLICY_FILE'), sha256: createHash('sha256').update(bytes).digest('hex') };
  };
  const list = (below: string): readonly string[] =>
    readdirSync(below)
      .filter((name) => name.endsWith('.yaml'))
      .sort();
  const policies = list(directory).filter((name) => name !== SENSITIVE && name !== EXECUTES);
  const profiles = list(join(directory, PROFILES));
  const files = [
    ...policies.map((name) => ({ ...read(join(directory, name), name), kind: 'policy' as const })),
    ...profiles.map((name) => ({ ...read(join(directory, PROFILES, name), name), kind: 'profile' as const })),
  ];
  return await compilePresets(files, read(join(directory, SENSITIVE), SENSITIVE), read(join(directory, EXECUTES), EXECUTES));
}

/** The text of presets.json: what the build writes. */
export async function formatPresets(directory: string): Promise<string> {
  return `${JSON.stringify(await compileDirectory(directory))}\n`;
}

function isPresets(value: unknown): value is Presets {
  return (
    typeof value === 'object' &&
    value !== null &&
    'version' in value &&
    value.version === 1 &&
    'policies' in value &&
    Array.isArray(value.policies) &&
    'profiles' in value &&
    Array.isArray(value.profiles) &&
    'sensitive' in value &&
    'executes' in value
  );
}
