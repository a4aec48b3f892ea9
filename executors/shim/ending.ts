import { constants } from 'node:os';
import type { ResourceLimits } from '../../src/core/job.ts';
import type { Ending } from '../../src/core/run.ts';
import { errnoName } from './protocol.ts';

/** What the shim said about the command's end, and what the host knows besides. */
export interface EndedCommand {
  /** wait(2). */
  readonly status: number;
  /** Of an execve that failed. */
  readonly noExec: number | undefined;
  /** The kernel killed a process of the job's group for want of memory. Asked only when a SIGKILL ended the command. */
  readonly outOfMemory: () => boolean;
  readonly limits: ResourceLimits;
}

/** How the command ended: its own exit, a signal, or a limit that sends one. */
export function endingOf({ status, noExec, outOfMemory, limits }: EndedCommand): Ending {
  if (noExec !== undefined) {
    const errno = errnoName(noExec);
    return { kind: errno === 'ENOENT' || errno === 'ENOTDIR' ? 'not_found' : 'not_executable', errno };
  }
  const number = status & 0x7f;
  if (number === 0) return { kind: 'exit', code: (status >> 8) & 0xff };
  if (number === constants.signals.SIGKILL && outOfMemory()) return { kind: 'limit', limit: 'memory' };
  if (number === constants.signals.SIGXCPU && limits.cpuTimeMs !== undefined) return { kind: 'limit', limit: 'cpu_time' };
  if (number === constants.signals.SIGXFSZ && limits.fileSizeBytes !== undefined) return { kind: 'limit', limit: 'file_size' };
  const signal = Object.entries(constants.signals).find(([, value]) => value === number)?.[0] ?? `SIG${number}`;
  return { kind: 'signal', signal, number };
}
