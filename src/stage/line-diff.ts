/** One hunk: lines with their sign as the first character, 1-based starts. */
export interface Hunk {
  readonly oldStart: number;
  readonly oldLines: number;
  readonly newStart: number;
  readonly newLines: number;
  readonly lines: readonly string[];
}

export interface LineDiff {
  readonly hunks: readonly Hunk[];
  readonly added: number;
  readonly removed: number;
  /** The edit script would have been too long: everything old is removed, everything new is added. */
  readonly whole: boolean;
}

/** Texts over this many bytes on either side get no line diff. */
export const DIFF_BYTES = 1 << 20;
const MAX_EDITS = 4000;
export const NO_NEWLINE = '\\ No newline at end of file';

/** Lines with their newline; the last one may lack it. */
export function splitLines(text: string): string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
}

function signed(sign: string, lines: readonly string[]): string[] {
  return lines.flatMap((line) => (line.endsWith('\n') ? [sign + line.slice(0, -1)] : [sign + line, NO_NEWLINE]));
}

function wholeDiff(before: string, after: string): LineDiff {
  const removed = splitLines(before);
  const added = splitLines(after);
  const hunk: Hunk = {
    oldStart: removed.length === 0 ? 0 : 1,
    oldLines: removed.length,
    newStart: added.length === 0 ? 0 : 1,
    newLines: added.length,
    lines: [...signed('-', removed), ...signed('+', added)],
  };
  return { hunks: removed.length + added.length === 0 ? [] : [hunk], added: added.length, removed: removed.length, whole: true };
}

/**
 * Unified hunks with three lines of context between two texts (latin1 strings keep their bytes). Exact for any input;
 * when the texts are so different that the search would take long, one hunk replaces the whole.
 */
export async function diffLines(before: string, after: string): Promise<LineDiff> {
  if (before === '' || after === '') {
    return wholeDiff(before, after);
  }
  // Loaded when the first diff is wanted: most commands need none.
  const { diffArrays } = await import('diff');
  const parts = diffArrays(splitLines(before), splitLines(after), { maxEditLength: MAX_EDITS });
  if (parts === undefined) {
    return wholeDiff(before, after);
  }
  const context = 3;
  const hunks: Hunk[] = [];
  let added = 0;
  let removed = 0;
  let oldLine = 0;
  let newLine = 0;
  let open: { oldStart: number; newStart: number; oldLines: number; newLines: number; lines: string[] } | undefined;
  const close = (): void => {
    if (open === undefined) return;
    // A side without lines is named by the line before it.
    hunks.push({
      oldStart: open.oldLines === 0 ? open.oldStart : open.oldStart + 1,
      oldLines: open.oldLines,
      newStart: open.newLines === 0 ? open.newStart : open.newStart + 1,
      newLines: open.newLines,
      lines: open.lines,
    });
    open = undefined;
  };
  parts.forEach((part, index) => {
    const lines = part.value;
    const count = lines.length;
    if (part.added || part.removed) {
      open ??= { oldStart: oldLine, newStart: newLine, oldLines: 0, newLines: 0, lines: [] };
      open.lines.push(...signed(part.added ? '+' : '-', lines));
      if (part.added) {
        open.newLines += count;
        newLine += count;
        added += count;
      } else {
        open.oldLines += count;
        oldLine += count;
        removed += count;
      }
      return;
    }
    const last = index === parts.length - 1;
    if (open !== undefined && !last && count <= 2 * context) {
      open.lines.push(...signed(' ', lines));
      open.oldLines += count;
      open.newLines += count;
    } else {
      if (open !== undefined) {
        const tail = lines.slice(0, context);
        open.lines.push(...signed(' ', tail));
        open.oldLines += tail.length;
        open.newLines += tail.length;
        close();
      }
      if (!last) {
        const head = lines.slice(-context);
        open = {
          oldStart: oldLine + count - head.length,
          newStart: newLine + count - head.length,
          oldLines: head.length,
          newLines: head.length,
          lines: signed(' ', head),
        };
      }
    }
    oldLine += count;
    newLine += count;
  });
  close();
  return { hunks, added, removed, whole: false };
}
