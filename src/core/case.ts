import { ProofrunError } from './errors.ts';
import type { JsonObject, JsonValue } from './json.ts';

/**
 * On disk and in `--json` keys are snake_case; in TypeScript they are camelCase. The two functions below are inverse to each other for
 * keys of our own vocabulary. Two kinds of key are special:
 */
export interface CaseRules {
  /** The value below such a key is data: nothing in it is renamed. */
  readonly verbatim: ReadonlySet<string>;
  /** The object below such a key is keyed by data (dimensions): its keys stay, the values under them are converted. */
  readonly keyed: ReadonlySet<string>;
}

/** Receipt values, expected values and event data are verbatim; `dimensions` is keyed. Names match in both cases. */
export const CASE_RULES: CaseRules = {
  verbatim: new Set(['value', 'from', 'data', 'environment']),
  keyed: new Set(['dimensions']),
};

const CAMEL = /^[a-z][a-zA-Z0-9]*$/;
const SNAKE = /^[a-z][a-z0-9]*(?:_[a-z][a-z0-9]*)*$/;

/** `stagedSha256` to `staged_sha256`. */
export function snakeKey(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** `staged_sha256` to `stagedSha256`. */
export function camelKey(key: string): string {
  return key.replace(/_([a-z])/g, (_all, letter: string) => letter.toUpperCase());
}

/**
 * The JSON form of a value of ours: keys renamed, undefined properties left out, everything copied.
 * Throws ERR_INTERNAL for what JSON has no form for (functions, symbols, bigint, instances of classes, undefined in a list) and for a
 * key that isn't camelCase.
 */
export function toSnake(value: unknown, rules: CaseRules = CASE_RULES): JsonValue {
  return convert(value, { pattern: CAMEL, rename: snakeKey, rules }, 'value', '$');
}

/** The inverse of `toSnake`, for JSON that a schema has accepted. Throws ERR_INTERNAL for a key that isn't snake_case. */
export function toCamel(value: JsonValue, rules: CaseRules = CASE_RULES): JsonValue {
  return convert(value, { pattern: SNAKE, rename: camelKey, rules }, 'value', '$');
}

interface Direction {
  readonly pattern: RegExp;
  readonly rename: (key: string) => string;
  readonly rules: CaseRules;
}

/** value: keys are ours. keyed: keys of this object are data. verbatim: all keys below are data. */
type Reading = 'value' | 'keyed' | 'verbatim';

function convert(value: unknown, direction: Direction, reading: Reading, path: string): JsonValue {
  if (value === null || typeof value === 'boolean' || typeof value === 'number' || typeof value === 'string') return value;
  if (Array.isArray(value)) {
    return value.map((item: unknown, index) => convert(item, direction, reading === 'verbatim' ? 'verbatim' : 'value', `${path}[${index}]`));
  }
  if (typeof value !== 'object' || !isPlain(value)) throw unconvertible(path, `${typeof value} has no JSON form`);
  return convertObject(value, direction, reading, path);
}

function convertObject(value: object, direction: Direction, reading: Reading, path: string): JsonObject {
  const entries: [string, JsonValue][] = [];
  for (const [key, item] of Object.entries(value) as [string, unknown][]) {
    if (item === undefined) continue;
    if (reading === 'value' && !direction.pattern.test(key)) throw unconvertible(path, `key ${JSON.stringify(key)} is not one of ours`);
    entries.push([reading === 'value' ? direction.rename(key) : key, convert(item, direction, below(key, direction.rules, reading), `${path}.${key}`)]);
  }
  // Not an assignment: a data key may be `__proto__`.
  return Object.fromEntries(entries);
}

function below(key: string, rules: CaseRules, reading: Reading): Reading {
  if (reading === 'verbatim') return 'verbatim';
  if (reading === 'keyed') return 'value';
  if (rules.verbatim.has(key)) return 'verbatim';
  return rules.keyed.has(key) ? 'keyed' : 'value';
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

function unconvertible(path: string, fact: string): ProofrunError {
  return new ProofrunError('ERR_INTERNAL', { message: `${path}: ${fact}` });
}
