import { readFileSync, readlinkSync } from 'node:fs';
import { errnoOf } from '../core/errors.ts';

/**
 * Identity of a process that outlives reuse of its number: pid, start time in clock ticks since boot (field 22 of /proc/<pid>/stat), the
 * boot id, and the pid namespace in which the number means something. Empty strings and 0 where the system has no /proc.
 */
export interface Owner {
  readonly pid: number;
  readonly startTicks: number;
  readonly bootId: string;
  readonly pidNamespace: string;
}

/** alive and dead are known; unknown: the process lives in another pid namespace, so only its lease can tell. */
export type Liveness = 'alive' | 'dead' | 'unknown';

/** The identity of this process. */
export function currentOwner(): Owner {
  return {
    pid: process.pid,
    startTicks: readStat(process.pid)?.startTicks ?? 0,
    bootId: readBootId(),
    pidNamespace: readPidNamespace(),
  };
}

/** Whether the very process that `owner` names still runs. A zombie doesn't. */
export function livenessOf(owner: Owner): Liveness {
  const bootId = readBootId();
  if (owner.bootId !== bootId) return 'dead';
  if (owner.pidNamespace !== readPidNamespace()) return 'unknown';
  if (bootId === '') return signalReaches(owner.pid) ? 'alive' : 'dead';
  const stat = readStat(owner.pid);
  if (stat === undefined || stat.state === 'Z' || stat.state === 'X') return 'dead';
  return stat.startTicks === owner.startTicks ? 'alive' : 'dead';
}

/** proc(5): the name in parentheses may itself hold spaces and parentheses, so fields are counted after the last one. */
export function parseStat(text: string): { readonly state: string; readonly startTicks: number } | undefined {
  const fields = text
    .slice(text.lastIndexOf(')') + 2)
    .trimEnd()
    .split(' ');
  const state = fields[0];
  const startTicks = Number(fields[19]);
  return state === undefined || state === '' || !Number.isSafeInteger(startTicks) ? undefined : { state, startTicks };
}

function readStat(pid: number): ReturnType<typeof parseStat> {
  try {
    return parseStat(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch (error) {
    if (absent(error)) return undefined;
    throw error;
  }
}

function readBootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch (error) {
    if (absent(error)) return '';
    throw error;
  }
}

function readPidNamespace(): string {
  try {
    return readlinkSync('/proc/self/ns/pid');
  } catch (error) {
    if (absent(error)) return '';
    throw error;
  }
}

function absent(error: unknown): boolean {
  const errno = errnoOf(error);
  return errno === 'ENOENT' || errno === 'ESRCH' || errno === 'ENOTDIR';
}

function signalReaches(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return errnoOf(error) === 'EPERM';
  }
}
