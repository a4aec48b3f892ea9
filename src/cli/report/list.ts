import { displayPath, safeLine } from '../../core/text-safety.ts';
import type { StoredLineage } from '../../store/lineage.host.ts';
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
  /** `job ls --tree`: runs stand below the ones that they started from. */
  readonly lineage?: readonly StoredLineage[];
}

/** `job ls`: one line a run, newest first as given. The command takes what is left of the width, its end cut. */
export function listText(input: ListInput): string {
  const { palette } = input;
  if (input.runs.length === 0) return 'no runs\n';
  const ordered = input.lineage === undefined ? input.runs.map((run) => ({ run, branch: '' })) : inTree(input.runs, input.lineage);
  const runs = ordered.map(({ run }) => run);
  const ids = uniqueIds(runs.map(({ id }) => id)).map((id, index) => `${ordered[index]?.branch ?? ''}${id}`);
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

interface TreeLine {
  readonly run: StoredRun;
  /** What stands before its id. */
  readonly branch: string;
}

/** Runs below the ones that they started from, oldest first; those whose parent isn't in the list stand where it would. */
export function inTree(runs: readonly StoredRun[], lineage: readonly StoredLineage[]): readonly TreeLine[] {
  const known = new Map(lineage.map((one) => [one.runId, one]));
  const listed = new Set(runs.map(({ id }) => id));
  const children = new Map<string, StoredRun[]>();
  const tops: StoredRun[] = [];
  for (const run of [...runs].reverse()) {
    const parent = known.get(run.id)?.parent;
    if (parent === undefined || !listed.has(parent)) tops.push(run);
    else children.set(parent, [...(children.get(parent) ?? []), run]);
  }
  const lines: TreeLine[] = [];
  const visit = (run: StoredRun, depth: number): void => {
    const line = known.get(run.id);
    const word = line === undefined ? '' : line.kind === 'fork' ? 'fork ' : 'on ';
    lines.push({ run, branch: depth === 0 && !(line !== undefined && !listed.has(line.parent)) ? '' : `${'  '.repeat(depth)}${word}` });
    for (const child of children.get(run.id) ?? []) visit(child, depth + 1);
  };
  for (const run of tops) visit(run, 0);
  return lines;
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
