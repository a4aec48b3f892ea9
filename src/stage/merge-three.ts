import { diffLines, splitLines, type Hunk } from './line-diff.ts';

export interface MergedText {
  readonly text: string;
  /** Places where both sides changed the same lines in different ways: they have markers. */
  readonly conflicts: number;
}

/** Lines `start` to `end` of the base become others. */
interface Edit {
  readonly start: number;
  end: number;
  readonly lines: string[];
}

function editsOf(hunks: readonly Hunk[]): Edit[] {
  const edits: Edit[] = [];
  for (const hunk of hunks) {
    let at = hunk.oldLines === 0 ? hunk.oldStart : hunk.oldStart - 1;
    let edit: Edit | undefined;
    hunk.lines.forEach((line, index) => {
      if (line.startsWith('\\')) return;
      if (line.startsWith(' ')) {
        edit = undefined;
        at++;
        return;
      }
      if (edit === undefined) edits.push((edit = { start: at, end: at, lines: [] }));
      if (line.startsWith('-')) edit.end = ++at;
      else edit.lines.push(`${line.slice(1)}${hunk.lines[index + 1]?.startsWith('\\') === true ? '' : '\n'}`);
    });
  }
  return edits;
}

/** What one side makes of the lines `from` to `to` of the base. */
function sideOf(base: readonly string[], edits: readonly Edit[], from: number, to: number): string[] {
  const out: string[] = [];
  let at = from;
  for (const edit of edits) {
    out.push(...base.slice(at, edit.start), ...edit.lines);
    at = edit.end;
  }
  return [...out, ...base.slice(at, to)];
}

function ended(lines: readonly string[]): string {
  const text = lines.join('');
  return text === '' || text.endsWith('\n') ? text : `${text}\n`;
}

/**
 * Joins what two sides made of one text, line by line; where both changed the same lines in different ways both stand there between markers,
 * as merge(1) writes them. Texts are latin1. Pure.
 */
export async function mergeThree(base: string, here: string, staged: string): Promise<MergedText> {
  const lines = splitLines(base);
  const ours = editsOf((await diffLines(base, here)).hunks);
  const theirs = editsOf((await diffLines(base, staged)).hunks);
  const out: string[] = [];
  let at = 0;
  let conflicts = 0;
  for (;;) {
    const start = Math.min(ours[0]?.start ?? Infinity, theirs[0]?.start ?? Infinity);
    if (start === Infinity) break;
    const [mine, other]: [Edit[], Edit[]] = [[], []];
    let end = start;
    // Edits that touch each other belong to one place.
    for (let grew = true; grew;) {
      grew = false;
      for (const [from, into] of [
        [ours, mine],
        [theirs, other],
      ] as const) {
        while (from[0] !== undefined && from[0].start <= end) {
          const edit = from.shift();
          if (edit === undefined) break;
          into.push(edit);
          end = Math.max(end, edit.end);
          grew = true;
        }
      }
    }
    out.push(...lines.slice(at, start));
    const [first, second] = [sideOf(lines, mine, start, end), sideOf(lines, other, start, end)];
    if (other.length === 0 || first.join('') === second.join('')) out.push(...first);
    else if (mine.length === 0) out.push(...second);
    else {
      conflicts++;
      out.push(`<<<<<<< here\n${ended(first)}=======\n${ended(second)}>>>>>>> staged\n`);
    }
    at = end;
  }
  return { text: [...out, ...lines.slice(at)].join(''), conflicts };
}
