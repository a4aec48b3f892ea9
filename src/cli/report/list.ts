import { displayPath, safeLine } from '../../core/text-safety.ts';
import type { StoredRun } from '../../store/stored-run.ts';
import { columnsOf, cut, pad } from './layout.ts';
import type { Palette } from './palette.ts';
import { commandWords, countWords, endingWords, friendlyPath, shortId } from './words.ts';

export interface ListInput {
  readonly runs: readonly StoredRun[];
  /** Show the workspace of each run: `job ls --all`. */
  readonly workspaces: boolean;
  readonly home: string | undefined;
  readonly nowMs: number;
  readonly width: number;
  readonly palette: Palette;
}

/** `job ls`: one line a run, newest first as given. The command takes what is left of the width, its end cut. */
export function listText(input: ListInput): string {
  const { runs, palette } = input;
  if (runs.length === 0) return 'no runs\n';
  const ids = uniqueIds(runs.map(({ id }) => id));
  const rows = runs.map((run, index) => [
    ids[index] ?? run.id,
    run.damaged === null ? (run.ending === null || run.state === 'refused' ? run.state : endingWords(run.ending)) : 'damaged',
    stagedColumn(run),
    ageWords(Math.max(0, input.nowMs - run.createdMs)),
    run.mode === 'default' ? (run.executor ?? '-') : `${run.mode} ${run.executor ?? ''}`.trim(),
    ...(input.workspaces ? [displayPath(friendlyPath(run.workspace, undefined, input.home))] : []),
    [...(run.name === null ? [] : [`[${safeLine(run.name, 80)}]`]), commandWords(run.argv, 200)].join(' '),
  ]);
  const header = ['RUN', 'END', 'STAGED', 'AGE', 'MODE', ...(input.workspaces ? ['WORKSPACE'] : []), 'COMMAND'];
  const widths = header.map((title, column) => Math.max(...[header, ...rows].map((row) => columnsOf(row[column] ?? title))));
  const last = header.length - 1;
  const line = (cells: readonly string[]): string => {
    const head = cells
      .slice(0, last)
      .map((cell, column) => pad(cell, (widths[column] ?? 0) + 2))
      .join('');
    return head + cut(cells[last] ?? '', Math.max(16, input.width - columnsOf(head)));
  };
  return `${[palette.bold(line(header)), ...rows.map(line)].map((text) => text.trimEnd()).join('\n')}\n`;
}

/** The shortest prefixes, of at least twelve characters, that tell these ids apart. */
export function uniqueIds(ids: readonly string[]): readonly string[] {
  const taken = new Map<string, number>();
  const full = new Set(ids);
  for (const id of full) for (let length = 12; length <= id.length; length += 1) taken.set(id.slice(0, length), (taken.get(id.slice(0, length)) ?? 0) + 1);
  return ids.map((id) => {
    for (let length = 12; length < id.length; length += 1) if (taken.get(id.slice(0, length)) === 1) return id.slice(0, length);
    return id.length <= 12 ? shortId(id) : id;
  });
}

function stagedColumn(run: StoredRun): string {
  if (run.stageState === 'none') return '-';
  if (run.stageState !== 'staged' && run.stageState !== 'partly_applied') return run.stageState;
  const total = run.stagedSummary;
  const count = total === null ? '?' : countWords(total.added + total.modified + total.deleted + total.other);
  return run.stageState === 'staged' ? count : `${count} partly`;
}

/** 41 s, 12 m, 3 h, 9 d. */
export function ageWords(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}
