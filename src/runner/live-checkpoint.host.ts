import { toSnake } from '../core/case.ts';
import { ProofrunError } from '../core/errors.ts';
import type { JsonObject } from '../core/json.ts';
import { listLayer } from '../stage/layer.host.ts';
import { keepCheckpoint } from './checkpoint.host.ts';
import type { LiveRun } from './live-run.ts';
import type { Staging } from './staging.host.ts';

/**
 * Keeps what a live run has staged at a moment that its program called quiet. That is only its word: the layers are looked at before and
 * after, and when anything was written in between nothing is kept (ERR_AGENT).
 */
export async function keepLive(run: LiveRun, staging: Staging, name: string | null, unchanged: () => void): Promise<JsonObject> {
  if (staging.roots.length === 0) throw new ProofrunError('ERR_AGENT', { message: `${run.id} stages nothing` });
  const look = async (): Promise<Buffer> => Buffer.concat(await Promise.all(staging.roots.map((root) => listLayer(run.parts.shim, root.upper, 'facts'))));
  const before = await look();
  const made = await keepCheckpoint(run.parts, {
    runId: run.id,
    workspace: run.job.workspace,
    name,
    kind: 'live',
    markers: staging.markers,
    hidden: staging.hidden.map(({ path }) => path),
    roots: staging.roots,
    holds: async () => {
      unchanged();
      if (!before.equals(await look())) {
        throw new ProofrunError('ERR_AGENT', {
          message: 'the workspace was written while the checkpoint was made, although the program said that it is quiet',
        });
      }
    },
  });
  return toSnake(made) as JsonObject;
}
