import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canonicalJson } from '../../src/core/canonical-json.ts';
import { camelKey, snakeKey, toCamel, toSnake } from '../../src/core/case.ts';
import { ProofrunError } from '../../src/core/errors.ts';
import type { JsonValue } from '../../src/core/json.ts';
import { parseLiteralJson, parseStrictJson } from '../../src/core/strict-json.ts';

const wellFormed = fc.string({ unit: 'binary', maxLength: 12 });
const number = fc
  .oneof(fc.maxSafeInteger(), fc.double({ noNaN: true, noDefaultInfinity: true, min: -1e9, max: 1e9 }))
  .map((value) => (value === 0 ? 0 : value));

function json(key: fc.Arbitrary<string>): fc.Arbitrary<JsonValue> {
  return fc.letrec<{ value: JsonValue }>((tie) => ({
    value: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      fc.constant(null),
      fc.boolean(),
      number,
      wellFormed,
      fc.array(tie('value'), { maxLength: 4 }),
      fc.dictionary(key, tie('value'), { maxKeys: 4 }),
    ),
  })).value;
}

describe('strict JSON', () => {
  it('reads what canonical JSON writes', () => {
    fc.assert(
      fc.property(json(wellFormed), (value) => {
        expect(parseStrictJson(Buffer.from(canonicalJson(value)))).toEqual(value);
      }),
    );
  });

  it('accepts no more than JSON.parse, and agrees with it', () => {
    const texts = fc.oneof(
      fc.string({ unit: fc.constantFrom(...Array.from('{}[]",:\\u01e-+.tfn \n')), maxLength: 20 }),
      fc.json(),
      json(wellFormed).map((value) => JSON.stringify(value, null, 1)),
    );
    fc.assert(
      fc.property(texts, (text) => {
        let ours: JsonValue;
        try {
          ours = parseStrictJson(text);
        } catch (error) {
          expect(error).toBeInstanceOf(ProofrunError);
          return;
        }
        expect(ours).toEqual(JSON.parse(text));
      }),
      { numRuns: 3000 },
    );
  });

  it('survives any bytes with a value or ERR_JSON', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
        try {
          parseStrictJson(bytes);
        } catch (error) {
          expect(error).toMatchObject({ code: 'ERR_JSON' });
        }
      }),
      { numRuns: 2000 },
    );
  });

  it('keeps every number literal', () => {
    const literal = fc.stringMatching(/^-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?$/);
    fc.assert(
      fc.property(literal, (text) => {
        expect(canonicalJson(parseLiteralJson(`[${text}]`))).toBe(`[${text}]`);
      }),
    );
  });
});

describe('canonical JSON', () => {
  it('does not depend on the order of keys', () => {
    fc.assert(
      fc.property(fc.dictionary(wellFormed, number), (object) => {
        const reversed = Object.fromEntries(Object.entries(object).reverse());
        expect(canonicalJson(reversed)).toBe(canonicalJson(object));
      }),
    );
  });

  it('is injective: equal text means equal value', () => {
    fc.assert(
      fc.property(json(wellFormed), json(wellFormed), (a, b) => {
        expect(canonicalJson(a) === canonicalJson(b)).toBe(isEqual(a, b));
      }),
    );
  });
});

function isEqual(a: JsonValue, b: JsonValue): boolean {
  try {
    expect(a).toEqual(b);
    return true;
  } catch {
    return false;
  }
}

describe('key case', () => {
  const camel = fc.stringMatching(/^[a-z][a-zA-Z0-9]{0,10}$/);

  it('round-trips every key', () => {
    fc.assert(
      fc.property(camel, (key) => {
        expect(camelKey(snakeKey(key))).toBe(key);
      }),
    );
    fc.assert(
      fc.property(fc.stringMatching(/^[a-z][a-z0-9]{0,4}(_[a-z][a-z0-9]{0,4}){0,3}$/), (key) => {
        expect(snakeKey(camelKey(key))).toBe(key);
      }),
    );
  });

  it('round-trips every value', () => {
    fc.assert(
      fc.property(json(camel), (value) => {
        expect(toCamel(toSnake(value))).toEqual(value);
      }),
    );
  });

  it('leaves everything under `value` alone', () => {
    fc.assert(
      fc.property(json(wellFormed), (value) => {
        expect(toSnake({ value })).toEqual({ value });
      }),
    );
  });
});
