import { describe, expect, it } from 'vitest';
import { ProofrunError } from '../../src/core/errors.ts';
import { NumberLiteral, parseLiteralJson, parseStrictJson } from '../../src/core/strict-json.ts';

function refusal(input: string | Uint8Array, options = {}): string {
  try {
    parseStrictJson(input, options);
  } catch (error) {
    if (error instanceof ProofrunError && error.code === 'ERR_JSON') return error.message;
    throw error;
  }
  throw new Error(`accepted ${JSON.stringify(String(input).slice(0, 80))}`);
}

const bytes = (...values: number[]): Uint8Array => Uint8Array.from(values);
const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth);

describe('strict JSON', () => {
  it.each([
    ['null', null],
    ['true', true],
    [' \t\r\n false ', false],
    ['"a\\u00e9\\n\\/\\ud83d\\ude00"', 'aé\n/😀'],
    ['-12.5e-1', -1.25],
    ['-0', -0],
    ['0e400', 0],
    ['[1,[],{}]', [1, [], {}]],
    ['{"a":{"b":[null]},"":1}', { a: { b: [null] }, '': 1 }],
    ['9007199254740991', 9007199254740991],
  ])('reads %s', (text, value) => {
    expect(parseStrictJson(text)).toEqual(value);
    expect(parseStrictJson(Buffer.from(text))).toEqual(value);
  });

  it.each([
    ['a repeated key', '{"a":1,"b":2,"a":3}', /^JSON:1:14: key "a" is repeated$/],
    ['a key repeated through an escape', '{"a":1,"\\u0061":2}', /key "a" is repeated/],
    ['a repeated __proto__', '{"__proto__":1,"__proto__":2}', /key "__proto__" is repeated/],
    ['trailing data', '{} x', /expected the end of the text, found 'x'/],
    ['two documents', '1 2', /expected the end/],
    ['nothing', '', /expected a value, found the end/],
    ['a byte order mark', '\ufeff{}', /found U\+FEFF/],
    ['a comment', '{/**/}', /expected a key/],
    ['a trailing comma', '[1,]', /expected a value, found ']'/],
    ['a trailing comma in an object', '{"a":1,}', /expected a key/],
    ['single quotes', "{'a':1}", /expected a key/],
    ['a raw newline in a string', '"a\nb"', /raw control character/],
    ['a string without end', '"abc', /found the end/],
    ['an unknown escape', '"\\x41"', /escape that JSON does not know/],
    ['a short unicode escape', '"\\u12g4"', /four hexadecimal digits/],
    ['an unpaired high surrogate', '"\\ud83d"', /unpaired surrogate/],
    ['an unpaired low surrogate', '"\\ude00x"', /unpaired surrogate/],
    ['an unpaired surrogate in a key', '{"\\ud800":1}', /unpaired surrogate/],
    ['a raw unpaired surrogate', '"\ud800"', /unpaired surrogate/],
    ['NaN', 'NaN', /expected a value/],
    ['Infinity', '-Infinity', /expected a value/],
    ['a leading zero', '01', /number that JSON does not allow/],
    ['a leading plus', '+1', /expected a value/],
    ['a bare point', '1.', /number that JSON does not allow/],
    ['hexadecimal', '0x10', /expected the end/],
    ['overflow', '1e400', /too large/],
    ['underflow', '1e-400', /too small/],
    ['an integer that loses digits', '9007199254740993', /beyond 2\^53 - 1/],
    ['a large number with a fraction', '9007199254740993.5', /beyond 2\^53 - 1/],
    ['a large number by its exponent', '1e17', /beyond 2\^53 - 1/],
    ['a number of many digits', `0.${'1'.repeat(200)}`, /a number of 202 characters/],
    ['nesting over 256', nested(257), /nested deeper than 256/],
    ['nesting without end', '['.repeat(100_000), /nested deeper than 256/],
  ])('refuses %s', (_reason, text, message) => {
    expect(refusal(text)).toMatch(message);
  });

  it.each([
    ['a stray byte', bytes(0x22, 0xff, 0x22)],
    ['an overlong form', bytes(0x22, 0xc0, 0x80, 0x22)],
    ['an encoded surrogate', bytes(0x22, 0xed, 0xa0, 0x80, 0x22)],
    ['a cut character', bytes(0x22, 0xe2, 0x82, 0x22)],
    ['UTF-16', bytes(0xff, 0xfe, 0x31, 0x00)],
  ])('refuses bytes that are not UTF-8: %s', (_reason, input) => {
    expect(refusal(input)).toMatch(/not UTF-8/);
  });

  it('refuses a byte order mark in bytes as well', () => {
    expect(refusal(Buffer.from('\ufeff{}'))).toMatch(/found U\+FEFF/);
  });

  it('accepts exactly 256 levels', () => {
    expect(parseStrictJson(nested(256))).toHaveLength(1);
    expect(refusal('[[[]]]', { maxDepth: 2 })).toMatch(/deeper than 2/);
  });

  it('names source, line and column', () => {
    expect(refusal('{\n  "a": 1,\n  "b": tru\n}', { source: 'x.json' })).toBe("x.json:3:8: expected a value, found 't'");
  });

  it('bounds the length', () => {
    expect(refusal('"12345678"', { maxLength: 9 })).toMatch(/10 bytes of JSON, at most 9/);
  });

  it('keeps __proto__ a key', () => {
    const value = parseStrictJson('{"__proto__":{"polluted":1}}');
    expect(Object.keys(value ?? {})).toEqual(['__proto__']);
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  });

  it('keeps the form of numbers where asked', () => {
    const value = parseLiteralJson('[1.0, 1E400, 123456789012345678901234567890, -0]');
    expect(value).toEqual(['1.0', '1E400', '123456789012345678901234567890', '-0'].map((text) => new NumberLiteral(text)));
    expect(() => parseLiteralJson('01')).toThrow(/does not allow/);
    expect(() => parseLiteralJson('1'.repeat(129))).toThrow(/129 characters/);
  });
});
