import { setTimeout as delay } from 'node:timers/promises';
import { ProofrunError } from '../core/errors.ts';
import type { RunId } from '../core/ids.ts';
import { livenessOf, type StoredRun } from '../store/index.ts';
import { callOwner, type ControlCall } from './control-client.host.ts';
import type { ControlRequest } from './control-protocol.ts';
import type { OutputStream } from './kept-output.host.ts';
import { reconcile } from './reconcile.host.ts';
import type { RunnerParts } from './runner.ts';
import { runPaths } from './state-directory.ts';

/** An owner that is alive and doesn't listen is asked again after this: it is about to, or about to end. Milliseconds. */
const AGAIN_MS = 25;
/** For how long a request of a person is repeated before it is given up. */
const PATIENCE_MS = 5000;

/**
 * Resolves to the run when it is over; one whose owner dies meanwhile is reconciled. Rejects when aborted, and with ERR_RUN_NOT_FOUND when
 * it was pruned.
 */
export async function waitForRun(parts: RunnerParts, runId: RunId, abort?: AbortSignal): Promise<StoredRun> {
  return (await converse(parts, runId, { request: { op: 'wait' }, ...(abort === undefined ? {} : { abort }) })).run;
}

export interface FollowedRun {
  readonly run: StoredRun;
  /** False: it was over before it could be followed, and nothing was handed over. */
  readonly followed: boolean;
}

/** As waitForRun, with the output of these streams from the beginning. */
export async function followRun(
  parts: RunnerParts,
  runId: RunId,
  streams: readonly OutputStream[],
  onOutput: NonNullable<ControlCall['onOutput']>,
): Promise<FollowedRun> {
  return await converse(parts, runId, { request: { op: 'follow', streams }, onOutput });
}

async function converse(parts: RunnerParts, runId: RunId, call: ControlCall): Promise<FollowedRun> {
  let followed = false;
  const counted: ControlCall = {
    ...call,
    onOutput: (answer) => {
      followed = true;
      return call.onOutput?.(answer);
    },
  };
  for (;;) {
    const run = readRun(parts, runId);
    if (run.lease === null) return { run, followed };
    const outcome = await callOwner(runPaths(parts.stateDirectory, runId).directory, counted);
    // An owner that ended before it read the request handed nothing over.
    followed ||= outcome.kind === 'done';
    if (outcome.kind === 'done') continue;
    if (livenessOf(run.lease.owner) === 'dead') await reconcile(parts);
    else await delay(AGAIN_MS, undefined, call.abort === undefined ? {} : { signal: call.abort });
  }
}

/** Tells the owner of a live run to do something. ERR_RUN_STATE when the run is over, refuses, or its owner doesn't answer. */
export async function askOwner(parts: RunnerParts, runId: RunId, request: Extract<ControlRequest, { op: 'signal' | 'stop' | 'kill' }>): Promise<void> {
  for (let waitedMs = 0; ; waitedMs += AGAIN_MS) {
    const run = readRun(parts, runId);
    if (run.lease === null) throw new ProofrunError('ERR_RUN_STATE', { message: `${runId}: it is ${run.state}`, hint: `job status ${runId}` });
    const outcome = await callOwner(runPaths(parts.stateDirectory, runId).directory, { request });
    if (outcome.kind === 'done') return;
    if (outcome.kind === 'refused') throw new ProofrunError('ERR_RUN_STATE', { message: `${runId}: ${outcome.message}`, hint: `job status ${runId}` });
    if (livenessOf(run.lease.owner) === 'dead') {
      await reconcile(parts);
    } else if (waitedMs >= PATIENCE_MS) {
      throw new ProofrunError('ERR_RUN_STATE', {
        message: `${runId}: its process (${run.lease.owner.pid}) does not answer`,
        hint: `kill ${run.lease.owner.pid} && job ls`,
      });
    } else {
      await delay(AGAIN_MS);
    }
  }
}

function readRun(parts: RunnerParts, runId: RunId): StoredRun {
  const run = parts.store.readRun(runId);
  if (run === undefined) throw new ProofrunError('ERR_RUN_NOT_FOUND', { message: `${runId} was removed`, hint: 'job ls' });
  return run;
}
