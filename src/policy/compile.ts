import { MODES, type Mode } from '../core/dimension.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { parseDuration, parseSize } from '../core/units.ts';
import { errorAt, placeAt, type DocumentCode, type LocatedDocument } from './document.ts';
import {
  LIMIT_FIELDS,
  LIMIT_KEYS,
  REGISTRY_SOURCES,
  type Action,
  type AgentSocket,
  type CompiledLayer,
  type CredentialsSection,
  type FileReadSection,
  type FileWriteSection,
  type GrantScope,
  type LimitField,
  type LimitKey,
  type NetworkSection,
  type PermissionSections,
  type RawHost,
  type RawLogin,
  type RawSecret,
  type ResourcesSection,
  type SectionHead,
  type Sited,
  type SourceNote,
  type SubprocessSection,
} from './layer.ts';
import { parseHostRule } from './host-rule.ts';

/** Reads a document whose shape a schema has checked. Every accessor is total: what the schema forbids is skipped here. */
export class DocumentReader {
  readonly document: LocatedDocument;
  readonly code: DocumentCode;

  constructor(document: LocatedDocument, code: DocumentCode) {
    this.document = document;
    this.code = code;
  }

  line(pointer: string): number {
    return placeAt(this.document, pointer).line;
  }

  /** Throws the document's error at a pointer. */
  fail(pointer: string, message: string, hint?: string): never {
    throw errorAt(this.code, this.document.file, placeAt(this.document, pointer), { message, ...(hint === undefined ? {} : { hint }) });
  }

  /** The items of a list that `read` accepts, each with its line. Undefined when the key is absent. */
  list<T>(parent: JsonObject, pointer: string, key: string, read: (value: JsonValue, at: string) => T | undefined): readonly Sited<T>[] | undefined {
    const value = parent[key];
    if (!isList(value)) return undefined;
    return value.flatMap((item, index) => {
      const at = `${pointer}/${key}/${String(index)}`;
      const one = read(item, at);
      return one === undefined ? [] : [{ value: one, line: this.line(at) }];
    });
  }

  texts(parent: JsonObject, pointer: string, key: string): readonly Sited<string>[] | undefined {
    return this.list(parent, pointer, key, textOf);
  }

  head(section: JsonObject, pointer: string): SectionHead {
    const action = section['default_action'];
    const grants = section['grants'];
    return {
      line: this.line(pointer),
      ...(isAction(action) ? { defaultAction: { value: action, line: this.line(`${pointer}/default_action`) } } : {}),
      ...(isGrantScope(grants) ? { grants: { value: grants, line: this.line(`${pointer}/grants`) } } : {}),
    };
  }
}

/** The profile or policy in a document that matched its schema. Throws `code` for a rule that can't be read (a host, a size). */
export function compileLayer(
  document: LocatedDocument,
  value: JsonObject,
  kind: 'policy' | 'profile',
  fallbackName: string,
  sha256: string,
  code: DocumentCode,
): CompiledLayer {
  const reader = new DocumentReader(document, code);
  const mode = value['mode'];
  const permissions = value['permissions'];
  const programs = reader.texts(value, '', 'programs')?.map((program) => program.value);
  const notes = reader.texts(value, '', 'notes')?.map((note) => note.value);
  const sources = reader.list(value, '', 'sources', sourceOf)?.map((source) => source.value);
  const env = value['env'];
  return {
    kind,
    name: textOf(value['name']) ?? fallbackName,
    file: document.file,
    sha256,
    ...(typeof value['description'] === 'string' ? { description: value['description'] } : {}),
    ...(isMode(mode) ? { mode: { value: mode, line: reader.line('/mode') } } : {}),
    permissions: isMapping(permissions) ? compilePermissions(reader, permissions, '/permissions') : {},
    ...(programs === undefined ? {} : { programs }),
    ...(isMapping(env) ? { env: textMapping(env) } : {}),
    ...(typeof value['hint'] === 'string' ? { hint: value['hint'] } : {}),
    ...(notes === undefined ? {} : { notes }),
    ...(sources === undefined ? {} : { sources }),
  };
}

