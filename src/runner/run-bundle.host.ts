import { join } from 'node:path';
import type { RunBundle } from '../core/bundle.ts';
import { ProofrunError } from '../core/errors.ts';
import type { StoredRun } from '../store/index.ts';
import { readBundle } from './bundle.host.ts';

/**
 * The bundle of a run, held to the hash that the store recorded. ERR_RUN_STATE while the run goes on, ERR_BUNDLE_INVALID when it is missing
 * or altered.
 */
export async function readRunBundle(stateDirectory: string, run: StoredRun): Promise<RunBundle> {
  if (run.lease !== null) {
    throw new ProofrunError('ERR_RUN_STATE', { message: `${run.id}: it is ${run.state} and has no bundle yet`, hint: `job wait ${run.id}` });
  }
  if (run.bundle === null) throw new ProofrunError('ERR_BUNDLE_INVALID', { message: `${run.id}: it has no bundle`, hint: `job status ${run.id}` });
  return await readBundle(join(stateDirectory, run.bundle.path), run.bundle.sha256);
}
