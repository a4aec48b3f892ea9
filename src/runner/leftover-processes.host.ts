import { readdirSync, readFileSync } from 'node:fs';
import { errnoOf } from '../core/errors.ts';
import { currentOwner, livenessOf, type Owner } from '../store/index.ts';

/** One process as /proc/<pid>/stat gives it (proc_pid_stat(5)). */
interface Row {
  readonly pid: number;
  readonly state: string;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  readonly startTicks: number;
}

/** How long killed processes may take to go, and between two looks. Milliseconds. */
const PATIENCE_MS = 5000;
const STEP_MS = 2;

export interface LeftoverResult {
  readonly killed: readonly number[];
  /** Still there after five seconds. */
  readonly left: readonly number[];
}

/**
 * Kills what an attempt left: the recorded processes that still are the very ones, what they started, and what lives in a session or group
 * that one of them led. A number that means another process by now is left alone: a session's number isn't given out again while somebody
 * is in it, and its members are no older than its leader. Returns when all are gone.
 */
export function endLeftovers(recorded: readonly Owner[]): LeftoverResult {
  const here = recorded.filter((one) => one.pid !== process.pid && livenessOf(one) !== 'unknown' && sameBoot(one));
  const killed = new Set<number>();
  const pause = new Int32Array(new SharedArrayBuffer(4));
  for (let waitedMs = 0; ; waitedMs += STEP_MS) {
    const living = leftoversOf(here, readTable());
    if (living.length === 0) return { killed: [...killed], left: [] };
    if (waitedMs > PATIENCE_MS) return { killed: [...killed], left: living };
    for (const pid of living) {
      send(pid);
      killed.add(pid);
    }
    // Nobody announces the end of a process that isn't a child of ours.
    Atomics.wait(pause, 0, 0, STEP_MS);
  }
}

function sameBoot(owner: Owner): boolean {
  const self = currentOwner();
  return owner.bootId === self.bootId && owner.pidNamespace === self.pidNamespace;
}

function leftoversOf(recorded: readonly Owner[], table: readonly Row[]): readonly number[] {
  const members = new Set<number>();
  for (const row of table) {
    for (const { pid, startTicks } of recorded) {
      const itself = row.pid === pid && row.startTicks === startTicks;
      const ledByIt = (row.session === pid || row.group === pid) && row.startTicks >= startTicks && row.pid !== pid;
      if (itself || ledByIt) members.add(row.pid);
    }
  }
  for (let grew = true; grew;) {
    grew = false;
    for (const { pid, parent } of table) {
      if (!members.has(parent) || members.has(pid)) continue;
      members.add(pid);
      grew = true;
    }
  }
  members.delete(process.pid);
  return table.filter((row) => members.has(row.pid) && row.state !== 'Z' && row.state !== 'X').map(({ pid }) => pid);
}

function readTable(): readonly Row[] {
  return numbersIn('/proc').flatMap((pid) => {
    try {
      const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
      const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
      return [{ pid, state: fields[0] ?? '', parent: Number(fields[1]), group: Number(fields[2]), session: Number(fields[3]), startTicks: Number(fields[19]) }];
    } catch {
      return []; // ended meanwhile
    }
  });
}

function numbersIn(directory: string): readonly number[] {
  try {
    return readdirSync(directory)
      .filter((name) => /^\d+$/.test(name))
      .map(Number);
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
    return []; // no /proc: not Linux
  }
}

function send(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if (errnoOf(error) !== 'ESRCH' && errnoOf(error) !== 'EPERM') throw error;
  }
}
