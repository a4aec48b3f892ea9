/**
 * Lines of at most `width` columns. Text that comes in here has passed the sanitiser (src/core/text-safety.ts), so it holds no
 * control characters; colour is put on afterwards, line by line, so that it never counts.
 */

/** Zero columns: combining marks. Two: East Asian wide and emoji, by Unicode blocks (UAX 11, simplified). */
const ZERO = /\p{M}/u;
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{16fe0}-\u{18cff}\u{1b000}-\u{1b2ff}\u{1f300}-\u{1f64f}\u{1f680}-\u{1f6ff}\u{1f900}-\u{1f9ff}\u{20000}-\u{3fffd}]/u;
const ASCII = /^[\x20-\x7e]*$/;

/** Columns that a text takes on a terminal. */
export function columnsOf(text: string): number {
  if (ASCII.test(text)) return text.length;
  let columns = 0;
  for (const character of text) columns += characterColumns(character);
  return columns;
}

function characterColumns(character: string): number {
  if (character < '\u0300') return 1;
  return ZERO.test(character) ? 0 : WIDE.test(character) ? 2 : 1;
}

/** Spaces up to `columns`; a text that is wider stays as it is. */
export function pad(text: string, columns: number): string {
  return text + ' '.repeat(Math.max(0, columns - columnsOf(text)));
}

export function padStart(text: string, columns: number): string {
  return ' '.repeat(Math.max(0, columns - columnsOf(text))) + text;
}

/** Pieces of at most `columns`, whole characters each; nothing is lost. */
export function breakHard(text: string, columns: number): readonly string[] {
  if (columnsOf(text) <= columns) return [text];
  const pieces: string[] = [];
  let piece = '';
  let used = 0;
  for (const character of text) {
    const wide = characterColumns(character);
    if (used + wide > columns && piece !== '') {
      pieces.push(piece);
      piece = '';
      used = 0;
    }
    piece += character;
    used += wide;
  }
  return piece === '' ? pieces : [...pieces, piece];
}

/** Items joined by `gap`, as many to a line as fit; an item that is too wide is broken (at spaces when it has any), never cut. */
export function flow(items: readonly string[], width: number, gap: string): readonly string[] {
  const lines: string[] = [];
  let line = '';
  for (const item of items) {
    const joined = line === '' ? item : line + gap + item;
    if (columnsOf(joined) <= width) {
      line = joined;
      continue;
    }
    if (line !== '') lines.push(line.trimEnd());
    const pieces = item.includes(' ') && gap !== ' ' ? flowWords(item, width) : breakHard(item, width);
    lines.push(...pieces.slice(0, -1));
    line = pieces.at(-1) ?? '';
  }
  return line === '' ? lines : [...lines, line];
}

/** Words of a sentence, wrapped. */
export function flowWords(text: string, width: number): readonly string[] {
  return flow(
    text.split(' ').filter((word) => word !== ''),
    width,
    ' ',
  );
}

/** `label` in a column, the lines beside it: `  staged     7 files`. */
export function labelled(label: string, column: number, lines: readonly string[], indent = ''): readonly string[] {
  return lines.map((line, index) => `${indent}${pad(index === 0 ? label : '', column)}${line}`.trimEnd());
}

/** Left and right text on one line of `width`; on two lines when they don't fit. */
export function spread(left: string, right: string, width: number): readonly string[] {
  const gap = width - columnsOf(left) - columnsOf(right);
  return gap >= 2
    ? [left + ' '.repeat(gap) + right]
    : [...flowWords(left, width), ...flow(right.split('  '), width, '  ').map((line) => padStart(line, width))];
}

/** Puts colour on the first appearance of a text: after the layout, so that it never counts. A text that was broken stays plain. */
export function painted(lines: readonly string[], text: string, paint: (text: string) => string): readonly string[] {
  const at = lines.findIndex((line) => line.includes(text));
  return lines.map((line, index) => (index === at ? line.replace(text, () => paint(text)) : line));
}

/** The beginning of a text, with `..` where it was cut to fit into `columns`. Only where the whole text is shown elsewhere. */
export function cut(text: string, columns: number): string {
  if (columnsOf(text) <= columns) return text;
  let kept = '';
  for (const character of text) {
    if (columnsOf(kept + character) > columns - 2) break;
    kept += character;
  }
  return `${kept}..`;
}
