import { createHash } from 'node:crypto';
import { ProofrunError } from './errors.ts';
import { hasLoneSurrogate, JSON_MAX_DEPTH, NumberLiteral } from './strict-json.ts';

/**
 * One text for one value: no spaces, keys sorted by UTF-16 code unit, strings and numbers as ECMAScript writes them (the form of RFC 8785),
 * NumberLiterals verbatim. Throws ERR_JSON, naming the place, for what does not encode without loss: NaN, infinities, integers
 * beyond 2^53 - 1, unpaired surrogates, undefined, functions, instances of classes, sparse lists, nesting over 256 (which includes
 * cycles). The golden hashes in test/unit/json-canonical.test.ts pin it.
 */
export function canonicalJson(value: unknown): string {
  const text = quickly(value);
  // An escape of a surrogate may be one without its other half, which must not encode.
  return text === undefined || text.includes('\\ud') ? write(value, []) : text;
}

/** Lower-case hex of SHA-256 over UTF-8 text or bytes. */
export function sha256Hex(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex');
}

/** SHA-256 of the canonical text. */
export function canonicalSha256(value: unknown): string {
  return sha256Hex(canonicalJson(value));
}

/** Thrown by `sortedCopy` for a value that takes a closer look: it can't be written, or not by JSON.stringify. */
const CLOSER_LOOK = new Error('a value that takes a closer look');

/**
 * The engine's own writer over a copy with sorted keys: a tenth of the time of `write`, which matters where code runs once and cold. Undefined: `write` has to say what
 * becomes of the value.
 */
function quickly(value: unknown): string | undefined {
  try {
    return JSON.stringify(sortedCopy(value, 0));
  } catch (error) {
    if (error === CLOSER_LOOK) return undefined;
    throw error;
  }
}

function sortedCopy(value: unknown, depth: number): unknown {
  if (typeof value === 'string' || value === null || typeof value === 'boolean') return value;
  if (typeof value === 'number') {
    if (Math.abs(value) <= Number.MAX_SAFE_INTEGER) return value;
    throw CLOSER_LOOK;
  }
  if (typeof value !== 'object' || depth >= JSON_MAX_DEPTH) throw CLOSER_LOOK;
  if (Array.isArray(value)) {
    const items: readonly unknown[] = value;
    const copy: unknown[] = [];
    for (const item of items) copy.push(sortedCopy(item, depth + 1));
    return copy;
  }
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) throw CLOSER_LOOK;
  const copy: Record<string, unknown> = {};
  const keys = Object.keys(value).sort();
  for (const key of keys) {
    // An object has its own order for keys that are indexes, and a place of its own for this one. Single digits come first in both orders, where
    // nothing sorts before them.
    if (key === '__proto__' || (startsWithDigit(key) && (key.length > 1 || (keys[0] ?? '') < '0'))) throw CLOSER_LOOK;
    copy[key] = sortedCopy((value as Readonly<Record<string, unknown>>)[key], depth + 1);
  }
  return copy;
}

function startsWithDigit(key: string): boolean {
  const code = key.charCodeAt(0);
  return code >= 0x30 && code <= 0x39;
}

/** Steps to the value that is written now: member names and list indexes. Text is made of it only for an error. */
type Trail = (string | number)[];

/** A string that JSON writes as it is. */
const PLAIN = /^[ !#-[\]-~]*$/;

function write(value: unknown, trail: Trail): string {
  if (typeof value === 'string') return writeString(value, trail);
  if (typeof value === 'number') return writeNumber(value, trail);
  if (value === null || value === true || value === false) return String(value);
  if (typeof value !== 'object') throw unencodable(trail, `a value of type ${typeof value}`);
  if (value instanceof NumberLiteral) return value.text;
  if (trail.length >= JSON_MAX_DEPTH) throw unencodable(trail, `nested deeper than ${JSON_MAX_DEPTH}, or a cycle`);
  if (Array.isArray(value)) return writeList(value, trail);
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) throw unencodable(trail, 'an instance of a class');
  let text = '{';
  for (const key of Object.keys(value).sort()) {
    if (text.length > 1) text += ',';
    text += `${writeString(key, trail)}:`;
    trail.push(key);
    text += write((value as Readonly<Record<string, unknown>>)[key], trail);
    trail.pop();
  }
  return `${text}}`;
}

/** By index: the holes of a sparse list are undefined, which doesn't encode. */
function writeList(items: readonly unknown[], trail: Trail): string {
  let text = '[';
  for (let index = 0; index < items.length; index += 1) {
    if (index > 0) text += ',';
    trail.push(index);
    text += write(items[index], trail);
    trail.pop();
  }
  return `${text}]`;
}

function writeString(text: string, trail: Trail): string {
  if (PLAIN.test(text)) return `"${text}"`;
  if (hasLoneSurrogate(text)) throw unencodable(trail, 'an unpaired surrogate');
  return JSON.stringify(text);
}

function writeNumber(value: number, trail: Trail): string {
  if (!Number.isFinite(value)) throw unencodable(trail, `the number ${value}`);
  if (Math.abs(value) > Number.MAX_SAFE_INTEGER) throw unencodable(trail, `the number ${value}, beyond 2^53 - 1`);
  return JSON.stringify(value);
}

function unencodable(trail: Trail, fact: string): ProofrunError {
  const path = trail.map((step) => (typeof step === 'number' ? `[${step}]` : `.${step}`)).join('');
  return new ProofrunError('ERR_JSON', { message: `$${path}: ${fact} does not encode as JSON` });
}
