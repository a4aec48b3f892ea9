import type { RunBundle } from '../../core/bundle.ts';
import { safeLine } from '../../core/text-safety.ts';
import type { StoredRun } from '../../store/stored-run.ts';
import { runHead } from './head.ts';
import { flowWords, labelled } from './layout.ts';
import type { Palette } from './palette.ts';
import { dimensionList, endingDetail, lineageWords, plural } from './words.ts';

export interface StatusInput {
  readonly run: StoredRun;
  /** undefined: the run has none yet. */
  readonly bundle: RunBundle | undefined;
  readonly selector: string;
  /** Now, for a run that is still going. */
  readonly nowMs: number;
  readonly width: number;
  readonly palette: Palette;
}

const LABEL = 11;
const INDENT = '  ';

/** The short form of `job status`; ends with a newline. */
export function statusText(input: StatusInput): string {
  const { run, bundle, width, palette } = input;
  const room = width - LABEL - INDENT.length;
  const until = run.endedMs ?? input.nowMs;
  const elapsedMs = run.startedMs === null ? null : Math.max(0, until - run.startedMs);
  const head = runHead({ ...run, elapsedMs, recordedMs: run.createdMs }, width, palette);
  const lines = [...head.lines];
  const add = (label: string, text: string): void => {
    lines.push(...labelled(label, LABEL, flowWords(text, room), INDENT));
  };
  if (head.cut !== undefined) add('command', head.cut);
  add('state', stateWords(run));
  const detail = endingDetail(run.ending);
  if (detail !== undefined) add('reason', detail);
  if (run.damaged !== null) add('damaged', `${safeLine(run.damaged)}; it can be shown and dropped, and is never continued from`);
  if (run.name !== null) add('name', safeLine(run.name));
  add('workspace', safeLine(run.workspace));
  const from = bundle === undefined ? undefined : lineageWords(bundle.lineage);
  if (from !== undefined) add('started', from);
  if (bundle !== undefined && bundle.plan !== null) {
    const { safety } = bundle;
    add('enforced', safety.enforced.length === 0 ? 'nothing' : dimensionList(safety.enforced));
    if (safety.cooperative.length > 0) add('bypassable', dimensionList(safety.cooperative));
    if (safety.unenforced.length > 0) add('unenforced', dimensionList(safety.unenforced));
  }
  add('staged', stageWords(run));
  if (bundle !== undefined && bundle.warnings.length > 0) add('warnings', `${bundle.warnings.length}: ${safeLine(bundle.warnings[0] ?? '')}`);
  add('next', nextWords(run, input.selector));
  return `${lines.join('\n')}\n`;
}

/** `finished`, `running (process 4127)`. */
export function stateWords(run: StoredRun): string {
  return run.lease === null ? run.state : `${run.state} (process ${run.lease.owner.pid})`;
}

/** `7 changes, not applied`. */
export function stageWords(run: StoredRun): string {
  const total = run.stagedSummary;
  const count = total === null ? undefined : total.added + total.modified + total.deleted + total.other;
  switch (run.stageState) {
    case 'none':
      return 'nothing';
    case 'staged':
      return `${count === undefined ? 'changes' : plural(count, 'change')}, neither applied nor dropped`;
    case 'partly_applied':
      return `${count === undefined ? 'changes' : plural(count, 'change')}, partly applied`;
    case 'applied':
      return `${count === undefined ? 'changes' : plural(count, 'change')}, applied`;
    case 'dropped':
      return `${count === undefined ? 'changes' : plural(count, 'change')}, dropped`;
  }
}

function nextWords(run: StoredRun, selector: string): string {
  switch (run.state) {
    case 'recorded':
    case 'preparing':
    case 'gate':
    case 'running':
    case 'finishing':
      return `job logs ${selector} --follow, or job stop ${selector}`;
    case 'refused':
    case 'finished':
    case 'failed':
    case 'interrupted':
      return `job status --review ${selector}`;
  }
}
