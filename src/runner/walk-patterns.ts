import type { PathRule } from '../core/job.ts';

/**
 * What a native walk of `root` has to look for, so that nothing a glob hides is missed: names (matched against the last part of a path), or
 * with a slash paths beneath the root in which `*` crosses slashes. A superset: everything that isn't a plain character becomes `*`, since
 * the walk counts bytes where a glob counts characters. The caller asks the globs again.
 */
export function walkPatterns(globs: readonly Pick<PathRule, 'pattern'>[], root: string): readonly string[] {
  return [...new Set(globs.flatMap((glob) => patternOf(glob.pattern, root)))];
}

/** Stands for `*` until the pattern is whole: an escaped `*` of a name is another thing. No name holds it. */
const WILD = '\0';

const WILDS = /\0+/g;

const WILD_PARTS = /\0(?:\/\0)*/g;

function patternOf(glob: string, root: string): readonly string[] {
  // Alternatives that span directories have no name of their own.
  if (/\{[^}]*\//.test(glob)) return ['*'];
  const segments = glob.split('/').slice(1).map(widen);
  const name = segments.at(-1) ?? WILD;
  if (name !== WILD) return [written(name)];
  const beneath = beneathRoot(segments, root === '/' ? [] : root.split('/').slice(1));
  return beneath === undefined ? [] : [written(beneath)];
}

/** Segments below the root, joined so that one `*` stands for any number of them; undefined when the glob can't match beneath it. */
function beneathRoot(segments: readonly string[], root: readonly string[]): string | undefined {
  for (const [index, part] of root.entries()) {
    const segment = segments[index];
    // A wild part above the root may stand for any number of directories.
    if (segment === undefined || segment.includes(WILD)) return WILD;
    if (segment !== escapeName(part)) return undefined;
  }
  const rest = segments.slice(root.length);
  if (rest.length === 0) return undefined;
  const joined = rest.join('/').replaceAll(WILD_PARTS, WILD);
  // Without a slash the walk would take it for the pattern of a name.
  return rest.length === 1 || joined.includes('/') ? joined : WILD;
}

/** Plain characters stay (escaped for fnmatch(3)); wild ones, sets and alternatives become WILD. */
function widen(segment: string): string {
  let text = '';
  for (let at = 0; at < segment.length; at += 1) {
    const character = segment.charAt(at);
    if (character === '\\') {
      at += 1;
      text += escapeName(segment.charAt(at));
    } else if (character === '*' || character === '?') {
      text += WILD;
    } else if (character === '[') {
      text += WILD;
      at = setEnd(segment, at);
    } else if (character === '{') {
      text += WILD;
      at = braceEnd(segment, at);
    } else {
      text += escapeName(character);
    }
  }
  return text.replaceAll(WILDS, WILD);
}

function written(pattern: string): string {
  return pattern.replaceAll(WILD, '*');
}

function escapeName(text: string): string {
  return text.replaceAll(/[\\*?[\]]/g, '\\$&');
}

/** A `]` that comes first is a member (glob.ts). */
function setEnd(segment: string, open: number): number {
  let at = open + 1;
  if (/[!^]/.test(segment.charAt(at))) at += 1;
  for (let first = true; at < segment.length; at += 1, first = false) {
    if (segment.charAt(at) === '\\') at += 1;
    else if (segment.charAt(at) === ']' && !first) return at;
  }
  return segment.length;
}

function braceEnd(segment: string, open: number): number {
  let depth = 0;
  for (let at = open; at < segment.length; at += 1) {
    const character = segment.charAt(at);
    if (character === '\\') at += 1;
    else if (character === '{') depth += 1;
    else if (character === '}' && (depth -= 1) === 0) return at;
  }
  return segment.length;
}
