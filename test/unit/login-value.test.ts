import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { judgeLogin, laterLogin, LOGIN_BYTES } from '../../src/runner/login-value.ts';

const VALUES = ['tokens.access', 'tokens.refresh', 'expires', '*.oauth'];
const OLD = { tokens: { access: 'a', refresh: 'r', account: 'me' }, expires: 1, key: null, list: ['x'] };
const bytes = (value: unknown): Buffer => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));
const judge = (next: unknown): string => {
  const judged = judgeLogin(bytes(OLD), bytes(next), { values: VALUES });
  return judged.kind === 'refreshed' ? 'refreshed' : judged.reason;
};

describe('a login file that a job left', () => {
  it.each<readonly [string, unknown, string | RegExp]>([
    ['the named values may change', { ...OLD, tokens: { ...OLD.tokens, access: 'b', refresh: 's' }, expires: 2 }, 'refreshed'],
    [
      'order and spaces are nothing',
      JSON.stringify({ list: ['x'], key: null, expires: 9, tokens: { account: 'me', refresh: 's', access: 'b' } }, null, 4),
      'refreshed',
    ],
    ['a named value may become null or a list of texts', { ...OLD, tokens: { ...OLD.tokens, access: null, refresh: ['s'] } }, 'refreshed'],
    ['a named value may be new where its parent was', { ...OLD, tokens: { ...OLD.tokens, oauth: 'x' } }, 'refreshed'],
    ['a key that is gone', { ...OLD, tokens: { access: 'b', refresh: 's' } }, 'it has lost "tokens.account"'],
    ['a named key that is gone', { ...OLD, tokens: { access: 'b', account: 'me' } }, 'it has lost "tokens.refresh"'],
    ['another account', { ...OLD, tokens: { ...OLD.tokens, account: 'you' } }, 'it has another "tokens.account"'],
    ['a new key', { ...OLD, helper: 'sh -c evil' }, 'it has a new "helper"'],
    ['a new mapping', { ...OLD, evil: { oauth: 'x' } }, 'it has a new "evil"'],
    ['a mapping for a text', { ...OLD, tokens: { ...OLD.tokens, access: { command: 'x' } } }, 'it has another "tokens.access"'],
    [
      'a key of the prototype',
      '{"tokens":{"access":"a","refresh":"r","account":"me"},"expires":1,"key":null,"list":["x"],"__proto__":{"a":1}}',
      'it has a new "__proto__"',
    ],
    ['a list that grew', { ...OLD, list: ['x', 'y'] }, 'it has another "list"'],
    ['a line break in a token', { ...OLD, tokens: { ...OLD.tokens, access: 'a\nb' } }, 'it has another "tokens.access"'],
    ['a list', [OLD], /not a JSON object/],
    ['nothing', '', /not a JSON object/],
    ['a repeated key', '{"expires":1,"expires":2}', /not a JSON object/],
    ['something behind it', `${JSON.stringify(OLD)}{}`, /not a JSON object/],
    ['deep nesting', '['.repeat(2000), /not a JSON object/],
  ])('%s', (_what, next, expected) => {
    if (typeof expected === 'string') expect(judge(next)).toBe(expected);
    else expect(judge(next)).toMatch(expected);
  });

  it('reasons never hold a value', () => {
    expect(judge({ ...OLD, tokens: { ...OLD.tokens, account: 'secret-of-mine' } })).not.toContain('secret');
  });

  test('it judges any bytes, and what it lets pass differs from what was there only where it may', () => {
    const json = fc.letrec((tie) => ({
      value: fc.oneof({ depthSize: 'small' }, fc.constantFrom('a', 'b', null, 1, true), fc.array(fc.constant('x'), { maxLength: 2 }), tie('object')),
      object: fc.dictionary(fc.constantFrom('tokens', 'access', 'refresh', 'expires', 'other', 'oauth'), tie('value'), { maxKeys: 4 }),
    })).object;
    fc.assert(
      fc.property(json, json, (old, next) => {
        const judged = judgeLogin(bytes(old), bytes(next), { values: VALUES });
        if (judged.kind === 'refused') return;
        const strip = (value: unknown, at: readonly string[]): unknown => {
          const path = at.join('.');
          if (VALUES.includes(path) || (at.length === 2 && at[1] === 'oauth')) return 'named';
          if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
          return Object.fromEntries(
            Object.entries(value)
              .filter(([key]) => !(VALUES.includes([...at, key].join('.')) || (at.length === 1 && key === 'oauth')))
              .map(([key, one]) => [key, strip(one, [...at, key])] as const)
              .sort(([a], [b]) => (a < b ? -1 : 1)),
          );
        };
        expect(strip(next, [])).toEqual(strip(old, []));
      }),
    );
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (any) => {
        expect(judgeLogin(bytes(OLD), any, { values: VALUES }).kind).toBe('refused');
      }),
    );
    expect(judgeLogin(bytes(OLD), Buffer.alloc(LOGIN_BYTES + 1, 0x20), { values: VALUES }).kind).toBe('refused');
  });

  it('the later of two is known by its number or date, and otherwise by nothing', () => {
    const shape = { values: [], newest: 'a.when' };
    const at = (when: unknown): Buffer => bytes({ a: { when } });
    expect(laterLogin(at(1), at(2), shape)).toBe('b');
    expect(laterLogin(at('2026-12-02T00:00:00Z'), at('2026-12-01T00:00:00Z'), shape)).toBe('a');
    for (const [a, b] of [
      [at(1), at(1)],
      [at('soon'), at(2)],
      [at(1), bytes('{')],
      [at(1), bytes({})],
    ] as const) {
      expect(laterLogin(a, b, shape)).toBeUndefined();
    }
    expect(laterLogin(at(1), at(2), { values: [] })).toBeUndefined();
  });
});
