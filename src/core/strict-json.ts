import { ProofrunError } from './errors.ts';
import type { JsonValue } from './json.ts';

export interface StrictJsonOptions {
  /** Deepest nesting of lists and objects that is accepted. */
  readonly maxDepth?: number;
  /** Longest text in bytes (code units for a string). */
  readonly maxLength?: number;
  /** File or channel, for messages. */
  readonly source?: string;
}

/** A number kept as it was written. */
export class NumberLiteral {
  /** A JSON number: digits, fraction, exponent, exactly as received. */
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** JSON whose numbers keep their form. */
export type LiteralJson = null | boolean | string | NumberLiteral | readonly LiteralJson[] | { readonly [key: string]: LiteralJson };

export const JSON_MAX_DEPTH = 256;
const DEFAULT_MAX_LENGTH = 64 * 1024 * 1024;
/** Longer literals carry no number that anybody means. */
const MAX_LITERAL_LENGTH = 128;

const SURROGATE = /[\ud800-\udfff]/;
/** With `u` a whole pair is one character of another class. */
const LONE_SURROGATE = /\p{Surrogate}/u;
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const INTEGER = /^-?[0-9]+$/;
const ZERO = /^-?[0.]+(?:[eE]|$)/;
// eslint-disable-next-line no-control-regex -- JSON forbids raw control characters in strings
const PLAIN_STRING = /[^"\\\u0000-\u001f]*/y;

/**
 * Reads one JSON value (RFC 8259) and refuses what JSON.parse lets through or repairs: bytes that aren't UTF-8, a byte order mark, repeated
 * keys (also when written with different escapes), unpaired surrogates, more nesting than `maxDepth` (256), and numbers that a double
 * can't hold: overflow, underflow to zero, integers beyond 2^53 - 1, literals over 128 characters. Trailing data is refused too.
 * Throws ERR_JSON with line and column.
 */
export function parseStrictJson(input: Uint8Array | string, options: StrictJsonOptions = {}): JsonValue {
  return new Parser<JsonValue>(decode(input, options), options, doubleOf).parse();
}

/** As `parseStrictJson`, with every number as a NumberLiteral, of any size up to 128 characters. */
export function parseLiteralJson(input: Uint8Array | string, options: StrictJsonOptions = {}): LiteralJson {
  return new Parser<LiteralJson>(decode(input, options), options, (text) => new NumberLiteral(text)).parse();
}

/** True when the text holds half of a surrogate pair, which UTF-8 can't carry. */
export function hasLoneSurrogate(text: string): boolean {
  return SURROGATE.test(text) && LONE_SURROGATE.test(text);
}

function decode(input: Uint8Array | string, options: StrictJsonOptions): string {
  const maxLength = options.maxLength ?? DEFAULT_MAX_LENGTH;
  if (input.length > maxLength) throw refusal(options, `${input.length} bytes of JSON, at most ${maxLength} are read`);
  if (typeof input === 'string') {
    if (hasLoneSurrogate(input)) throw refusal(options, 'an unpaired surrogate');
    return input;
  }
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(input);
  } catch (cause) {
    throw refusal(options, 'bytes that are not UTF-8', cause);
  }
}

function doubleOf(text: string): number | string {
  const value = Number(text);
  if (!Number.isFinite(value)) return `number ${shorten(text)} is too large`;
  if (value === 0 && !ZERO.test(text)) return `number ${shorten(text)} is too small`;
  if (INTEGER.test(text) ? !Number.isSafeInteger(value) : Math.abs(value) > Number.MAX_SAFE_INTEGER) {
    return `number ${shorten(text)} is beyond 2^53 - 1 and would lose digits`;
  }
  return value;
}

function shorten(text: string): string {
  return text.length > 40 ? `${text.slice(0, 40)}...` : text;
}

function refusal(options: StrictJsonOptions, fact: string, cause?: unknown): ProofrunError {
  const source = options.source ?? 'JSON';
  return new ProofrunError('ERR_JSON', { message: `${source}: ${fact}`, ...(cause === undefined ? {} : { cause }) });
}

type Leaf<T> = (text: string) => T | string;

/** One pass over the text. T is the JSON type that the number reader gives. */
class Parser<T> {
  readonly #text: string;
  readonly #options: StrictJsonOptions;
  readonly #maxDepth: number;
  readonly #number: Leaf<T>;
  #at = 0;

  constructor(text: string, options: StrictJsonOptions, number: Leaf<T>) {
    this.#text = text;
    this.#options = options;
    this.#maxDepth = options.maxDepth ?? JSON_MAX_DEPTH;
    this.#number = number;
  }

  parse(): T {
    const value = this.#value(0);
    this.#space();
    if (this.#at < this.#text.length) throw this.#error('the end of the text');
    return value;
  }

  #value(depth: number): T {
    this.#space();
    switch (this.#text[this.#at]) {
      case '{':
        return this.#object(depth + 1) as T;
      case '[':
        return this.#list(depth + 1) as T;
      case '"':
        return this.#string() as T;
      case 't':
        return this.#word('true', true) as T;
      case 'f':
        return this.#word('false', false) as T;
      case 'n':
        return this.#word('null', null) as T;
      default:
        return this.#readNumber();
    }
  }

