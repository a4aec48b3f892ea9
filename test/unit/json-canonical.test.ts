import { describe, expect, it } from 'vitest';
import { canonicalJson, canonicalSha256, sha256Hex } from '../../src/core/canonical-json.ts';
import { parseLiteralJson } from '../../src/core/strict-json.ts';

describe('canonical JSON', () => {
  it.each([
    [
      'keys in the order of code units, not of code points or locales',
      { '\ufb33': 7, '\ud83d\ude00': 6, é: 4, b: 2, B: 1, a: 1, '10': 0, '9': 0 },
      '{"10":0,"9":0,"B":1,"a":1,"b":2,"é":4,"😀":6,"\ufb33":7}',
    ],
    ['numbers as ECMAScript writes them', [1, -1.5, 0.1, 1e-7, 1e15, 0, -0], '[1,-1.5,0.1,1e-7,1000000000000000,0,0]'],
    ['the shortest escapes', '\u0000\u001f\n"\\/\u007f\u2028é', '"\\u0000\\u001f\\n\\"\\\\/\u007f\u2028é"'],
    ['no space', { a: [true, null, { b: 'x' }] }, '{"a":[true,null,{"b":"x"}]}'],
    ['objects without a prototype', Object.assign(Object.create(null), { a: 1 }), '{"a":1}'],
    ['__proto__ as a key', JSON.parse('{"__proto__":1}'), '{"__proto__":1}'],
  ])('writes %s', (_reason, value, text) => {
    expect(canonicalJson(value)).toBe(text);
  });

  it('writes number literals as they came', () => {
    expect(canonicalJson(parseLiteralJson('{"b":1.00,"a":123456789012345678901}'))).toBe('{"a":123456789012345678901,"b":1.00}');
  });

  it.each([
    ['NaN', Number.NaN],
    ['Infinity', Number.POSITIVE_INFINITY],
    ['an unsafe integer', 2 ** 53],
    ['a huge number', 1e300],
    ['undefined', undefined],
    ['undefined in an object', { a: undefined }],
    ['a hole', Array(2)],
    ['bigint', 1n],
    ['a function', () => 0],
    ['a symbol', Symbol('x')],
    ['a date', new Date(0)],
    ['a map', new Map()],
    ['bytes', Buffer.from('x')],
    ['an unpaired surrogate', '\ud800'],
    ['an unpaired surrogate in a key', { '\udfff': 1 }],
  ])('refuses %s', (_reason, value) => {
    expect(() => canonicalJson({ deep: [value] })).toThrow(/^\$\.deep\[0\].*does not encode/);
  });

  it('refuses a cycle and too much nesting', () => {
    const cycle: unknown[] = [];
    cycle.push(cycle);
    expect(() => canonicalJson(cycle)).toThrow(/cycle/);
    let deep: unknown = 1;
    for (let level = 0; level < 257; level += 1) deep = [deep];
    expect(() => canonicalJson(deep)).toThrow(/deeper than 256/);
  });

  // These never change: hashes of stored bundles and event chains depend on them.
  it.each([
    [null, '74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b'],
    [{}, '44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'],
    [{ b: [1, 2.5, 'é😀'], a: { z: null, y: true } }, '73f6a820ce7376518b0f4d811702836f472ce3d4d4b41b2a8102f8086f687f21'],
  ])('golden hash of %j', (value, hash) => {
    expect(canonicalSha256(value)).toBe(hash);
  });

  it('hashes bytes and text alike', () => {
    expect(sha256Hex('é')).toBe(sha256Hex(Buffer.from('é')));
    expect(sha256Hex('')).toBe('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855');
  });
});
