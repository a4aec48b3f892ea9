import { messageOf, ProofrunError } from '../core/errors.ts';
import type { LiveRun } from './live-run.ts';

/** After this, a process that can't see the owner (another pid namespace) may take the run for dead. Milliseconds. */
export const LEASE_MS = 5 * 60_000;
const RENEW_MS = 60_000;

/** Renews the lease of a run while this process lives. Losing it ends the run: somebody else has taken it over. Returns what stops it. */
export function keepLease(run: Pick<LiveRun, 'parts' | 'id' | 'fence' | 'cause' | 'control' | 'warnings'>): () => void {
  const { store, clock } = run.parts;
  const timer = setInterval(() => {
    try {
      store.renewLease(run.id, run.fence, clock() + LEASE_MS);
    } catch (error) {
      if (error instanceof ProofrunError && error.code === 'ERR_STORE_STALE') {
        if (run.cause.settle({ kind: 'control_lost', detail: `another process took the run over: ${error.message}` })) run.control.kill();
        clearInterval(timer);
        return;
      }
      run.warnings.push(`the lease could not be renewed: ${messageOf(error)}`);
    }
  }, RENEW_MS);
  timer.unref();
  return () => {
    clearInterval(timer);
  };
}
