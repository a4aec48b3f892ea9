import type { RunBundle, RunBundleBody } from '../core/bundle.ts';
import { canonicalJson, canonicalSha256, sha256Hex } from '../core/canonical-json.ts';
import { toCamel, toSnake } from '../core/case.ts';
import { messageOf, ProofrunError } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { parseStrictJson } from '../core/strict-json.ts';

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
  const value = parseJson(bytes, source);
  const object = typeof value === 'object' && value !== null && !Array.isArray(value) ? asObject(value) : undefined;
  if (object === undefined) throw invalid(source, 'is not a JSON object');
  if (object.executor_observations === undefined) throw invalid(source, 'has no executor_observations: nothing in it is evidence');
  if (object.version !== 1) throw invalid(source, `has version ${JSON.stringify(object.version)}, this Proofrun reads 1`);
  const faults = validate(value);
  if (faults.length > 0) throw invalid(source, faults.slice(0, 5).join('; '));
  const found = bundleSha256(object);
  if (found !== object.sha256) {
    throw invalid(
      source,
      `was altered: its hash is ${found.slice(0, 16)}, it states ${typeof object.sha256 === 'string' ? object.sha256.slice(0, 16) : 'none'}`,
    );
  }
  // The schema has accepted the value, and describes this type.
  return toCamel(value) as unknown as RunBundle;
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
