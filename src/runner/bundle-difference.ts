import { canonicalJson } from '../core/canonical-json.ts';
import { toSnake } from '../core/case.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';

const MAX_SHOWN = 60;

/**
 * The leaves at which two values of a bundle differ: `place: recorded X, derived Y`. Places are written as in the file, so that a reader
 * finds them. Pure and total.
 */
export function differences(place: string, recorded: unknown, derived: unknown): readonly string[] {
  return compare(place, toSnake(recorded), toSnake(derived));
}

function compare(place: string, recorded: JsonValue | undefined, derived: JsonValue | undefined): readonly string[] {
  if (isObject(recorded) && isObject(derived)) {
    const keys = [...new Set([...Object.keys(recorded), ...Object.keys(derived)])].sort();
    return keys.flatMap((key) => compare(`${place}.${key}`, recorded[key], derived[key]));
  }
  if (Array.isArray(recorded) && Array.isArray(derived) && recorded.length === derived.length) {
    return recorded.flatMap((item: JsonValue, index) => compare(`${place}[${index}]`, item, derived[index] as JsonValue));
  }
  const before = show(recorded);
  const after = show(derived);
  return before.text === after.text ? [] : [`${place}: recorded ${before.short}, derived ${after.short}`];
}

function show(value: JsonValue | undefined): { readonly text: string; readonly short: string } {
  const text = value === undefined ? 'nothing' : canonicalJson(value);
  return { text, short: text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}...` : text };
}

function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
