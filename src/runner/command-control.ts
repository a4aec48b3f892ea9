import { constants } from 'node:os';
import type { Session } from '../executor/executor.ts';
import type { FirstCause } from './first-cause.ts';
import { startTimer } from './long-timer.ts';

/** What people and other programs may do to a run, at any moment of its life. */
export interface CommandControl {
  /** Cancels a launch that has not reached the gate. */
  readonly abort: AbortSignal;
  signal(name: NodeJS.Signals): void;
  stop(graceMs: number, first?: NodeJS.Signals): void;
  kill(): void;
  /** From now on signals go to the command. */
  attach(session: Session): void;
  /** From now on they do nothing: the command has ended. */
  detach(): void;
}

/** Before the command may start, a signal that would end it ends the run: the launch is cancelled, or the gate stays closed. */
export function commandControl(cause: FirstCause): CommandControl {
  const launch = new AbortController();
  let session: Session | undefined;
  let over = false;
  let stopTimer: (() => void) | undefined;

  const signal = (name: NodeJS.Signals): void => {
    if (over) return;
    if (session !== undefined) {
      session.signal(name);
      return;
    }
    if (HARMLESS.has(name)) return;
    cause.settle({ kind: 'signal', signal: name, number: constants.signals[name] });
    launch.abort();
  };
  return {
    abort: launch.signal,
    signal,
    kill: () => {
      signal('SIGKILL');
    },
    stop: (graceMs, first = 'SIGTERM') => {
      signal(first);
      stopTimer?.();
      stopTimer = startTimer(graceMs, () => {
        signal('SIGKILL');
      });
    },
    attach: (started) => {
      session = started;
    },
    detach: () => {
      over = true;
      stopTimer?.();
    },
  };
}

/** Signals whose default action isn't to end a process (signal(7)). */
const HARMLESS: ReadonlySet<NodeJS.Signals> = new Set(['SIGCHLD', 'SIGCONT', 'SIGURG', 'SIGWINCH', 'SIGSTOP', 'SIGTSTP', 'SIGTTIN', 'SIGTTOU']);