  #object(depth: number): Record<string, T> {
    this.#enter(depth);
    const result: Record<string, T> = {};
    if (this.#take('}')) return result;
    do {
      this.#space();
      const keyAt = this.#at;
      if (this.#text[this.#at] !== '"') throw this.#error('a key in double quotes');
      const key = this.#string();
      if (Object.hasOwn(result, key)) {
        this.#at = keyAt;
        throw this.#fault(`key ${JSON.stringify(shorten(key))} is repeated`);
      }
      if (!this.#take(':')) throw this.#error("':'");
      const value = this.#value(depth);
      // Assigning to `__proto__` would set the prototype instead of a key.
      if (key === '__proto__') Object.defineProperty(result, key, { value, enumerable: true, writable: true, configurable: true });
      else result[key] = value;
    } while (this.#take(','));
    if (!this.#take('}')) throw this.#error("',' or '}'");
    return result;
  }

  #list(depth: number): T[] {
    this.#enter(depth);
    const result: T[] = [];
    if (this.#take(']')) return result;
    do result.push(this.#value(depth));
    while (this.#take(','));
    if (!this.#take(']')) throw this.#error("',' or ']'");
    return result;
  }

  #enter(depth: number): void {
    if (depth > this.#maxDepth) throw this.#fault(`nested deeper than ${this.#maxDepth}`);
    this.#at += 1;
  }

  #string(): string {
    this.#at += 1;
    let result = this.#run(PLAIN_STRING);
    let escaped = false;
    for (;;) {
      const next = this.#text[this.#at];
      if (next === '"') break;
      if (next !== '\\') throw next === undefined ? this.#error("'\"'") : this.#fault('a raw control character in a string; write an escape');
      result += this.#escape();
      escaped = true;
      result += this.#run(PLAIN_STRING);
    }
    this.#at += 1;
    if (escaped && hasLoneSurrogate(result)) throw this.#fault('an unpaired surrogate in a string');
    return result;
  }

  #escape(): string {
    const letter = this.#text[this.#at + 1];
    if (letter === 'u') {
      const digits = this.#text.slice(this.#at + 2, this.#at + 6);
      if (!/^[0-9a-fA-F]{4}$/.test(digits)) throw this.#fault('\\u needs four hexadecimal digits');
      this.#at += 6;
      return String.fromCharCode(Number.parseInt(digits, 16));
    }
    const plain = letter === undefined ? undefined : ESCAPES.get(letter);
    if (plain === undefined) throw this.#fault('an escape that JSON does not know');
    this.#at += 2;
    return plain;
  }

  #word<W>(word: string, value: W): W {
    if (!this.#text.startsWith(word, this.#at)) throw this.#error('a value');
    this.#at += word.length;
    return value;
  }

  #readNumber(): T {
    const from = this.#at;
    const text = this.#run(NUMBER);
    if (text === '') throw this.#error('a value');
    if (/[0-9.eE+-]/.test(this.#text[this.#at] ?? '')) throw this.#fault('a number that JSON does not allow');
    const value = text.length > MAX_LITERAL_LENGTH ? `a number of ${text.length} characters` : this.#number(text);
    if (typeof value !== 'string') return value;
    this.#at = from;
    throw this.#fault(value);
  }

  #run(pattern: RegExp): string {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0] ?? '';
    this.#at += found.length;
    return found;
  }

  #space(): void {
    for (;;) {
      const code = this.#text.charCodeAt(this.#at);
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return;
      this.#at += 1;
    }
  }

  #take(character: string): boolean {
    this.#space();
    if (this.#text[this.#at] !== character) return false;
    this.#at += 1;
    return true;
  }

  #error(expected: string): ProofrunError {
    const point = this.#text.codePointAt(this.#at);
    const found =
      point === undefined
        ? 'the end'
        : point < 0x20 || point > 0x7e
          ? `U+${point.toString(16).toUpperCase().padStart(4, '0')}`
          : `'${String.fromCodePoint(point)}'`;
    return this.#fault(`expected ${expected}, found ${found}`);
  }

  #fault(fact: string): ProofrunError {
    const before = this.#text.slice(0, this.#at);
    const line = before.split('\n').length;
    const column = this.#at - before.lastIndexOf('\n');
    return refusal({ ...this.#options, source: `${this.#options.source ?? 'JSON'}:${line}:${column}` }, fact);
  }
}

const ESCAPES = new Map([
  ['"', '"'],
  ['\\', '\\'],
  ['/', '/'],
  ['b', '\b'],
  ['f', '\f'],
  ['n', '\n'],
  ['r', '\r'],
  ['t', '\t'],
]);