/** The `permissions` mapping of a job file, a profile or a policy. */
export function compilePermissions(reader: DocumentReader, permissions: JsonObject, pointer: string): PermissionSections {
  const section = <T>(key: string, compile: (value: JsonObject, at: string) => T): T | undefined => {
    const value = permissions[key];
    return isMapping(value) ? compile(value, `${pointer}/${key}`) : undefined;
  };
  const fileRead = section('file_read', (value, at) => compileFileRead(reader, value, at));
  const fileWrite = section('file_write', (value, at) => compileFileWrite(reader, value, at));
  const network = section('network', (value, at) => compileNetwork(reader, value, at));
  const subprocess = section('subprocess', (value, at) => compileSubprocess(reader, value, at));
  const credentials = section('credentials', (value, at) => compileCredentials(reader, value, at));
  const models = section('models', (value, at) => ({ line: reader.line(at), value }));
  const tools = section('tools', (value, at) => ({ line: reader.line(at), value }));
  const resources = section('resources', (value, at) => compileResources(reader, value, at));
  return {
    ...(fileRead === undefined ? {} : { fileRead }),
    ...(fileWrite === undefined ? {} : { fileWrite }),
    ...(network === undefined ? {} : { network }),
    ...(subprocess === undefined ? {} : { subprocess }),
    ...(credentials === undefined ? {} : { credentials }),
    ...(models === undefined ? {} : { models }),
    ...(tools === undefined ? {} : { tools }),
    ...(resources === undefined ? {} : { resources }),
  };
}

function compileFileRead(reader: DocumentReader, value: JsonObject, at: string): FileReadSection {
  return {
    ...reader.head(value, at),
    ...present({
      allow: reader.texts(value, at, 'allow'),
      deny: reader.texts(value, at, 'deny'),
      config: reader.texts(value, at, 'config'),
      state: reader.texts(value, at, 'state'),
      cache: reader.texts(value, at, 'cache'),
    }),
  };
}

function compileFileWrite(reader: DocumentReader, value: JsonObject, at: string): FileWriteSection {
  return {
    ...reader.head(value, at),
    ...present({
      stage: reader.texts(value, at, 'stage'),
      stageLine: isList(value['stage']) ? reader.line(`${at}/stage`) : undefined,
      direct: reader.texts(value, at, 'direct'),
      deny: reader.texts(value, at, 'deny'),
    }),
  };
}

function compileNetwork(reader: DocumentReader, value: JsonObject, at: string): NetworkSection {
  const hosts = (key: 'allow' | 'deny'): readonly Sited<RawHost>[] | undefined =>
    reader.list(value, at, key, (item, pointer) => {
      const raw = hostOf(item);
      if (raw === undefined) return undefined;
      const parsed = parseHostRule(raw, key, { layer: 'job', name: '' });
      return parsed.kind === 'error' ? reader.fail(pointer, parsed.message, parsed.hint) : raw;
    });
  const isPrivate = value['private'];
  return {
    ...reader.head(value, at),
    ...present({
      allow: hosts('allow'),
      deny: hosts('deny'),
      allowFrom: reader.list(value, at, 'allow_from', (item) => REGISTRY_SOURCES.find((source) => source === item)),
      hostPorts: reader.list(value, at, 'host_ports', (item) => (typeof item === 'number' ? item : undefined)),
      publish: reader.list(value, at, 'publish', (item, pointer) => {
        const [hostPort = 0, jobPort = 0] = typeof item === 'string' ? item.split(':').map(Number) : [];
        if (!isPort(hostPort) || !isPort(jobPort)) return reader.fail(pointer, 'expected two ports from 1 to 65535, such as "3000:3000"');
        return { hostPort, jobPort };
      }),
      private: typeof isPrivate === 'boolean' ? { value: isPrivate, line: reader.line(`${at}/private`) } : undefined,
    }),
  };
}

function compileSubprocess(reader: DocumentReader, value: JsonObject, at: string): SubprocessSection {
  return { ...reader.head(value, at), ...present({ allow: reader.texts(value, at, 'allow') }) };
}

function compileCredentials(reader: DocumentReader, value: JsonObject, at: string): CredentialsSection {
  return {
    ...reader.head(value, at),
    ...present({
      passEnv: reader.texts(value, at, 'pass_env'),
      secrets: reader.list(value, at, 'secrets', secretOf),
      agentSockets: reader.list(value, at, 'agent_sockets', (item): AgentSocket | undefined =>
        item === 'ssh-agent' || item === 'gpg-agent' ? item : undefined,
      ),
      login: reader.list(value, at, 'login', loginOf),
      gitIdentity: value['git_identity'] === true ? true : undefined,
    }),
  };
}

