import { EXIT_CODES } from '../core/errors.ts';
import type { Ending } from '../core/run.ts';

/** The exit code of `job run` and `job wait` for an ending. Null, and a run whose owner died: internal, since nobody saw the command's end. */
export function exitCodeOf(ending: Ending | null): number {
  switch (ending?.kind) {
    case 'exit':
      return ending.code;
    case 'signal':
      return 128 + ending.number;
    case 'timeout':
      return EXIT_CODES.timeout;
    case 'limit':
      return EXIT_CODES.limit;
    case 'not_found':
      return EXIT_CODES.command_not_found;
    case 'not_executable':
      return EXIT_CODES.not_executable;
    case 'refused':
      return EXIT_CODES.refused;
    case 'evidence_missing':
      return EXIT_CODES.evidence;
    case 'control_lost':
      return EXIT_CODES.control_lost;
    case 'launch_failed':
      return EXIT_CODES.launch;
    case 'interrupted':
    case undefined:
      return EXIT_CODES.internal;
  }
}
