import { displayPath, safeLine } from '../../core/text-safety.ts';
import type { StoredCheckpoint } from '../../store/index.ts';
import { columnsOf, pad } from './layout.ts';
import { ageWords, uniqueIds } from './list.ts';
import type { Palette } from './palette.ts';
import { countWords, shortId, sizeWords } from './words.ts';

export interface CheckpointListInput {
  readonly checkpoints: readonly StoredCheckpoint[];
  readonly nowMs: number;
  readonly palette: Palette;
}

/** `job checkpoint list`: one line each, newest first as given. */
export function checkpointList({ checkpoints, nowMs, palette }: CheckpointListInput): string {
  if (checkpoints.length === 0) return 'no checkpoints\n';
  const ids = uniqueIds(checkpoints.map(({ id }) => id));
  const rows = checkpoints.map((one, index) => [
    ids[index] ?? one.id,
    shortId(one.runId),
    one.state === 'whole' ? one.source : one.state,
    one.entries === null ? '-' : countWords(one.entries),
    one.bytes === null ? '-' : sizeWords(one.bytes),
    ageWords(Math.max(0, nowMs - one.createdMs)),
    one.name === null ? '' : safeLine(one.name, 80),
  ]);
  const header = ['CHECKPOINT', 'RUN', 'OF', 'ENTRIES', 'SIZE', 'AGE', 'NAME'];
  const widths = header.map((title, column) => Math.max(...[header, ...rows].map((row) => columnsOf(row[column] ?? title))));
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, column) => pad(cell, (widths[column] ?? 0) + 2))
      .join('')
      .trimEnd();
  return `${[palette.bold(line(header)), ...rows.map(line)].join('\n')}\n`;
}

/** `job checkpoint show`. */
export function checkpointText(one: StoredCheckpoint, forks: readonly string[]): string {
  const rows: readonly (readonly [string, string])[] = [
    ['checkpoint', one.id],
    ...(one.name === null ? [] : [['name', safeLine(one.name, 80)] as const]),
    ['run', `${one.runId} (${one.source === 'live' ? 'taken while it ran, at a point that its program called quiet' : 'taken after its end'})`],
    ['workspace', displayPath(one.workspace)],
    ['holds', `${countWords(one.entries ?? 0)} entries, ${sizeWords(one.bytes ?? 0)}`],
    ['manifest', `sha256 ${one.manifestSha256 ?? '-'}`],
    ['forks', forks.length === 0 ? 'none' : forks.join(' ')],
    ['next', `job fork ${one.id} -- COMMAND`],
  ];
  return rows.map(([label, text]) => `${pad(label, 12)}${text}\n`).join('');
}
