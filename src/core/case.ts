import { ProofrunError } from './errors.ts';
import type { JsonValue } from './json.ts';

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
  return convert(value, { ...TO_SNAKE, rules, known: rules === CASE_RULES ? TO_SNAKE.known : new Map<string, KnownKey>() }, 'value', []);
}

/** The inverse of `toSnake`, for JSON that a schema has accepted. Throws ERR_INTERNAL for a key that isn't snake_case. */
export function toCamel(value: JsonValue, rules: CaseRules = CASE_RULES): JsonValue {
  return convert(value, { ...TO_CAMEL, rules, known: rules === CASE_RULES ? TO_CAMEL.known : new Map<string, KnownKey>() }, 'value', []);
}

interface Direction {
  readonly pattern: RegExp;
  readonly rename: (key: string) => string;
  /** What was found out about keys that were met before: there are few, and each comes often. */
  readonly known: Map<string, KnownKey>;
  readonly rules: CaseRules;
}

interface KnownKey {
  readonly name: string;
  /** How the value below it is read. */
  readonly below: Reading;
}

const TO_SNAKE = { pattern: CAMEL, rename: snakeKey, known: new Map<string, KnownKey>() };
const TO_CAMEL = { pattern: SNAKE, rename: camelKey, known: new Map<string, KnownKey>() };
/** More keys than our vocabulary has. */
const MOST_KNOWN = 4096;

/** value: keys are ours. keyed: keys of this object are data. verbatim: all keys below are data. */
type Reading = 'value' | 'keyed' | 'verbatim';

/** Steps to the value that is converted now; text is made of it only for an error. */
type Trail = (string | number)[];

function convert(value: unknown, direction: Direction, reading: Reading, trail: Trail): JsonValue {
  if (value === null || typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') return value;
  if (Array.isArray(value)) return convertList(value, direction, reading === 'verbatim' ? 'verbatim' : 'value', trail);
  if (typeof value !== 'object' || !isPlain(value)) throw unconvertible(trail, `${typeof value} has no JSON form`);
  const object: Record<string, JsonValue> = {};
  for (const key of Object.keys(value)) {
    const item = (value as Readonly<Record<string, unknown>>)[key];
    if (item === undefined) continue;
    const { name, below } = reading === 'value' ? keyOf(key, direction, trail) : { name: key, below: reading === 'keyed' ? ('value' as const) : reading };
    trail.push(key);
    const converted = convert(item, direction, below, trail);
    trail.pop();
    // A data key may be `__proto__`, which an assignment would take for something else.
    if (name === '__proto__') Object.defineProperty(object, name, { value: converted, enumerable: true, configurable: true, writable: true });
    else object[name] = converted;
  }
  return object;
}

function convertList(items: readonly unknown[], direction: Direction, reading: Reading, trail: Trail): JsonValue {
  const list: JsonValue[] = [];
  for (let index = 0; index < items.length; index += 1) {
    trail.push(index);
    list.push(convert(items[index], direction, reading, trail));
    trail.pop();
  }
  return list;
}

function keyOf(key: string, { known, pattern, rename, rules }: Direction, trail: Trail): KnownKey {
  const before = known.get(key);
  if (before !== undefined) return before;
  if (!pattern.test(key)) throw unconvertible(trail, `key ${JSON.stringify(key)} is not one of ours`);
  const found: KnownKey = { name: rename(key), below: rules.verbatim.has(key) ? 'verbatim' : rules.keyed.has(key) ? 'keyed' : 'value' };
  if (known.size < MOST_KNOWN) known.set(key, found);
  return found;
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

function unconvertible(trail: Trail, fact: string): ProofrunError {
  const path = trail.map((step) => (typeof step === 'number' ? `[${step}]` : `.${step}`)).join('');
  return new ProofrunError('ERR_INTERNAL', { message: `$${path}: ${fact}` });
}
