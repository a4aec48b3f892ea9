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
}

/** Texts over this many bytes on either side get no line diff. */
export const DIFF_BYTES = 1 << 20;
/** Edits that are searched for between two anchors; beyond them the one side replaces the other. */
const MAX_EDITS = 300;
export const NO_NEWLINE = '\\ No newline at end of file';

/** Lines with their newline; the last one may lack it. */
export function splitLines(text: string): string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
}

function signed(sign: string, lines: readonly string[]): string[] {
  return lines.flatMap((line) => (line.endsWith('\n') ? [sign + line.slice(0, -1)] : [sign + line, NO_NEWLINE]));
}

/** Consecutive lines of one fate. */
interface Part {
  readonly fate: 'kept' | 'removed' | 'added';
  readonly lines: string[];
}

/** Lines that occur once on either side, in an order that both sides share: pairs of indices that surely belong together. */
function anchors(before: readonly string[], after: readonly string[]): [number, number][] {
  const once = (lines: readonly string[]): Map<string, number> => {
    const seen = new Map<string, number>();
    lines.forEach((line, index) => seen.set(line, seen.has(line) ? -1 : index));
    return seen;
  };
  const [old, fresh] = [once(before), once(after)];
  const pairs: [number, number][] = [];
  for (const [line, index] of old) {
    const other = fresh.get(line) ?? -1;
    if (index >= 0 && other >= 0) pairs.push([index, other]);
  }
  pairs.sort((a, b) => a[0] - b[0]);
  // The longest run of pairs that rises on both sides: piles as in the game of patience.
  const tops: number[] = [];
  const previous: number[] = [];
  pairs.forEach(([, position], index) => {
    let low = 0;
    let high = tops.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((pairs[tops[middle] ?? 0]?.[1] ?? 0) < position) low = middle + 1;
      else high = middle;
    }
    previous[index] = tops[low - 1] ?? -1;
    tops[low] = index;
  });
  const run: [number, number][] = [];
  for (let at = tops.at(-1) ?? -1; at >= 0; at = previous[at] ?? -1) {
    const pair = pairs[at];
    if (pair !== undefined) run.push(pair);
  }
  return run.reverse();
}

/** The parts of a diff, in order. Exact; the shortest only between anchors, and only while the search is short. */
async function partsOf(before: readonly string[], after: readonly string[]): Promise<Part[]> {
  // Loaded when the first diff is wanted: most commands need none.
  const { diffArrays } = await import('diff');
  const parts: Part[] = [];
  const put = (fate: Part['fate'], lines: readonly string[]): void => {
    if (lines.length === 0) return;
    const last = parts.at(-1);
    if (last?.fate === fate) for (const line of lines) last.lines.push(line);
    else parts.push({ fate, lines: [...lines] });
  };
  let [oldAt, newAt] = [0, 0];
  for (const [oldEnd, newEnd] of [...anchors(before, after), [before.length, after.length] as const]) {
    const [old, fresh] = [before.slice(oldAt, oldEnd), after.slice(newAt, newEnd)];
    const found = old.length === 0 || fresh.length === 0 ? undefined : diffArrays(old, fresh, { maxEditLength: MAX_EDITS });
    if (found === undefined) {
      put('removed', old);
      put('added', fresh);
    } else {
      for (const part of found) put(part.added ? 'added' : part.removed ? 'removed' : 'kept', part.value);
    }
    put('kept', before.slice(oldEnd, oldEnd + 1));
    [oldAt, newAt] = [oldEnd + 1, newEnd + 1];
  }
  return parts;
}

/**
 * Unified hunks with three lines of context between two texts (latin1 strings keep their bytes). Exact for any input, in
 * bounded time: where two stretches have too little in common, the one replaces the other.
 */
export async function diffLines(before: string, after: string): Promise<LineDiff> {
  const parts = await partsOf(splitLines(before), splitLines(after));
  const push = (into: string[], lines: readonly string[]): void => lines.forEach((line) => into.push(line));
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
    const { lines } = part;
    const count = lines.length;
    if (part.fate !== 'kept') {
      open ??= { oldStart: oldLine, newStart: newLine, oldLines: 0, newLines: 0, lines: [] };
      push(open.lines, signed(part.fate === 'added' ? '+' : '-', lines));
      if (part.fate === 'added') {
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
      push(open.lines, signed(' ', lines));
      open.oldLines += count;
      open.newLines += count;
    } else {
      if (open !== undefined) {
        const tail = lines.slice(0, context);
        push(open.lines, signed(' ', tail));
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
  return { hunks, added, removed };
}
