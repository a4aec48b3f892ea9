import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { canonicalJson, canonicalSha256 } from '../../src/core/canonical-json.ts';
import { parseLiteralJson, parseStrictJson } from '../../src/core/strict-json.ts';
import { MORE_ACCEPTED, MORE_OPEN, MORE_REFUSED } from '../support/json-corpus.ts';

const bytes = (...list: readonly number[]): Uint8Array => Uint8Array.from(list);
const utf8 = (text: string): Uint8Array => Buffer.from(text, 'utf8');
const around = (before: string, middle: Uint8Array, after: string): Uint8Array => Buffer.concat([utf8(before), middle, utf8(after)]);

/** What every parser of JSON must take (RFC 8259), by the kinds of case that parsing suites have; written anew. */
const ACCEPTED: readonly (readonly [string, string])[] = [
  ['an empty list', '[]'],
  ['a list of lists', '[[]   ]'],
  ['an empty text in a list', '[""]'],
  ['a list that ends with a newline', '["a"]'],
  ['false', '[false]'],
  ['null and others', '[null, 1, "1", {}]'],
  ['a space before', ' [1]'],
  ['a space after', '[2] '],
  ['several nulls', '[1,null,null,null,2]'],
  ['a number with an exponent', '[123e12]'],
  ['0e+1', '[0e+1]'],
  ['0e1', '[0e1]'],
  ['a space after a number', '[ 4]'],
  ['a double near zero', '[-0.000000000000000000000000000000000000000000000000000000000000000000000000000001]'],
  ['an integer with an exponent', '[20e1]'],
  ['minus zero', '[-0]'],
  ['a negative integer', '[-123]'],
  ['minus one', '[-1]'],
  ['a real with a capital E', '[1E15]'],
  ['a real with E-2', '[1E-2]'],
  ['a real with E+2', '[1E+2]'],
  ['a real with a fraction and an exponent', '[123.456e12]'],
  ['a real', '[123.456789]'],
  ['an object', '{"a":"b"}'],
  ['an empty object', '{}'],
  ['an empty key', '{"":0}'],
  ['an escaped NUL in a key', '{"x\\u0000y": 42}'],
  ['two keys', '{"a":"b", "c":"d"}'],
  ['an extreme range of numbers', '{ "min": -1.0e+15, "max": 1.0e+15 }'],
  ['newlines between', '{\n"a": "b"\n}'],
  ['escapes of one, two, three bytes', '["\\u0060\\u012a\\u12AB"]'],
  ['a pair of surrogates', '["\\uD801\\udc37"]'],
  ['two pairs', '["\\ud83d\\ude39\\ud83d\\udc8d"]'],
  ['all escapes', '["\\"\\\\\\/\\b\\f\\n\\r\\t"]'],
  ['a backslash and a u', '["\\\\u0000"]'],
  ['a double escape', '["\\\\a"]'],
  ['an escaped control', '["\\u0012"]'],
  ['an escaped noncharacter', '["\\uFFFF"]'],
  ['a comment in a text', '["a/*b*/c/*d//e"]'],
  ['DEL in a text', '["a\u007fa"]'],
  ['U+2028 and U+2029', '["\u2028\u2029"]'],
  ['characters beyond the first plane', '["\u{1d11e}"]'],
  ['a noncharacter of the first plane', '["\uffff"]'],
  ['a text alone', '"\u20ac"'],
  ['true alone', 'true'],
  ['null alone', 'null'],
  ['a negative real alone', '-0.1'],
  ['an empty text alone', '""'],
  ['tabs and carriage returns', '[\t\r\n]'],
  ['256 lists', '['.repeat(256) + ']'.repeat(256)],
];

