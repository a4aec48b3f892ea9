import type { RunBundle, RunBundleBody } from '../core/bundle.ts';
import { canonicalJson, canonicalSha256, sha256Hex } from '../core/canonical-json.ts';
import { toCamel, toSnake } from '../core/case.ts';
import { messageOf, ProofrunError } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { JSON_MAX_DEPTH, parseStrictJson } from '../core/strict-json.ts';

/** Longest bundle that is read or written, in bytes: some 300,000 changes. */
export const BUNDLE_MAX_BYTES = 256 * 1024 * 1024;

/** Checks a bundle in its form on disk; returns what is wrong, at most a few lines. */
export type BundleValidator = (value: JsonValue) => readonly string[];

/** Adds the hash and gives the text of the file: canonical JSON and a newline. */
export function formatBundle(body: RunBundleBody): { readonly bundle: RunBundle; readonly text: string } {
  // Each member is written once: a bundle may hold a hundred thousand changes.
  const members = new Map(Object.entries(asObject(toSnake(body))).map(([key, value]) => [key, canonicalJson(value)]));
  const sha256 = sha256Hex(joinMembers(members));
  return { bundle: { ...body, sha256 }, text: `${joinMembers(members.set('sha256', canonicalJson(sha256)))}\n` };
}

/**
 * A bundle from the bytes of its file: strict JSON, the observation contract, the schema, the hash. Throws ERR_BUNDLE_INVALID, naming
 * `source` and the first thing that is wrong. Says nothing about derived statements: that is verifyBundle's part.
 */
export function parseBundle(bytes: Uint8Array, source: string, validate: BundleValidator): RunBundle {
  const written = asWritten(bytes);
  const value = written?.value ?? parseJson(bytes, source);
  const object = typeof value === 'object' && value !== null && !Array.isArray(value) ? asObject(value) : undefined;
  if (object === undefined) throw invalid(source, 'is not a JSON object');
  if (object.executor_observations === undefined) throw invalid(source, 'has no executor_observations: nothing in it is evidence');
  if (object.version !== 1) throw invalid(source, `has version ${JSON.stringify(object.version)}, this Proofrun reads 1`);
  const faults = validate(value);
  if (faults.length > 0) throw invalid(source, faults.slice(0, 5).join('; '));
  const found = written?.sha256 ?? bundleSha256(object);
  if (found !== object.sha256) {
    throw invalid(
      source,
      `was altered: its hash is ${found.slice(0, 16)}, it states ${typeof object.sha256 === 'string' ? object.sha256.slice(0, 16) : 'none'}`,
    );
  }
  // The schema has accepted the value, and describes this type.
  const bundle = toCamel(value) as unknown as RunBundle;
  hashes.set(bundle, found);
  return bundle;
}

/** Of bundles that were read here; nobody changes one. */
const hashes = new WeakMap<RunBundle, string>();

/** SHA-256 over the canonical text of everything but the hash that a bundle states. */
export function derivedSha256(bundle: RunBundle): string {
  return hashes.get(bundle) ?? bundleSha256(asObject(toSnake(bundle)));
}

/**
 * The value of a text that is canonical, as formatBundle writes it, with the hash over all but the hash: three passes of the engine's own
 * instead of a parser and a writer, which counts with ten thousand changes. Undefined: it is not, and parseStrictJson says whether it is JSON.
 */
function asWritten(bytes: Uint8Array): { readonly value: JsonObject; readonly sha256: string } | undefined {
  let text: string;
  let value: JsonValue;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    value = JSON.parse(text) as JsonValue;
  } catch {
    return undefined;
  }
  // An escape of a surrogate may be one without its other half.
  if (text.includes('\\ud') || !isCanonical(value, 0) || `${JSON.stringify(value)}\n` !== text) return undefined;
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  const object = asObject(value);
  const member = `,"sha256":${JSON.stringify(object.sha256 ?? null)}`;
  const at = Object.hasOwn(object, 'sha256') ? topLevelMember(object, text) : undefined;
  if (at === undefined || !text.startsWith(member, at)) return undefined;
  return { value: object, sha256: sha256Hex(text.slice(0, at) + text.slice(at + member.length, -1)) };
}

/** Where `,"sha256":` of the object itself begins: behind the texts of the members that come before it. */
function topLevelMember(object: JsonObject, text: string): number | undefined {
  const after = Object.entries(object).filter(([key]) => key > 'sha256');
  const length = after.reduce((sum, [key, value]) => sum + JSON.stringify(key).length + JSON.stringify(value).length + 2, 0);
  const at = text.length - '}\n'.length - length - `,"sha256":${JSON.stringify(object.sha256)}`.length;
  return at > 1 ? at : undefined;
}

/** Keys in order, numbers that a double holds exactly, and no deeper than strict JSON goes. */
function isCanonical(value: JsonValue, depth: number): boolean {
  if (typeof value === 'number') return Math.abs(value) <= Number.MAX_SAFE_INTEGER;
  if (typeof value !== 'object' || value === null) return true;
  if (depth >= JSON_MAX_DEPTH) return false;
  if (Array.isArray(value)) {
    const items: readonly JsonValue[] = value;
    for (const item of items) if (!isCanonical(item, depth + 1)) return false;
    return true;
  }
  const object = asObject(value);
  let before: string | undefined;
  for (const key of Object.keys(object)) {
    if ((before !== undefined && before >= key) || !isCanonical(object[key] ?? null, depth + 1)) return false;
    before = key;
  }
  return true;
}

/** The canonical text of an object from the canonical texts of its members. */
function joinMembers(members: ReadonlyMap<string, string>): string {
  const sorted = [...members].sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${sorted.map(([key, text]) => `${canonicalJson(key)}:${text}`).join(',')}}`;
}

/** SHA-256 over the canonical text of everything but the hash itself. */
export function bundleSha256(bundle: JsonObject): string {
  return canonicalSha256(Object.fromEntries(Object.entries(bundle).filter(([key]) => key !== 'sha256')));
}

/** ERR_BUNDLE_INVALID. */
export function invalid(source: string, fact: string, cause?: unknown): ProofrunError {
  return new ProofrunError('ERR_BUNDLE_INVALID', { message: `${source}: ${fact}`, hint: 'job ls', ...(cause === undefined ? {} : { cause }) });
}

function parseJson(bytes: Uint8Array, source: string): JsonValue {
  try {
    return parseStrictJson(bytes, { maxLength: BUNDLE_MAX_BYTES });
  } catch (error) {
    throw invalid(source, messageOf(error), error);
  }
}

function asObject(value: JsonValue): JsonObject {
  return value as JsonObject;
}
