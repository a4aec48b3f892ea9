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
  return write(value, '$', 0);
}

/** Lower-case hex of SHA-256 over UTF-8 text or bytes. */
export function sha256Hex(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex');
}

/** SHA-256 of the canonical text. */
export function canonicalSha256(value: unknown): string {
  return sha256Hex(canonicalJson(value));
}

function write(value: unknown, path: string, depth: number): string {
  if (value === null || value === true || value === false) return String(value);
  if (typeof value === 'string') return writeString(value, path);
  if (typeof value === 'number') return writeNumber(value, path);
  if (typeof value !== 'object') throw unencodable(path, `a value of type ${typeof value}`);
  if (value instanceof NumberLiteral) return value.text;
  if (depth >= JSON_MAX_DEPTH) throw unencodable(path, `nested deeper than ${JSON_MAX_DEPTH}, or a cycle`);
  if (Array.isArray(value)) {
    const items: readonly unknown[] = value;
    // Not map(): it would skip the holes of a sparse list.
    return `[${Array.from(items, (item, index) => write(item, `${path}[${index}]`, depth + 1)).join(',')}]`;
  }
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) throw unencodable(path, 'an instance of a class');
  const members: string[] = [];
  for (const key of Object.keys(value).sort()) {
    members.push(`${writeString(key, path)}:${write((value as Readonly<Record<string, unknown>>)[key], `${path}.${key}`, depth + 1)}`);
  }
  return `{${members.join(',')}}`;
}

function writeString(text: string, path: string): string {
  if (hasLoneSurrogate(text)) throw unencodable(path, 'an unpaired surrogate');
  return JSON.stringify(text);
}

function writeNumber(value: number, path: string): string {
  if (!Number.isFinite(value)) throw unencodable(path, `the number ${value}`);
  if (Math.abs(value) > Number.MAX_SAFE_INTEGER) throw unencodable(path, `the number ${value}, beyond 2^53 - 1`);
  return JSON.stringify(value);
}

function unencodable(path: string, fact: string): ProofrunError {
  return new ProofrunError('ERR_JSON', { message: `${path}: ${fact} does not encode as JSON` });
}
