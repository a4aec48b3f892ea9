/**
 * Globs over absolute paths. `*` any characters but `/`, `**` as a whole segment any number of segments, `?` one character but `/`, `[a-z]` and `[!a-z]` one character
 * of a set, `{a,b}` alternatives, `\` takes the meaning of the next character away. A leading dot is a character like any other. No character of a
 * name (line breaks included) is special in the matched path.
 */

const MAX_ALTERNATIVES = 64;

export type GlobResult = { readonly kind: 'ok'; readonly regex: RegExp } | { readonly kind: 'error'; readonly message: string };

/** True when a text holds a character that means something in a glob. */
export function hasGlob(text: string): boolean {
  return ['*', '?', '[', '{'].some((character) => findUnescaped(text, character, 0) >= 0);
}

/** A test for whole paths; with `descendants`, also for everything below a match. Errors: an unclosed `[` or `{`, a reversed range, more than 64 alternatives. */
export function compileGlob(pattern: string, options: { readonly descendants?: boolean } = {}): GlobResult {
  try {
    const alternatives = expandBraces(pattern).map(translate);
    return { kind: 'ok', regex: new RegExp(`^(?:${alternatives.join('|')})${options.descendants === true ? '(?:/.*)?' : ''}$`, 'su') };
  } catch (error) {
    if (error instanceof GlobError) return { kind: 'error', message: error.message };
    throw error;
  }
}

class GlobError extends Error {}

/** `a{b,c}d` as `abd` and `acd`; nested ones too. */
function expandBraces(pattern: string): readonly string[] {
  const open = findUnescaped(pattern, '{', 0);
  if (open < 0) return [pattern];
  let depth = 0;
  let start = open + 1;
  const parts: string[] = [];
  for (let at = open; at < pattern.length; at += 1) {
    const character = pattern.charAt(at);
    if (character === '\\') at += 1;
    else if (character === '{') depth += 1;
    else if (character === ',' && depth === 1) {
      parts.push(pattern.slice(start, at));
      start = at + 1;
    } else if (character === '}') {
      depth -= 1;
      if (depth > 0) continue;
      parts.push(pattern.slice(start, at));
      const before = pattern.slice(0, open);
      const after = pattern.slice(at + 1);
      const all = parts.flatMap((part) => expandBraces(before + part + after));
      if (all.length > MAX_ALTERNATIVES) throw new GlobError(`more than ${String(MAX_ALTERNATIVES)} alternatives`);
      return all;
    }
  }
  throw new GlobError('`{` without `}`');
}

function findUnescaped(text: string, wanted: string, from: number): number {
  for (let at = from; at < text.length; at += 1) {
    if (text.charAt(at) === '\\') at += 1;
    else if (text.charAt(at) === wanted) return at;
  }
  return -1;
}

function translate(pattern: string): string {
  const segments = pattern.split('/');
  let source = '';
  segments.forEach((segment, index) => {
    const last = index === segments.length - 1;
    if (segment === '**') {
      source += last ? '.*' : '(?:[^/]+/)*';
      return;
    }
    source += `${translateSegment(segment)}${last ? '' : '/'}`;
  });
  return source;
}

function translateSegment(segment: string): string {
  if (/^\*+$/.test(segment)) return '[^/]+';
  let source = '';
  for (let at = 0; at < segment.length; at += 1) {
    const character = codePointAt(segment, at);
    switch (character) {
      case '\\':
        at += 1;
        source += escapeRegex(codePointAt(segment, at));
        at += codePointAt(segment, at).length - 1;
        break;
      case '*':
        if (!source.endsWith('[^/]*')) source += '[^/]*';
        break;
      case '?':
        source += '[^/]';
        break;
      case '[': {
        const set = readSet(segment, at);
        source += set.source;
        at = set.end;
        break;
      }
      default:
        source += escapeRegex(character);
        at += character.length - 1;
    }
  }
  return source;
}

/** A set from `[` to its `]`; a `]` that comes first is a member. */
function readSet(segment: string, open: number): { readonly source: string; readonly end: number } {
  let at = open + 1;
  const negated = segment.charAt(at) === '!' || segment.charAt(at) === '^';
  if (negated) at += 1;
  const members: string[] = [];
  for (let first = true; ; first = false) {
    const character = codePointAt(segment, at);
    if (character === '') throw new GlobError('`[` without `]`');
    if (character === ']' && !first) break;
    const escaped = character === '\\' ? codePointAt(segment, at + 1) : character;
    at += (character === '\\' ? 1 : 0) + escaped.length;
    const to = segment.charAt(at) === '-' && segment.charAt(at + 1) !== ']' ? codePointAt(segment, at + 1) : '';
    if (to === '') {
      members.push(escapeInSet(escaped));
      continue;
    }
    if ((to.codePointAt(0) ?? 0) < (escaped.codePointAt(0) ?? 0)) throw new GlobError(`the range ${escaped}-${to} is reversed`);
    members.push(`${escapeInSet(escaped)}-${escapeInSet(to)}`);
    at += 1 + to.length;
  }
  return { source: `(?!/)[${negated ? '^' : ''}${members.join('')}]`, end: at };
}

/** The character at an index, whole also when it takes two units; '' at the end. */
function codePointAt(text: string, at: number): string {
  const point = text.codePointAt(at);
  return point === undefined ? '' : String.fromCodePoint(point);
}

function escapeRegex(character: string): string {
  return /^[\\^$.*+?()[\]{}|/]$/.test(character) ? `\\${character}` : character;
}

function escapeInSet(character: string): string {
  return /^[\\\]^-]$/.test(character) ? `\\${character}` : character;
}
