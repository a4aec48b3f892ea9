import type { Mode } from '../../core/dimension.ts';
import type { Ending } from '../../core/run.ts';
import { columnsOf, cut, flow, painted } from './layout.ts';
import type { Palette } from './palette.ts';
import { commandWords, dateWords, durationWords, endingWords, modeOn, shortId } from './words.ts';

/** What the first line of a status or a review says. */
export interface RunHead {
  readonly id: string;
  readonly argv: readonly string[];
  readonly ending: Ending | null;
  /** null: it never started. */
  readonly elapsedMs: number | null;
  readonly recordedMs: number;
  readonly mode: Mode;
  readonly executor: string | null;
}

/** `run-01KC4Q8Z  npm test  exit 1  14.2 s  2026-12-01 09:41  --safe on native`. `cut`: the command that didn't fit, whole. */
export function runHead(head: RunHead, width: number, palette: Palette): { readonly lines: readonly string[]; readonly cut: string | undefined } {
  const id = shortId(head.id);
  const facts = [
    ...(head.ending === null ? [] : [endingWords(head.ending)]),
    ...(head.elapsedMs === null ? [] : [durationWords(head.elapsedMs)]),
    dateWords(head.recordedMs),
    modeOn(head.mode, head.executor),
  ];
  const command = commandWords(head.argv, 2000);
  const room = width - columnsOf([id, ...facts].join('  ')) - 2;
  const fits = columnsOf(command) <= room;
  // A command that has hardly any room is left to its own line.
  const shown = fits ? [command] : room >= 16 ? [cut(command, room)] : [];
  return { lines: painted(flow([id, ...shown, ...facts], width, '  '), id, palette.bold), cut: fits ? undefined : command };
}
