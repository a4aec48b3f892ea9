import { describe, expect, it } from 'vitest';
import { toCamel, toSnake } from '../../src/core/case.ts';
import { parseStrictJson } from '../../src/core/strict-json.ts';

describe('key case', () => {
  const value = {
    version: 1,
    stagedSha256: 'x',
    bytesOut: null,
    nested: [{ afterMs: 1, aBC: true }],
    receipts: [{ readFrom: '/proc/1/status', value: { CapEff: '0', some_key: 1, 'odd key': [{ MixedCase: 1 }] } }],
    expect: { kind: 'differs', from: { CamelCase: 1 } },
    dimensions: { file_read: { readFrom: 'a' }, network: { readFrom: 'b' } },
  };

  it('renames our keys, and leaves data alone', () => {
    expect(toSnake(value)).toEqual({
      version: 1,
      staged_sha256: 'x',
      bytes_out: null,
      nested: [{ after_ms: 1, a_b_c: true }],
      receipts: [{ read_from: '/proc/1/status', value: { CapEff: '0', some_key: 1, 'odd key': [{ MixedCase: 1 }] } }],
      expect: { kind: 'differs', from: { CamelCase: 1 } },
      dimensions: { file_read: { read_from: 'a' }, network: { read_from: 'b' } },
    });
  });

  it('comes back as it was', () => {
    expect(toCamel(toSnake(value))).toEqual(value);
  });

  it('leaves undefined out and keeps null', () => {
    expect(toSnake({ a: undefined, b: null })).toEqual({ b: null });
  });

  it.each([
    ['a snake key on the way out', () => toSnake({ file_read: 1 })],
    ['a camel key on the way in', () => toCamel({ fileRead: 1 })],
    ['an odd key', () => toSnake({ 'a b': 1 })],
    ['__proto__', () => toCamel(parseStrictJson('{"__proto__":1}'))],
    ['a function', () => toSnake({ a: () => 1 })],
    ['an instance', () => toSnake({ a: new Date(0) })],
    ['undefined in a list', () => toSnake([undefined])],
  ])('refuses %s', (_reason, act) => {
    expect(act).toThrow(/^\$/);
  });

  it('carries __proto__ as data', () => {
    expect(JSON.stringify(toSnake({ value: parseStrictJson('{"__proto__":1}') }))).toBe('{"value":{"__proto__":1}}');
  });
});
