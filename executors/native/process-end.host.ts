import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

/** A process by more than its number, which another one may get. */
export interface ProcessMark {
  readonly pid: number;
  /** When it started, in the kernel's ticks. */
  readonly started: string;
}

const LOOK_AGAIN_MS = 2;

/** State and start of /proc/<pid>/stat (proc_pid_stat(5)): the name before them may hold anything, so they are counted from its last parenthesis. */
function readStat(pid: number): { readonly state: string; readonly started: string } | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
    return { state: fields[0] ?? '', started: fields[19] ?? '' };
  } catch {
    return undefined;
  }
}

/** Undefined: there is no such process. */
export function markProcess(pid: number): ProcessMark | undefined {
  const stat = readStat(pid);
  return stat === undefined ? undefined : { pid, started: stat.started };
}

/** A zombie has ended; the init of a pid namespace becomes one when every other process of it is dead (pid_namespaces(7)). */
export function lives(mark: ProcessMark): boolean {
  const stat = readStat(mark.pid);
  return stat?.started === mark.started && stat.state !== 'Z' && stat.state !== 'X';
}

/** Waits until it has ended; false when it hasn't within `patienceMs`. */
export async function hasEnded(mark: ProcessMark, patienceMs: number): Promise<boolean> {
  const until = performance.now() + patienceMs;
  while (lives(mark)) {
    if (performance.now() > until) return false;
    await delay(LOOK_AGAIN_MS);
  }
  return true;
}