/** What no parser may take. */
const REFUSED: readonly (readonly [string, string | Uint8Array])[] = [
  ['nothing', ''],
  ['a space alone', ' '],
  ['no comma', '[1 true]'],
  ['a colon for a comma', '["": 1]'],
  ['a comma after the end', '[""],'],
  ['a comma alone', '[,]'],
  ['two commas', '[1,,2]'],
  ['a comma at the start', '[,1]'],
  ['a comma at the end', '[1,]'],
  ['two closings', '["x"]]'],
  ['a list that is not closed', '["a"'],
  ['a list that is not closed, with a comma', '[1,'],
  ['an inner list that is not closed', '[3[4]]'],
  ['a star in it', '[*]'],
  ['a vertical tab', '["\va"\\f]'],
  ['fals', '[fals]'],
  ['nul', '[nul]'],
  ['tru', '[tru]'],
  ['True', '[True]'],
  ['++', '[++1234]'],
  ['+1', '[+1]'],
  ['-01', '[-01]'],
  ['-1.0.', '[-1.0.]'],
  ['-2.', '[-2.]'],
  ['-NaN', '[-NaN]'],
  ['.-1', '[.-1]'],
  ['.2e-3', '[.2e-3]'],
  ['0.1.2', '[0.1.2]'],
  ['0.3e+', '[0.3e+]'],
  ['0.e1', '[0.e1]'],
  ['0E', '[0E]'],
  ['012', '[012]'],
  ['1 000', '[1 000.0]'],
  ['1.0e-', '[1.0e-]'],
  ['2.e3', '[2.e3]'],
  ['1eE2', '[1eE2]'],
  ['0x1', '[0x1]'],
  ['Infinity', '[Infinity]'],
  ['NaN', '[NaN]'],
  ['a full-width digit', '[\uff11]'],
  ['1+2', '[1+2]'],
  ['a letter after a number', '[1a]'],
  ['a minus alone', '[-]'],
  ['a minus before a letter', '[-foo]'],
  ['bad key', '{[: "x"}'],
  ['a comma for a colon', '{"x", null}'],
  ['two colons', '{"x"::"b"}'],
  ['a key that is no text', '{1:1}'],
  ['a key without quotes', '{a: "b"}'],
  ['single quotes', "{'a':0}"],
  ['a comma at the end of an object', '{"id":0,}'],
  ['commas at the end of an object', '{"id":0,,,,,}'],
  ['a comment after', '{"a":"b"}/**/'],
  ['a hash comment', '{"a":"b"}#'],
  ['no value', '{"a":'],
  ['no colon', '{"a" "b"}'],
  ['an open text', '["a'],
  ['a bad escape', '["\\a"]'],
  ['\\x', '["\\x00"]'],
  ['an escaped emoji', '["\\\u{1f300}"]'],
  ['an escape that is not whole', '["\\'],
  ['\\u with three digits', '["\\u00A"]'],
  ['\\u with a letter that is none', '["\\uqqqq"]'],
  ['half a surrogate escape', '["\\uD834\\uDd"]'],
  ['a raw newline', '["new\nline"]'],
  ['a raw tab', '["\t"]'],
  ['a raw NUL', '["a\u0000a"]'],
  ['text without quotes', '[\\n]'],
  ['two values', '[1][2]'],
  ['a word alone', 'abc'],
  ['a bracket alone', '['],
  ['an angle bracket', '<.>'],
  ['a list and an object', '[1}'],
  ['an object and a list', '{"a":1]'],
  ['a form feed between', '[\f]'],
  ['a no-break space between', '[\u00a0]'],
  ['a word joiner', '[\u2060]'],
  ['100,000 open lists', '['.repeat(100_000)],
  ['50,000 open objects in lists', '[{"":'.repeat(50_000)],
  ['a byte order mark', bytes(0xef, 0xbb, 0xbf, 0x7b, 0x7d)],
  ['a byte order mark alone', bytes(0xef, 0xbb, 0xbf)],
  ['UTF-16 little-endian', bytes(0xff, 0xfe, 0x5b, 0x00, 0x5d, 0x00)],
  ['UTF-16 without a mark', bytes(0x00, 0x5b, 0x00, 0x22, 0x00, 0x5d)],
  ['a byte that is not UTF-8', around('["', bytes(0xff), '"]')],
  ['a sequence that is cut off', around('["', bytes(0xe0, 0xff), '"]')],
  ['a lone continuation', around('["', bytes(0x81), '"]')],
  ['an overlong slash', around('["', bytes(0xc0, 0xaf), '"]')],
  ['an overlong NUL', around('["', bytes(0xfc, 0x80, 0x80, 0x80, 0x80, 0x80), '"]')],
  ['a surrogate in UTF-8', around('["', bytes(0xed, 0xa0, 0x80), '"]')],
  ['beyond U+10FFFF', around('["', bytes(0xf4, 0xbf, 0xbf, 0xbf), '"]')],
  ['a bad byte between', around('[', bytes(0xe5), ']')],
];