function compileResources(reader: DocumentReader, value: JsonObject, at: string): ResourcesSection {
  const limits: Partial<Record<LimitField, Sited<number>>> = {};
  for (const key of LIMIT_KEYS) {
    const limit = value[key];
    if (limit === undefined) continue;
    const pointer = `${at}/${key}`;
    limits[LIMIT_FIELDS[key]] = { value: limitOf(reader, pointer, key, limit), line: reader.line(pointer) };
  }
  return { line: reader.line(at), limits };
}

function limitOf(reader: DocumentReader, pointer: string, key: LimitKey, value: JsonValue): number {
  if (typeof value === 'number') return value;
  const text = typeof value === 'string' ? value : '';
  const parsed = key === 'wall_time' || key === 'cpu_time' ? parseDuration(text) : parseSize(text);
  if (parsed.kind === 'error') return reader.fail(pointer, `${key}: expected ${parsed.expected}, found ${JSON.stringify(text)}`);
  if (parsed.value === 0 && key !== 'swap' && key !== 'output_kept') return reader.fail(pointer, `${key}: expected more than nothing, found ${text}`);
  return parsed.value;
}

function hostOf(item: JsonValue): RawHost | undefined {
  if (typeof item === 'string') return { host: item };
  if (!isMapping(item)) return undefined;
  const { host, ports, private: isPrivate } = item;
  if (typeof host !== 'string') return undefined;
  return {
    host,
    ...(isList(ports) ? { ports: ports.filter((port) => typeof port === 'number') } : {}),
    ...(typeof isPrivate === 'boolean' ? { private: isPrivate } : {}),
  };
}

function secretOf(item: JsonValue): RawSecret | undefined {
  if (typeof item === 'string') return { name: item };
  if (!isMapping(item)) return undefined;
  const { name, from, inject } = item;
  if (typeof name !== 'string' || typeof from !== 'string') return undefined;
  if (!isMapping(inject) || typeof inject['host'] !== 'string' || typeof inject['header'] !== 'string') return { name, from };
  const { host, header, format, intercept } = inject;
  return { name, from, inject: { host, header, format: textOf(format) ?? '{}', ...(intercept === true ? { intercept } : {}) } };
}

function loginOf(item: JsonValue): RawLogin | undefined {
  if (!isMapping(item) || typeof item['path'] !== 'string') return undefined;
  const values = item['values'];
  const newest = textOf(item['newest']);
  return {
    path: item['path'],
    writeBack: item['write_back'] === 'json',
    values: isList(values) ? values.flatMap((one) => textOf(one) ?? []) : [],
    ...(newest === undefined ? {} : { newest }),
  };
}

function sourceOf(item: JsonValue): SourceNote | undefined {
  if (!isMapping(item)) return undefined;
  const { what, where, checked, untested } = item;
  if (typeof what !== 'string' || typeof where !== 'string' || typeof checked !== 'string') return undefined;
  return { what, where, checked, ...(typeof untested === 'string' ? { untested } : {}) };
}

/** Own properties that are text. */
export function textMapping(value: JsonObject): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(value).flatMap(([name, text]) => (typeof text === 'string' ? [[name, text] as const] : [])));
}

/** An object without the keys whose value is undefined. */
function present<T extends object>(value: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== undefined)) as { [K in keyof T]?: Exclude<T[K], undefined> };
}

function isPort(value: number): boolean {
  return Number.isInteger(value) && value >= 1 && value <= 65535;
}

function textOf(value: JsonValue | undefined): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

function isAction(value: JsonValue | undefined): value is Action {
  return value === 'allow' || value === 'deny';
}

function isGrantScope(value: JsonValue | undefined): value is GrantScope {
  return value === 'none' || value === 'named' || value === 'any';
}

function isMode(value: JsonValue | undefined): value is Mode {
  return MODES.some((mode) => mode === value);
}

export function isMapping(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isList(value: JsonValue | undefined): value is readonly JsonValue[] {
  return Array.isArray(value);
}
