import { readFileSync, writeFileSync } from 'node:fs';
import { errnoOf } from '../core/errors.ts';
import { parseStrictJson } from '../core/strict-json.ts';
import { currentOwner, type Owner } from '../store/index.ts';

/** The processes of one attempt: numbers alone would be somebody else's after reuse. */
export interface AttemptRecord {
  readonly attempt: string;
  readonly executor: string;
  readonly processes: readonly Owner[];
}

/** Identities of processes that run now; numbers of processes that are gone are left out. */
export function identify(pids: readonly number[]): readonly Owner[] {
  const self = currentOwner();
  return pids.flatMap((pid) => {
    const startTicks = startTicksOf(pid);
    return startTicks === undefined ? [] : [{ ...self, pid, startTicks }];
  });
}

/** Not synced: after a crash of the machine none of these processes runs. */
export function writeAttempt(path: string, record: AttemptRecord): void {
  writeFileSync(path, JSON.stringify(record), { mode: 0o600, flag: 'w' });
}

/** Undefined when there is none, or it was cut off while it was written. */
export function readAttempt(path: string): AttemptRecord | undefined {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
  try {
    return attemptOf(parseStrictJson(text));
  } catch {
    return undefined;
  }
}

function attemptOf(value: unknown): AttemptRecord | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { attempt, executor, processes } = value as Readonly<Record<string, unknown>>;
  if (typeof attempt !== 'string' || typeof executor !== 'string' || !Array.isArray(processes)) return undefined;
  return { attempt, executor, processes: processes.flatMap((item: unknown) => ownerOf(item) ?? []) };
}

function ownerOf(value: unknown): Owner | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { pid, startTicks, bootId, pidNamespace } = value as Readonly<Record<string, unknown>>;
  if (typeof pid !== 'number' || typeof startTicks !== 'number' || typeof bootId !== 'string' || typeof pidNamespace !== 'string') return undefined;
  // Never a group, never init, never ourselves.
  return Number.isSafeInteger(pid) && pid > 1 && pid !== process.pid ? { pid, startTicks, bootId, pidNamespace } : undefined;
}

function startTicksOf(pid: number): number | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const ticks = Number(text.slice(text.lastIndexOf(')') + 2).split(' ')[19]);
    return Number.isSafeInteger(ticks) ? ticks : undefined;
  } catch {
    return undefined;
  }
}