/** What the standard leaves open: this parser takes none of it. */
const OPEN: readonly (readonly [string, string])[] = [
  ['a huge exponent', '[0.4e00669999999999999999999999999999999999999999999999999999999999999999999]'],
  ['an exponent beyond a double', '[1.5e+9999]'],
  ['a double that becomes 0', '[123.456e-789]'],
  ['a huge negative integer', '[-123123123123123123123123123123]'],
  ['a number with an exponent over 2^53', '[123e15]'],
  ['an integer over 2^53', '[9007199254740993]'],
  ['a lone high surrogate', '["\\uDADA"]'],
  ['a lone low surrogate', '["\\uDd1e"]'],
  ['surrogates the wrong way round', '["\\uDd1e\\uD834"]'],
  ['a high surrogate and a letter', '["\\uD800a"]'],
  ['a repeated key', '{"a":"b","a":"c"}'],
  ['a repeated key with the same value', '{"a":"b","a":"b"}'],
  ['a key repeated by an escape', '{"a":1,"\\u0061":2}'],
  ['257 lists', '['.repeat(257) + ']'.repeat(257)],
];

const nameOf = (text: string | Uint8Array): string => JSON.stringify(typeof text === 'string' ? text.slice(0, 60) : Buffer.from(text).toString('latin1'));
const named = <T extends string | Uint8Array>(list: readonly T[]): readonly (readonly [string, T])[] => list.map((text) => [nameOf(text), text] as const);

describe('the parsing corpus', () => {
  test.each([...ACCEPTED, ...named(MORE_ACCEPTED)])('takes %s', (_reason, text) => {
    expect(parseStrictJson(text)).toEqual(JSON.parse(text));
    expect(parseStrictJson(utf8(text))).toEqual(JSON.parse(text));
    expect(canonicalJson(parseLiteralJson(canonicalJson(parseLiteralJson(text))))).toBe(canonicalJson(parseLiteralJson(text)));
  });

  test.each([...REFUSED, ...named(MORE_REFUSED)])('refuses %s', (_reason, text) => {
    expect(() => parseStrictJson(text)).toThrow(expect.objectContaining({ code: 'ERR_JSON' }));
    expect(() => parseLiteralJson(text)).toThrow(expect.objectContaining({ code: 'ERR_JSON' }));
  });

  test.each([...OPEN, ...named(MORE_OPEN)])('refuses what is left open: %s', (_reason, text) => {
    expect(() => parseStrictJson(text)).toThrow(expect.objectContaining({ code: 'ERR_JSON' }));
  });
});

describe('fuzzing', () => {
  test('any bytes: a value that JSON.parse gives too, or ERR_JSON', () => {
    fc.assert(
      fc.property(fc.oneof(fc.uint8Array({ maxLength: 60 }), fc.json().map(utf8), fc.string().map(utf8)), (input) => {
        let value: unknown;
        try {
          value = parseStrictJson(input);
        } catch (error) {
          expect(error).toMatchObject({ code: 'ERR_JSON' });
          return;
        }
        expect(JSON.parse(Buffer.from(input).toString('utf8'))).toEqual(value);
      }),
      { numRuns: 3000 },
    );
  });

  test('one byte changed in a whole text: refused, or another value with another digest, or the same value', () => {
    fc.assert(
      fc.property(fc.json(), fc.nat(), fc.nat(255), (text, at, byte) => {
        const changed = Buffer.from(text);
        changed[at % changed.length] = byte;
        try {
          const value = parseStrictJson(changed);
          expect(canonicalJson(value)).toBe(canonicalJson(JSON.parse(changed.toString('utf8'))));
        } catch (error) {
          expect(error).toMatchObject({ code: 'ERR_JSON' });
        }
      }),
      { numRuns: 2000 },
    );
  });
});

describe('golden vectors of the canonical form', () => {
  test.each([
    ['{}', '44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'],
    ['{"a":1}', '015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862'],
    ['{"text":"a"}', '6193c97585a0f731ce7b500bb69d2476816afb14c8d95ac8e6e865f680e9e438'],
  ])('%s', (text, sha256) => {
    expect([canonicalJson(parseStrictJson(text)), canonicalSha256(parseStrictJson(text))]).toEqual([text, sha256]);
  });
});
