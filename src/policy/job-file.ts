import { CONTAINMENT_DIMENSIONS, DIMENSIONS, MODES, type Dimension, type Mode } from '../core/dimension.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { DocumentReader, compilePermissions, isMapping, textMapping } from './compile.ts';
import { parseDocument } from './document.ts';
import type { PermissionSections, Sited } from './layer.ts';
import { checkDocument } from './schema-check.ts';

/** A job file after parsing: data, every value with its line, paths as written. */
export interface JobFile {
  /** As named to a person. */
  readonly file: string;
  /** Of the file's bytes, lower-case hex. */
  readonly sha256: string;
  readonly name?: Sited<string>;
  readonly mode?: Sited<Mode>;
  readonly command?: Sited<readonly string[]>;
  readonly workspace?: Sited<string>;
  readonly cwd?: Sited<string>;
  readonly env?: Sited<Readonly<Record<string, string>>>;
  readonly use: readonly Sited<string>[];
  readonly policies: readonly Sited<string>[];
  readonly executor?: Sited<'auto' | 'native' | 'docker' | 'host'>;
  readonly image?: Sited<string>;
  readonly runtime?: Sited<string>;
  readonly degrade: readonly Sited<Dimension>[];
  readonly permissions: PermissionSections;
}

/**
 * Parses a job file, YAML or JSON. `file` is how the file is named in messages; `sha256` is that of its bytes. Throws ERR_JOB_FILE with file, line, column and what was
 * expected: repeated and unknown keys (with near names), wrong types and units, a command that isn't a list.
 */
export async function parseJobFile(text: string, file: string, sha256: string): Promise<JobFile> {
  const document = await parseDocument(text, file, 'ERR_JOB_FILE');
  const value = await checkDocument(document, 'job', 'ERR_JOB_FILE');
  const reader = new DocumentReader(document, 'ERR_JOB_FILE');
  const site = <T>(key: string, read: (value: JsonValue) => T | undefined): Sited<T> | undefined => {
    const raw = value[key];
    const read_ = raw === undefined ? undefined : read(raw);
    return read_ === undefined ? undefined : { value: read_, line: reader.line(`/${key}`) };
  };
  const text_ = (raw: JsonValue): string | undefined => (typeof raw === 'string' ? raw : undefined);
  const name = site('name', text_);
  const mode = site('mode', (raw) => MODES.find((one) => one === raw));
  const command = site('command', (raw) => (Array.isArray(raw) ? raw.filter((word): word is string => typeof word === 'string') : undefined));
  if (command?.value[0] === '') reader.fail('/command/0', 'command: the program is empty');
  const workspace = site('workspace', text_);
  const cwd = site('cwd', text_);
  const env = site('env', (raw) => (isMapping(raw) ? textMapping(raw) : undefined));
  const executor = site('executor', (raw) => (['auto', 'native', 'docker', 'host'] as const).find((one) => one === raw));
  const image = site('image', text_);
  const runtime = site('runtime', text_);
  const permissions: JsonObject = isMapping(value['permissions']) ? value['permissions'] : {};
  return {
    file,
    sha256,
    ...(name === undefined ? {} : { name }),
    ...(mode === undefined ? {} : { mode }),
    ...(command === undefined ? {} : { command }),
    ...(workspace === undefined ? {} : { workspace }),
    ...(cwd === undefined ? {} : { cwd }),
    ...(env === undefined ? {} : { env }),
    use: reader.texts(value, '', 'use') ?? [],
    policies: reader.texts(value, '', 'policies') ?? [],
    ...(executor === undefined ? {} : { executor }),
    ...(image === undefined ? {} : { image }),
    ...(runtime === undefined ? {} : { runtime }),
    degrade: reader.list(value, '', 'degrade', (item) => DIMENSIONS.find((one) => one === item && !CONTAINMENT_DIMENSIONS.some((kept) => kept === one))) ?? [],
    permissions: compilePermissions(reader, permissions, '/permissions'),
  };
}
