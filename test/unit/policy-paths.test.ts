import picomatch from 'picomatch';
import { describe, expect, it } from 'vitest';
import type { Origin, PathRule } from '../../src/core/job.ts';
import { compileGlob } from '../../src/policy/glob.ts';
import { bySpecificity, compileMatcher, coversPath, intersectPathRules, isWithin, literalBase, parsePathRule } from '../../src/policy/path-rule.ts';

const ORIGIN: Origin = { layer: 'flag', name: '--deny-read' };
const BASE = { home: '/home/ada', directory: '/work[1]/shop' };

function rule(text: string): PathRule {
  const parsed = parsePathRule(text, BASE, ORIGIN);
  if (parsed.kind === 'error') throw new Error(parsed.message);
  return parsed.rule;
}

describe('path rules', () => {
  it.each([
    ['~', '/home/ada', true, 'the home'],
    ['~/.ssh', '/home/ada/.ssh', true, 'below the home'],
    ['~/.ssh/**', '/home/ada/.ssh', true, 'what lies below a directory is the directory'],
    ['~/.ssh/', '/home/ada/.ssh', true, 'a trailing slash'],
    ['dist', '/work[1]/shop/dist', true, 'relative to the directory, whatever that is called'],
    ['.', '/work[1]/shop', true, 'the directory'],
    ['**', '/work[1]/shop', true, 'everything below the directory'],
    ['../lib', '/work[1]/lib', true, 'a literal path may go up'],
    ['/a/./b/../c//d', '/a/c/d', true, 'normalised'],
    ['/', '/', true, 'the root'],
    [String.raw`/a/\[x\]`, '/a/[x]', true, 'a backslash takes the meaning away'],
    ['**/.env', String.raw`/work\[1\]/shop/**/.env`, false, 'a glob keeps the directory literal'],
    ['src/*.{ts,js}', String.raw`/work\[1\]/shop/src/*.{ts,js}`, false, 'alternatives'],
    ['./a/*', String.raw`/work\[1\]/shop/a/*`, false, 'a dot segment in a glob'],
    ['a]b', '/work[1]/shop/a]b', true, 'a closing bracket alone is literal'],
  ])('%s is %s (literal: %s): %s', (text, pattern, literal) => {
    expect(rule(text)).toMatchObject({ pattern, literal });
  });

  it.each([
    ['', 'nothing'],
    ['a\nb', 'a line break'],
    ['~root/.ssh', 'the home of somebody else'],
    ['../*.pem', '`..` in a glob'],
    ['a[b', 'an open bracket'],
    ['a{b', 'an open brace'],
    ['[z-a]', 'a reversed range'],
    ['{a,b}'.repeat(7), 'more than 64 alternatives'],
  ])('%j is refused: %s', (text) => {
    expect(parsePathRule(text, BASE, ORIGIN).kind).toBe('error');
  });

  it.each([
    ['~/.ssh', '/home/ada/.ssh', true, 'itself'],
    ['~/.ssh', '/home/ada/.ssh/id_rsa', true, 'below it'],
    ['~/.ssh', '/home/ada/.sshx', false, 'not a name that begins alike'],
    ['**/.env', '/work[1]/shop/.env', true, '`**` matches no directory'],
    ['**/.env', '/work[1]/shop/a/b/.env', true, '`**` matches several'],
    ['**/.env', '/work[1]/shop/.env/x', true, 'a directory covers what is below it'],
    ['**/.env', '/work[1]/shop/a.env', false, 'a whole name'],
    ['**/.env', '/work1/shop/.env', false, 'the brackets of the directory are no set'],
    ['**/.env', '/work[1]/shop/a\nb/.env', true, 'a line break in a name is a character'],
    ['**/.env', '/work[1]/shop/.env/a\nb', true, 'also below a match'],
    ['*.pem', '/work[1]/shop/.pem', true, 'a leading dot is a character'],
    ['*.pem', '/work[1]/shop/a/b.pem', false, '`*` stops at a slash'],
    ['a?c', '/work[1]/shop/a/c', false, '`?` is no slash'],
    ['a[!b]c', '/work[1]/shop/a/c', false, 'a negated set is no slash'],
    ['a[!b]c', '/work[1]/shop/axc', true, 'a negated set'],
    ['[a-c]x', '/work[1]/shop/bx', true, 'a range'],
    ['[]]x', '/work[1]/shop/]x', true, 'a bracket that comes first is a member'],
    ['{a,b/{c,d}}', '/work[1]/shop/b/d', true, 'alternatives nest and may hold slashes'],
    ['*', '/work[1]/shop/x/y', true, 'what a directory holds'],
    ['a(b)*', '/work[1]/shop/a(b)c', true, 'round brackets mean nothing'],
    ['a+*', '/work[1]/shop/aab', false, 'a plus means nothing'],
    ['x*', '/work[1]/shop/x\u{1F600}', true, 'any character'],
    ['x?', '/work[1]/shop/x\u{1F600}', true, 'one character, also outside the basic plane'],
  ])('%s matches %j: %s (%s)', (text, path, matches) => {
    expect(compileMatcher(rule(text))(path)).toBe(matches);
  });

  it.each([
    ['/a', '/a/b', true, 'a directory covers a path below'],
    ['/a', '/a/*.x', true, 'and a glob below'],
    ['/a/*', '/a/b', true, 'a glob covers a literal match'],
    ['/a/*.x', '/a/*.x', true, 'a glob covers itself'],
    ['/a/*.x', '/a/b*.x', false, 'what can not be decided is not covered'],
    ['/a/b', '/a', false, 'not the other way round'],
    ['/a/*', '/a/b/c*', true, 'a glob whose base is matched'],
  ])('%s covers %s: %s (%s)', (outer, inner, covers) => {
    expect(coversPath(rule(outer), rule(inner))).toBe(covers);
  });

  it('two rules meet in the one that the other covers', () => {
    expect(intersectPathRules(rule('/a'), rule('/a/b'))?.pattern).toBe('/a/b');
    expect(intersectPathRules(rule('/a/b'), rule('/a'))?.pattern).toBe('/a/b');
    expect(intersectPathRules(rule('/a'), rule('/b'))).toBeUndefined();
  });

  it('the base of a glob is the directory that every match lies in', () => {
    expect(literalBase(rule('/a/b*/c'))).toBe('/a');
    expect(literalBase(rule(String.raw`/a\*/b*`))).toBe('/a*');
    expect(literalBase(rule('/a/b'))).toBe('/a/b');
  });

  it('the deeper and the literal rule comes first', () => {
    const sorted = [rule('/a'), rule('/a/b/*'), rule('/a/b/c'), rule('/a/b')].sort(bySpecificity).map((one) => one.pattern);
    expect(sorted).toEqual(['/a/b/c', '/a/b', '/a/b/*', '/a']);
  });

  it('lies within', () => {
    expect(isWithin('/a/b', '/a')).toBe(true);
    expect(isWithin('/ab', '/a')).toBe(false);
    expect(isWithin('/a', '/')).toBe(true);
  });
});

describe('the glob compiler', () => {
  // An independent one, within the syntax that both know, for names without line breaks, and away from the root, where picomatch differs.
  it.each(['/a/**/b', '/a/**/x', '/a/*', '/a/*.pem', '/a/.env.*', '/a/{b,c}/d', '/a/[bc]d', '/a/?b', '/a/b*c*d'])('agrees with picomatch on %s', (pattern) => {
    const compiled = compileGlob(pattern);
    if (compiled.kind === 'error') throw new Error(compiled.message);
    const other = picomatch(pattern, { dot: true, nonegate: true, noextglob: true, posix: true });
    const names = ['a', 'b', 'c', 'bd', 'cd', 'xb', '.env.local', 'k.pem', '.pem', 'bxcxd', 'd', 'x'];
    const paths = names.flatMap((one) => [`/a/${one}`, `/${one}`, ...names.map((two) => `/a/${one}/${two}`), ...names.map((two) => `/x/y/${one}/${two}`)]);
    for (const path of paths) expect([path, compiled.regex.test(path)]).toEqual([path, other(path)]);
  });
});
