import { ProofrunError } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { compileLayer, isMapping } from './compile.ts';
import { errorAt, parseDocument, placeAt, type LocatedDocument } from './document.ts';
import type { CompiledLayer } from './layer.ts';
import { checkDocument } from './schema-check.ts';
import type { ExecutesEntry, ExecutesData } from './executes.ts';
import type { SensitiveData, SensitiveEntry } from './sensitive.ts';

/** What the build writes as one JSON file, so that a run without files of its own parses no YAML. */
export interface Presets {
  readonly version: 1;
  readonly policies: readonly CompiledLayer[];
  readonly profiles: readonly CompiledLayer[];
  readonly sensitive: SensitiveData;
  readonly executes: ExecutesData;
}

/** A file of policies/: its name there and its text. */
export interface PresetFile {
  readonly kind: 'policy' | 'profile';
  /** Without a directory: `safe.yaml`. */
  readonly file: string;
  readonly text: string;
  readonly sha256: string;
}

/** Compiles one shipped or user-made policy or profile. Throws ERR_POLICY_FILE with file, line and column. */
export async function compilePreset(text: string, file: string, kind: 'policy' | 'profile', sha256: string, fallbackName?: string): Promise<CompiledLayer> {
  const document = await parseDocument(text, file, 'ERR_POLICY_FILE');
  const value = await checkDocument(document, kind, 'ERR_POLICY_FILE');
  return compileLayer(document, value, kind, fallbackName ?? baseName(file), sha256, 'ERR_POLICY_FILE');
}

/** Compiles every shipped file. A name that stands twice is an error. */
export async function compilePresets(files: readonly PresetFile[], sensitive: Omit<PresetFile, 'kind'>, executes: Omit<PresetFile, 'kind'>): Promise<Presets> {
  const layers: CompiledLayer[] = [];
  for (const { text, file, kind, sha256 } of files) layers.push(await compilePreset(text, file, kind, sha256));
  layers.sort((a, b) => (a.name < b.name ? -1 : 1));
  const twice = layers.find((layer, index) => layer.kind === layers[index + 1]?.kind && layer.name === layers[index + 1]?.name);
  if (twice !== undefined) throw new ProofrunError('ERR_POLICY_FILE', { message: `${twice.file}: the name ${twice.name} stands twice` });
  return {
    version: 1,
    policies: layers.filter((layer) => layer.kind === 'policy'),
    profiles: layers.filter((layer) => layer.kind === 'profile'),
    sensitive: await compileSensitive(sensitive.text, sensitive.file, sensitive.sha256),
    executes: await compileExecutes(executes.text, executes.file, executes.sha256),
  };
}

/** policies/sensitive.yaml as data. */
export async function compileSensitive(text: string, file: string, sha256: string): Promise<SensitiveData> {
  const { document, value } = await dataFile(text, file);
  const entries = (key: string): readonly SensitiveEntry[] =>
    rows(document, value, key).map(({ row, line, fail }) => {
      const { path, tool, source, private_key: privateKey, profile } = row;
      if (typeof path !== 'string' || typeof tool !== 'string' || typeof source !== 'string') return fail('expected path, tool and source');
      return { path, tool, source, line, ...(privateKey === true ? { privateKey } : {}), ...(typeof profile === 'string' ? { profile } : {}) };
    });
  return { file, sha256, host: entries('host'), workspace: entries('workspace'), workspaceExcept: texts(value['except']) };
}

/** policies/executes-on-host.yaml as data. */
export async function compileExecutes(text: string, file: string, sha256: string): Promise<ExecutesData> {
  const { document, value } = await dataFile(text, file);
  const entries = rows(document, value, 'entries').map(({ row, line, fail }): ExecutesEntry => {
    const { paths, anywhere, exact, keys, tool, when, source } = row;
    if (texts(paths).length === 0 || typeof tool !== 'string' || typeof when !== 'string' || typeof source !== 'string') {
      return fail('expected paths, tool, when and source');
    }
    return {
      paths: texts(paths),
      anywhere: anywhere === true,
      exact: exact === true,
      ...(texts(keys).length === 0 ? {} : { keys: texts(keys) }),
      tool,
      when,
      source,
      line,
    };
  });
  return { file, sha256, entries };
}

async function dataFile(text: string, file: string): Promise<{ readonly document: LocatedDocument; readonly value: JsonObject }> {
  const document = await parseDocument(text, file, 'ERR_POLICY_FILE');
  const { value } = document;
  if (!isMapping(value) || value['version'] !== 1) {
    throw errorAt('ERR_POLICY_FILE', file, placeAt(document, ''), { message: 'expected a mapping with `version: 1`' });
  }
  return { document, value };
}

function rows(
  document: LocatedDocument,
  value: JsonObject,
  key: string,
): readonly { readonly row: JsonObject; readonly line: number; readonly fail: (message: string) => never }[] {
  const list = value[key];
  return (Array.isArray(list) ? (list as readonly JsonValue[]) : []).map((row, index) => {
    const place = placeAt(document, `/${key}/${String(index)}`);
    const fail = (message: string): never => {
      throw errorAt('ERR_POLICY_FILE', document.file, place, { message });
    };
    return isMapping(row) ? { row, line: place.line, fail } : fail('expected a mapping');
  });
}

function texts(value: JsonValue | undefined): readonly string[] {
  return Array.isArray(value) ? value.filter((item): item is string => typeof item === 'string') : [];
}

function baseName(file: string): string {
  return file.slice(file.lastIndexOf('/') + 1).replace(/\.(?:ya?ml|json)$/, '');
}
