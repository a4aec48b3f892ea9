import { ProofrunError, type ErrorDetails } from '../core/errors.ts';
import type { ErrorCode } from '../core/error-codes.ts';
import type { JsonValue } from '../core/json.ts';

/** A place in a file, 1-based. */
export interface Place {
  readonly line: number;
  readonly column: number;
}

/** A YAML or JSON file as data, with the place of every value. */
export interface LocatedDocument {
  /** As it should be named to a person: the path given, or the name of a preset. */
  readonly file: string;
  readonly value: JsonValue;
  /** Places by JSON pointer: of the key for a member of a mapping, of the value for an item of a list. `''` is the whole. */
  readonly places: ReadonlyMap<string, Place>;
}

/** Which error a file of this kind raises. */
export type DocumentCode = Extract<ErrorCode, 'ERR_JOB_FILE' | 'ERR_POLICY_FILE'>;

/** Bytes; the same bound for job files, profiles and policies. */
export const MAX_DOCUMENT_BYTES = 1024 * 1024;
/** Values after aliases are expanded: bounds what `*a` can multiply to. */
const MAX_VALUES = 20_000;
const MAX_DEPTH = 64;

/** The text of a file. Bytes that aren't UTF-8, NUL and a text over MAX_DOCUMENT_BYTES are errors; a leading byte order mark is dropped. */
export function decodeDocument(bytes: Uint8Array, file: string, code: DocumentCode): string {
  if (bytes.byteLength > MAX_DOCUMENT_BYTES) throw new ProofrunError(code, { message: `${file}: larger than 1 MiB` });
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new ProofrunError(code, { message: `${file}: not UTF-8 text`, cause });
  }
  if (text.includes('\0')) throw new ProofrunError(code, { message: `${file}: holds a NUL byte` });
  return text;
}

/** An error at a place of a file: `job.yaml:12:5: ...`. */
export function errorAt(code: DocumentCode, file: string, place: Place | undefined, details: ErrorDetails): ProofrunError {
  const where = place === undefined ? file : `${file}:${String(place.line)}:${String(place.column)}`;
  return new ProofrunError(code, {
    ...details,
    message: `${where}: ${details.message}`,
    data: { file, ...(place === undefined ? {} : { line: place.line, column: place.column }), ...details.data },
  });
}

/**
 * Parses YAML 1.2 (core schema, of which JSON is a part): one document, no custom tags, text keys, no repeated keys, no anchors
 * that contain themselves, at most 20000 values once aliases are expanded. The YAML library is loaded here and nowhere else.
 * Throws `code` with file, line and column.
 */
export async function parseDocument(text: string, file: string, code: DocumentCode): Promise<LocatedDocument> {
  // A CommonJS module: a bundler gives its exports as the default alone.
  const yaml = (await import('yaml')).default;
  const lineCounter = new yaml.LineCounter();
  const placeOf = (offset: number): Place => {
    const { line, col } = lineCounter.linePos(offset);
    return { line: Math.max(line, 1), column: Math.max(col, 1) };
  };
  const fail = (offset: number | undefined, message: string): never => {
    throw errorAt(code, file, offset === undefined ? undefined : placeOf(offset), { message });
  };

  const document = readDocument(() =>
    yaml.parseDocument(text, {
      version: '1.2',
      schema: 'core',
      merge: false,
      uniqueKeys: true,
      strict: true,
      prettyErrors: false,
      lineCounter,
      logLevel: 'error',
    }),
  );
  if (document === undefined) return fail(undefined, 'nested too deeply');
  const [problem] = [...document.errors, ...document.warnings];
  if (problem !== undefined) return fail(problem.pos[0], plainMessage(problem.code, problem.message));

  const places = new Map<string, Place>([['', { line: 1, column: 1 }]]);
  let values = 0;
  const walk = (node: unknown, pointer: string, open: readonly unknown[], offset: number): JsonValue => {
    values += 1;
    if (values > MAX_VALUES) return fail(offset, 'too many values: aliases are expanded at most to 20000 values');
    if (open.length > MAX_DEPTH) return fail(offset, `nested more than ${String(MAX_DEPTH)} levels deep`);
    if (node === null || node === undefined) return null;
    if (!yaml.isNode(node)) return fail(offset, 'not a value');
    const here = node.range?.[0] ?? offset;
    if (yaml.isAlias(node)) {
      const target = node.resolve(document);
      if (target === undefined) return fail(here, `no anchor named ${node.source} stands before this alias`);
      if (open.includes(target)) return fail(here, `the anchor ${node.source} contains itself`);
      return walk(target, pointer, open, here);
    }
    if (yaml.isScalar(node)) return scalar(node.value, (message) => fail(here, message));
    if (yaml.isSeq(node)) {
      return node.items.map((item, index) => {
        const child = `${pointer}/${String(index)}`;
        places.set(child, placeOf(yaml.isNode(item) ? (item.range?.[0] ?? here) : here));
        return walk(item, child, [...open, node], here);
      });
    }
    if (!yaml.isMap(node)) return fail(here, 'not a value');
    const entries: [string, JsonValue][] = [];
    for (const { key, value } of node.items) {
      const keyOffset = yaml.isNode(key) ? (key.range?.[0] ?? here) : here;
      const name = yaml.isScalar(key) && typeof key.value === 'string' ? key.value : undefined;
      if (name === undefined) return fail(keyOffset, 'a key is text; quote it');
      if (name === '__proto__') return fail(keyOffset, 'unknown key `__proto__`');
      const child = `${pointer}/${escapePointer(name)}`;
      places.set(child, placeOf(keyOffset));
      entries.push([name, walk(value, child, [...open, node], keyOffset)]);
    }
    return Object.fromEntries(entries);
  };
  return { file, value: walk(document.contents, '', [], 0), places };
}

/** The line of the closest place that is known at or above a pointer. */
export function placeAt(document: Pick<LocatedDocument, 'places'>, pointer: string): Place {
  let at = pointer;
  for (;;) {
    const place = document.places.get(at);
    if (place !== undefined) return place;
    const slash = at.lastIndexOf('/');
    if (slash < 0) return { line: 1, column: 1 };
    at = at.slice(0, slash);
  }
}

/** One step of a JSON pointer (RFC 6901). */
export function escapePointer(step: string): string {
  return step.replaceAll('~', '~0').replaceAll('/', '~1');
}

/** Nested brackets overflow the stack of a recursive parser; that is bad input, not a fault of ours. */
function readDocument<T>(parse: () => T): T | undefined {
  try {
    return parse();
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

function scalar(value: unknown, fail: (message: string) => never): JsonValue {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return value;
  if (typeof value === 'number') return Number.isFinite(value) ? value : fail('not a finite number');
  return fail('a kind of value that JSON does not have');
}

function plainMessage(code: string, message: string): string {
  switch (code) {
    case 'DUPLICATE_KEY':
      return 'this key stands twice in the same mapping';
    case 'MULTIPLE_DOCS':
      return 'a second document begins; one file holds one';
    case 'TAG_RESOLVE_FAILED':
      return `${message.replace('Unresolved tag', 'custom tag')}: tags are not used here`;
    default:
      return message.replace(/\s+/g, ' ').trim();
  }
}
