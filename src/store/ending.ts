import type { JsonObject, JsonValue } from '../core/json.ts';
import type { Ending } from '../core/run.ts';

/** An ending from its JSON (snake_case). Throws an Error that names what is wrong; extra keys are wrong. */
export function parseEnding(value: JsonValue): Ending {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error('an ending is an object');
  const object = value as JsonObject;
  const { kind } = object;
  switch (kind) {
    case 'exit':
      return only(object, ['code'], { kind, code: integer(object, 'code') });
    case 'signal':
      return only(object, ['signal', 'number'], { kind, signal: text(object, 'signal'), number: integer(object, 'number') });
    case 'timeout':
      return only(object, ['after_ms'], { kind, afterMs: integer(object, 'after_ms') });
    case 'limit':
      return only(object, ['limit'], { kind, limit: text(object, 'limit') });
    case 'not_found':
    case 'not_executable':
      return only(object, ['errno'], { kind, errno: text(object, 'errno') });
    case 'refused':
    case 'evidence_missing':
    case 'control_lost':
    case 'launch_failed':
    case 'interrupted':
      return only(object, ['detail'], { kind, detail: text(object, 'detail') });
    default:
      throw new Error(`unknown ending ${JSON.stringify(kind)}`);
  }
}

function only(object: JsonObject, keys: readonly string[], ending: Ending): Ending {
  for (const key of Object.keys(object)) {
    if (key !== 'kind' && !keys.includes(key)) throw new Error(`unknown key ${JSON.stringify(key)} in an ending`);
  }
  return ending;
}

function text(object: JsonObject, key: string): string {
  const value = object[key];
  if (typeof value !== 'string') throw new Error(`${key} of an ending is not a string`);
  return value;
}

function integer(object: JsonObject, key: string): number {
  const value = object[key];
  if (typeof value !== 'number' || !Number.isInteger(value)) throw new Error(`${key} of an ending is not a whole number`);
  return value;
}
