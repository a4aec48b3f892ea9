import { posix } from 'node:path';
import type { Origin, PathRule } from '../core/job.ts';
import { ProofrunError } from '../core/errors.ts';
import { compileGlob, hasGlob } from './glob.ts';

/** Where `~` and relative paths lead. Both absolute. */
export interface PathBase {
  readonly home: string;
  /** The job file's directory, or the workspace for profiles and policies, or the current directory for flags. */
  readonly directory: string;
}

export type PathRuleResult = { readonly kind: 'ok'; readonly rule: PathRule } | { readonly kind: 'error'; readonly message: string };

/**
 * Makes a rule absolute. `dir/**` and `dir/` are the directory `dir` itself, which covers what is below it, so both stay literal. A backslash takes the meaning
 * of a glob character away. Errors: `..` in a glob, a malformed glob, `~user`, NUL.
 */
export function parsePathRule(text: string, base: PathBase, origin: Origin): PathRuleResult {
  if (text === '' || /[\0\r\n]/.test(text)) return { kind: 'error', message: 'expected a path without line breaks' };
  if (/^~[^/]/.test(text)) return { kind: 'error', message: `${JSON.stringify(text)}: \`~user\` is not known here; write the path` };
  const covered = text === '**' ? '.' : text.replace(/(?:\/+\*\*)+\/*$/, '') || '/';
  if (!hasGlob(covered)) {
    const path = covered.replaceAll(/\\([*?[\]{}\\])/g, '$1');
    const absolute = path === '~' || path.startsWith('~/') ? base.home + path.slice(1) : posix.resolve(base.directory, path);
    return { kind: 'ok', rule: { pattern: posix.resolve('/', absolute), literal: true, origin } };
  }
  if (covered.split('/').includes('..')) {
    return { kind: 'error', message: `${JSON.stringify(text)}: \`..\` has no meaning in a glob; write the path that it leads to` };
  }
  const absolute = covered.startsWith('/')
    ? covered
    : covered.startsWith('~/')
      ? escapeGlob(base.home) + covered.slice(1)
      : `${escapeGlob(base.directory)}/${covered}`;
  const pattern = absolute
    .replaceAll(/\/\.(?=\/|$)/g, '')
    .replaceAll(/\/+/g, '/')
    .replace(/(?<=.)\/$/, '');
  const glob = compileGlob(pattern);
  if (glob.kind === 'error') return { kind: 'error', message: `${JSON.stringify(text)}: ${glob.message}` };
  return { kind: 'ok', rule: { pattern, literal: false, origin } };
}

/** A path as a glob that matches it alone. */
export function escapeGlob(path: string): string {
  return path === '/' ? '' : path.replaceAll(/[\\*?[\]{}]/g, '\\$&');
}

/** The longest directory that every match of a rule lies in; for a literal rule, the path itself. */
export function literalBase(rule: Pick<PathRule, 'pattern' | 'literal'>): string {
  if (rule.literal) return rule.pattern;
  const segments: string[] = [];
  for (const segment of rule.pattern.split('/').slice(1)) {
    if (hasGlob(segment)) break;
    segments.push(segment.replaceAll(/\\(.)/g, '$1'));
  }
  return `/${segments.join('/')}`;
}

/** True when `path` is `ancestor` or lies below it. Both absolute and normalised. */
export function isWithin(path: string, ancestor: string): boolean {
  return path === ancestor || ancestor === '/' || path.startsWith(`${ancestor}/`);
}

/** A test for absolute paths: true for what a rule names and for everything below it. */
export function compileMatcher(rule: Pick<PathRule, 'pattern' | 'literal'>): (path: string) => boolean {
  if (rule.literal) return (path) => isWithin(path, rule.pattern);
  const glob = compileGlob(rule.pattern, { descendants: true });
  if (glob.kind === 'error') throw new ProofrunError('ERR_INTERNAL', { message: `path rule ${JSON.stringify(rule.pattern)}: ${glob.message}` });
  const { regex } = glob;
  return (path) => regex.test(path);
}

/**
 * True when everything that `inner` names is certainly covered by `outer`. Globs are compared by their literal base, or by being equal; what can't be
 * decided so is not covered.
 */
export function coversPath(outer: Pick<PathRule, 'pattern' | 'literal'>, inner: Pick<PathRule, 'pattern' | 'literal'>): boolean {
  if (outer.literal) return isWithin(literalBase(inner), outer.pattern);
  if (inner.literal) return compileMatcher(outer)(inner.pattern);
  return outer.pattern === inner.pattern || compileMatcher(outer)(literalBase(inner));
}

/** The rule of which every path is in both, when one covers the other; its origin is that of `a`. */
export function intersectPathRules(a: PathRule, b: PathRule): PathRule | undefined {
  if (coversPath(b, a)) return a;
  return coversPath(a, b) ? { ...b, origin: a.origin } : undefined;
}

/** More specific rules first: the deeper literal base, then the literal one, then the longer text. */
export function bySpecificity(a: Pick<PathRule, 'pattern' | 'literal'>, b: Pick<PathRule, 'pattern' | 'literal'>): number {
  const depth = (rule: Pick<PathRule, 'pattern' | 'literal'>): number => literalBase(rule).split('/').length;
  return (
    depth(b) - depth(a) ||
    Number(b.literal) - Number(a.literal) ||
    b.pattern.length - a.pattern.length ||
    (a.pattern < b.pattern ? -1 : Number(a.pattern > b.pattern))
  );
}
