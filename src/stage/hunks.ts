import { splitLines, type Hunk } from './line-diff.ts';

/**
 * The text with some hunks of a diff applied and the others left out. `before` and the hunks are of one diff; texts are latin1, one
 * character a byte. Pure.
 */
export function applyHunks(before: string, hunks: readonly Hunk[], chosen: ReadonlySet<number>): string {
  const lines = splitLines(before);
  const out: string[] = [];
  let at = 0;
  const keep = (until: number): void => {
    for (; at < until; at++) out.push(lines[at] ?? '');
  };
  hunks.forEach((hunk, index) => {
    keep(hunk.oldLines === 0 ? hunk.oldStart : hunk.oldStart - 1);
    if (!chosen.has(index)) {
      keep(at + hunk.oldLines);
      return;
    }
    hunk.lines.forEach((line, position) => {
      if (line.startsWith('\\') || line.startsWith('-')) return;
      const ends = hunk.lines[position + 1]?.startsWith('\\') !== true;
      out.push(`${line.slice(1)}${ends ? '\n' : ''}`);
    });
    at += hunk.oldLines;
  });
  keep(lines.length);
  return out.join('');
}
