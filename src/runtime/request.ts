import { canonicalJson } from '../core/canonical-json.ts';
import { messageOf } from '../core/errors.ts';
import type { JsonValue } from '../core/json.ts';
import { hasLoneSurrogate, parseLiteralJson, parseStrictJson } from '../core/strict-json.ts';

/** Arguments as received: JSON, with its canonical text; or not, and then verbatim and out of band. */
export type ReceivedArguments =
  | { readonly kind: 'json'; readonly value: JsonValue; readonly request: string }
  /** `raw`: base64 of the bytes. */
  | { readonly kind: 'not_json'; readonly raw: string; readonly fault: string };

/** Longest arguments of one call that are read, in bytes. */
const MAX_ARGUMENTS = 4 * 1024 * 1024;

/**
 * Reads what an agent sent as the arguments of a call. Strict: see parseStrictJson for what is refused. Number literals keep their form in the
 * canonical text, which is what is hashed, shown and executed.
 */
export function readArguments(text: string | Uint8Array): ReceivedArguments {
  try {
    const options = { source: 'arguments', maxLength: MAX_ARGUMENTS };
    return { kind: 'json', value: parseStrictJson(text, options), request: canonicalJson(parseLiteralJson(text, options)) };
  } catch (error) {
    return { kind: 'not_json', raw: rawOf(text), fault: messageOf(error) };
  }
}

/** Bytes in base64. A string with half of a surrogate pair has no UTF-8 form: its code units are kept, little-endian. */
export function rawOf(text: string | Uint8Array): string {
  if (typeof text !== 'string') return Buffer.from(text).toString('base64');
  return hasLoneSurrogate(text) ? `utf16:${Buffer.from(text, 'utf16le').toString('base64')}` : Buffer.from(text, 'utf8').toString('base64');
}

/** Freezes a value of plain data all the way down. */
export function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  for (const key of Object.keys(value)) deepFreeze((value as Readonly<Record<string, unknown>>)[key]);
  return Object.freeze(value);
}
