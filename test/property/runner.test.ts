import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { compileGlob } from '../../src/policy/glob.ts';
import { walkPatterns } from '../../src/runner/walk-patterns.ts';

/** What the native walk finds: names without a slash against the last part, else the path beneath the root, in which `*` crosses slashes. */
function found(patterns: readonly string[], relative: string): boolean {
  return patterns.some((pattern) => fnmatch(pattern).test(pattern.includes('/') ? relative : (relative.split('/').at(-1) ?? '')));
}

/** fnmatch(3) without flags, of patterns that hold `*` and backslashes only. */
function fnmatch(pattern: string): RegExp {
  let source = '';
  for (let at = 0; at < pattern.length; at += 1) {
    const character = pattern.charAt(at);
    if (character === '*') source += '.*';
    else source += (character === '\\' ? pattern.charAt((at += 1)) : character).replaceAll(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
  }
  return new RegExp(`^${source}$`, 'su');
}

const name = fc
  .string({ unit: fc.constantFrom('a', 'b', '.', 'é', '[', ']', '*', '{'), minLength: 1, maxLength: 4 })
  .filter((text) => text !== '.' && text !== '..');
const path = fc.array(name, { minLength: 1, maxLength: 4 }).map((parts) => parts.join('/'));
const globPart = fc.oneof(
  name.map((text) => text.replaceAll(/[\\*?[\]{}]/g, '\\$&')),
  fc.constantFrom('*', '**', 'a*', '*b', '?', 'a?', '[ab]', '[!a]', '[]a]', '{a,b}', '{a,b*}.', '*.{a,{b,é}}', '{a/b,c}', '.*'),
);
const glob = fc.array(globPart, { minLength: 1, maxLength: 4 }).map((parts) => parts.join('/'));

describe('patterns of a walk', () => {
  test.each([
    ['/w/**/.env', '/w', ['.env']],
    ['/w/**/.env.*', '/w', ['.env.*']],
    ['/w/certs/*.pem', '/w', ['*.pem']],
    ['/w/secrets/*', '/w', ['secrets/*']],
    ['/w/secrets/**/*', '/w', ['secrets/*']],
    ['/w/**', '/w', ['*']],
    ['/other/*', '/w', []],
    ['/w/a\\*b', '/w', ['a\\*b']],
    ['/w/.\\*/*b/*', '/w', ['.\\*/*b/*']],
    ['/w/a\\**', '/w', ['a\\**']],
    ['/**/id_rsa', '/w', ['id_rsa']],
    ['/*/secrets/*', '/w', ['*']],
    ['/w/{a/b,c}.key', '/w', ['*']],
    ['/w/[!a]{b,c}?', '/w', ['*']],
  ])('%s beneath %s', (pattern, root, expected) => {
    expect(walkPatterns([{ pattern }], root)).toEqual(expected);
  });

  test('nothing that a glob matches beneath the root is missed', () => {
    fc.assert(
      fc.property(fc.array(glob, { minLength: 1, maxLength: 3 }), path, fc.constantFrom('/w', '/w/a', '/'), (globs, relative, root) => {
        const prefix = root === '/' ? '' : root;
        const patterns = globs.map((text) => ({ pattern: `${prefix}/${text}` }));
        const walked = walkPatterns(patterns, root);
        for (const { pattern } of patterns) {
          const compiled = compileGlob(pattern);
          if (compiled.kind !== 'ok' || !compiled.regex.test(`${prefix}/${relative}`)) continue;
          expect(found(walked, relative), `${pattern} matches ${relative}, ${JSON.stringify(walked)} does not`).toBe(true);
        }
      }),
      { numRuns: 3000 },
    );
  });

  test('a glob that begins above the root misses nothing either', () => {
    fc.assert(
      fc.property(glob, path, (text, relative) => {
        const compiled = compileGlob(`/${text}`);
        if (compiled.kind !== 'ok' || !compiled.regex.test(`/a/${relative}`)) return;
        expect(found(walkPatterns([{ pattern: `/${text}` }], '/a'), relative), `/${text} matches /a/${relative}`).toBe(true);
      }),
      { numRuns: 3000 },
    );
  });
});
