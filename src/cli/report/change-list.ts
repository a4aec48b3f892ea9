import type { BundleChanges } from '../../core/bundle.ts';
import { changeRows, tallyNumbers, tallyOf, type ChangeRow } from './changes.ts';
import { columnsOf, flow, flowWords, labelled, pad, spread } from './layout.ts';
import { nextCommands } from './next-commands.ts';
import type { Palette } from './palette.ts';
import type { ReviewInput } from './review.ts';
import { wroteInPlace } from './summary.ts';
import { countWords } from './words.ts';

const LABEL = 11;

/** CHANGES: totals, the list, and what can be done with it. */
export function changeLines(input: ReviewInput): readonly string[] {
  const { bundle, changes, width, palette, selector } = input;
  if (changes === null) {
    return labelled('CHANGES', LABEL, [wroteInPlace(bundle) ? '-   nothing was staged: the command wrote your tree itself' : '-   the stage was not read']);
  }
  const tally = tallyOf(changes);
  const stage = input.stage === 'staged' || input.stage === 'none' ? '' : ` (${input.stage.replace('_', ' ')})`;
  const head = `${pad('CHANGES', LABEL)}${tally.files + tally.directories === 0 ? 'none' : tallyNumbers(tally)}${stage}`;
  const lines: string[] = spread(head, `conflicts ${tally.conflicts}`, Math.min(width, 63)).map(palette.bold);
  if (changes.changes.length === 0) return lines;
  const { rows, leftOut } = changeRows(changes, bundle.run.workspace, input.home);
  lines.push(...layoutRows(rows, width, palette));
  if (leftOut > 0) lines.push(...flowWords(`and ${countWords(leftOut)} more: job diff ${selector} --stat`, width));
  lines.push(...flowWords("Apply can't undo remote calls, database writes or messages.", width));
  if (input.stage === 'staged' || input.stage === 'partly_applied') lines.push(...decisionLines(input, changes, tally.files + tally.directories));
  return lines;
}

/** Rows in columns: mark, letter, path, numbers, note. A long path keeps its line; numbers and note go below it. */
export function layoutRows(rows: readonly ChangeRow[], width: number, palette: Palette): readonly string[] {
  const widest = Math.max(26, ...rows.map((row) => columnsOf(row.path)));
  const column = Math.max(12, Math.min(widest + 2, 30, width - 22));
  const addedWidth = Math.max(3, ...rows.map((row) => String(row.added ?? 0).length + 1)) + 1;
  const removedWidth = Math.max(3, ...rows.map((row) => String(row.removed ?? 0).length + 1)) + 2;
  return rows.flatMap((row) => {
    const head = `${row.mark} ${row.letter} `;
    const added = row.added === null || row.added === 0 ? '' : `+${row.added}`;
    const removed = row.removed === null || row.removed === 0 ? '' : `-${row.removed}`;
    const numbers = row.added === null && row.removed === null ? '' : pad(added, addedWidth) + pad(removed, removedWidth);
    const offset = 4 + column;
    const room = width - offset - numbers.length;
    const beside = room >= 16 && row.note !== '' ? flowWords(row.note, room) : [];
    const below = room < 16 && row.note !== '' ? flowWords(row.note, width - 6).map((line) => `      ${line}`) : [];
    const tail = [`${numbers}${beside[0] ?? ''}`.trimEnd(), ...beside.slice(1).map((line) => ' '.repeat(numbers.length) + line)];
    const pathLines = flow([row.path], width - 4, '');
    const paint = row.mark === '!' || row.mark === '>' ? palette.warn : row.mark === 'C' || row.mark === 'x' ? palette.bad : (text: string): string => text;
    const [first = '', ...rest] = pathLines;
    if (rest.length === 0 && columnsOf(first) <= column - 1) {
      return [`${paint(head)}${pad(first, column)}${tail[0] ?? ''}`.trimEnd(), ...tail.slice(1).map((line) => ' '.repeat(offset) + line), ...below];
    }
    return [
      `${paint(head)}${first}`,
      ...rest.map((line) => `    ${line}`),
      ...tail.filter((line) => line !== '').map((line) => ' '.repeat(offset) + line),
      ...below,
    ];
  });
}

function decisionLines(input: ReviewInput, changes: BundleChanges, count: number): readonly string[] {
  const { selector, width, bundle, cwd } = input;
  const next = nextCommands(changes, bundle.run.workspace, cwd);
  const commands = [
    ...(next.diffPath === undefined ? [] : [`job diff ${selector} ${next.diffPath}`]),
    ...(next.applyPath === undefined ? [] : [`job apply ${selector} --path ${next.applyPath}`]),
    `job drop ${selector}`,
  ];
  const all = `all ${countWords(count)}: job apply ${selector} ${next.allowExec === '' ? '--all' : next.allowExec}`;
  return [...flow(commands, width, ' | '), ...flowWords(all, width)];
}
