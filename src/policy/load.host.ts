import { createHash } from 'node:crypto';
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ProofrunError, errnoOf } from '../core/errors.ts';
import { decodeDocument } from './document.ts';
import { compilePresets, type PresetFile, type Presets } from './presets.ts';

const SENSITIVE = 'sensitive.yaml';
const EXECUTES = 'executes-on-host.yaml';
/** Below policies/: what is in it are profiles. */
const PROFILES = 'profiles';

let loaded: Promise<Presets> | undefined;

/** The shipped presets: from the JSON that the build wrote next to the program, else from policies/ of the source tree. Read once a process. */
export function loadPresets(): Promise<Presets> {
  loaded ??= readBuilt().then((built) => built ?? compileDirectory(fileURLToPath(new URL('../../policies/', import.meta.url))));
  return loaded;
}

/** The file name that the build gives to the JSON, in the directory of the program. */
export const PRESETS_FILE = 'presets.json';

async function readBuilt(): Promise<Presets | undefined> {
  // A bundle lies in dist/, a chunk of it in a directory below.
  for (const place of [`./${PRESETS_FILE}`, `../${PRESETS_FILE}`]) {
    const text = await readFile(new URL(place, import.meta.url), 'utf8').catch((error: unknown) => {
      if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENOTDIR') return undefined;
      throw error;
    });
    if (text === undefined) continue;
    const value: unknown = JSON.parse(text);
    if (!isPresets(value)) {
      throw new ProofrunError('ERR_INTERNAL', { message: `${PRESETS_FILE} was not written by this version`, hint: 'install the package again' });
    }
    return value;
  }
  return undefined;
}

/** Compiles policies/ as the build does. Throws ERR_POLICY_FILE for a file that doesn't match its schema. */
export async function compileDirectory(directory: string): Promise<Presets> {
  const read = async (path: string, file: string): Promise<Omit<PresetFile, 'kind'>> => {
    const bytes = await readFile(path);
    return { file, text: decodeDocument(bytes, file, 'ERR_POLICY_FILE'), sha256: createHash('sha256').update(bytes).digest('hex') };
  };
  const list = async (below: string): Promise<readonly string[]> => (await readdir(below)).filter((name) => name.endsWith('.yaml')).sort();
  const policies = (await list(directory)).filter((name) => name !== SENSITIVE && name !== EXECUTES);
  const profiles = await list(join(directory, PROFILES));
  const files = await Promise.all([
    ...policies.map(async (name) => ({ ...(await read(join(directory, name), name)), kind: 'policy' as const })),
    ...profiles.map(async (name) => ({ ...(await read(join(directory, PROFILES, name), name)), kind: 'profile' as const })),
  ]);
  return compilePresets(files, await read(join(directory, SENSITIVE), SENSITIVE), await read(join(directory, EXECUTES), EXECUTES));
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
