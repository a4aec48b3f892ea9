import type { RunHandle } from '../runner/runner.ts';

/** Time for a command to end after its terminal went away or the process was asked to end. Milliseconds. */
const GRACE_MS = 5_000;

const FORWARDED = ['SIGINT', 'SIGQUIT', 'SIGTERM', 'SIGHUP'] as const;

/**
 * Hands signals of this process to the command. With pipes each is forwarded, and a second Ctrl-C ends the tree. On a terminal Ctrl-C and
 * Ctrl-\ are keys that the job's own terminal turns into signals; SIGTERM and SIGHUP are forwarded and, after a grace, end the tree.
 * Returns what undoes it.
 */
export function forwardSignals(handle: Pick<RunHandle, 'signal' | 'stop' | 'kill'>, kind: 'pipes' | 'terminal'): () => void {
  let interrupts = 0;
  const listener = (signal: NodeJS.Signals): void => {
    if (kind === 'terminal') {
      if (signal === 'SIGTERM' || signal === 'SIGHUP') handle.stop(GRACE_MS, signal);
      return;
    }
    if (signal === 'SIGINT') interrupts += 1;
    if (interrupts > 1) handle.kill();
    else handle.signal(signal);
  };
  for (const signal of FORWARDED) process.on(signal, listener);
  return () => {
    for (const signal of FORWARDED) process.off(signal, listener);
  };
}
