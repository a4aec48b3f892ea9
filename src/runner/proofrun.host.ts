import type { RunBundle } from '../core/bundle.ts';
import type { ChangeSet } from '../core/change.ts';
import type { RunId } from '../core/ids.ts';
import type { EffectiveJob } from '../core/job.ts';
import type { Admission } from '../core/plan.ts';
import { composeJob } from '../policy/compose.ts';
import { prepareJob, type CallerFacts } from '../policy/prepare.host.ts';
import type { JobRequest } from '../policy/request.ts';
import { readChangeSet, type Selection } from '../stage/index.ts';
import type { RunFilter, StoredCheckpoint, StoredRun } from '../store/index.ts';
import { AGENT_PATIENCE_MS, askAgent } from './agent-client.host.ts';
import { applyRun, dropRun, type AppliedRun } from './apply-run.host.ts';
import { createCheckpoint, deleteCheckpoint, startFromCheckpoint, verifyCheckpoint } from './checkpoint.host.ts';
import { OUTPUT_KEPT_BYTES, readKept, type KeptText, type OutputStream } from './kept-output.host.ts';
import { openRunner, type RunnerSetup } from './open-runner.host.ts';
import { hasPendingWork } from './pending-work.host.ts';
import { reconcile, type Reconciled } from './reconcile.host.ts';
import { readRunBundle } from './run-bundle.host.ts';
import type { RunHandle, RunIo, RunOptions, RunResult } from './runner.ts';
import { openStage } from './staged-run.host.ts';
import { startOnRun, type StartingPoint } from './starting-point.host.ts';
import { runPaths } from './state-directory.ts';
import { waitForRun } from './wait-run.host.ts';

/** How a job of the library runs: as `job run` does, but without streams unless they are given. */
export type StartOptions = Omit<Partial<RunOptions>, 'io'> & {
  /** Default: no input, output only kept. A terminal needs descriptors 0 to 2 of this process to be one. */
  readonly io?: RunIo;
};

/**
 * Runs jobs in this process, any number at a time, and reviews, applies or drops what they staged. One state directory, shared with the
 * command line. Methods reject with ProofrunError; a job that is refused, fails or is ended is a result.
 */
export interface Proofrun {
  /** Reads the host and composes a job once; the result can be run many times. */
  compose(request: JobRequest): Promise<EffectiveJob>;
  /** What would be installed, or why it is refused. Starts nothing. */
  plan(job: JobRequest | EffectiveJob): Promise<Admission>;
  /** Resolves when the run is recorded. */
  start(job: JobRequest | EffectiveJob, options?: StartOptions): Promise<RunHandle>;
  /** Resolves when the run is over and committed. */
  run(job: JobRequest | EffectiveJob, options?: StartOptions): Promise<RunResult>;
  /** Newest first. */
  list(filter?: RunFilter): readonly StoredRun[];
  /** An id, a unique prefix, a name, or `last`. */
  find(selector: string, workspace: string): StoredRun;
  /** The whole account of a run that is over. */
  bundle(id: RunId): Promise<RunBundle>;
  /** What is kept of one output stream; undefined: nothing came. */
  output(id: RunId, stream: OutputStream): KeptText | undefined;
  /** The staged changes against the tree as it is now. */
  changes(id: RunId): Promise<ChangeSet>;
  apply(id: RunId, selection: Selection): Promise<AppliedRun>;
  drop(id: RunId): Promise<StoredRun>;
  /** What `start` takes as `from`: the staged result of a run that is over. */
  on(id: RunId): StartingPoint;
  /** The same of a checkpoint (an id, a unique prefix, a name, or `last`), which is verified first. */
  fork(checkpoint: string, workspace: string): Promise<StartingPoint>;
  /** Keeps what a run has staged. A live run of this or another process: when its program says over AgentCtl that it is quiet, within `timeoutMs` (30 s). */
  checkpoint(id: RunId, options?: { readonly name?: string; readonly timeoutMs?: number }): Promise<StoredCheckpoint>;
  /** Newest first. */
  checkpoints(workspace?: string): readonly StoredCheckpoint[];
  /** What differs from the checkpoint as it was made; empty: nothing. */
  verifyCheckpoint(checkpoint: StoredCheckpoint): Promise<readonly string[]>;
  deleteCheckpoint(checkpoint: StoredCheckpoint): Promise<void>;
  /** Resolves to the run when it is over, also one of another process. */
  wait(id: RunId, abort?: AbortSignal): Promise<StoredRun>;
  /** Settles what processes that died left behind; createProofrun does it once. */
  reconcile(): Promise<Reconciled>;
  /** Ends live runs of this object, waits for them, and closes the store. Idempotent. */
  close(): Promise<void>;
}

export interface ProofrunSetup extends RunnerSetup {
  readonly caller: CallerFacts;
}

/** Opens the library over a registry of executors. ERR_STORE_UNREADABLE, ERR_DISK_FULL. */
export async function openProofrun(setup: ProofrunSetup): Promise<Proofrun> {
  const runner = openRunner(setup);
  const { parts } = runner;
  const live = new Map<RunHandle, Promise<unknown>>();
  let closing: Promise<void> | undefined;

  const read = (id: RunId): StoredRun => parts.store.findRun(id, '');
  const compose = async (request: JobRequest): Promise<EffectiveJob> => composeJob((await prepareJob(request, setup.caller, 'require')).input);
  const admitted = async (job: JobRequest | EffectiveJob): Promise<Admission> => await runner.admit('permissions' in job ? job : await compose(job));
  const start = async (job: JobRequest | EffectiveJob, options: StartOptions = {}): Promise<RunHandle> => {
    const handle = await runner.start(await admitted(job), {
      ...options,
      io: options.io ?? { kind: 'pipes', stdin: 'none', stdout: undefined, stderr: undefined },
    });
    const settled = handle.result.then(
      () => undefined,
      () => undefined,
    );
    live.set(handle, settled);
    void settled.then(() => live.delete(handle));
    return handle;
  };
  const closeAll = async (): Promise<void> => {
    for (const handle of live.keys()) handle.kill();
    await Promise.all(live.values());
    runner.close();
  };

  try {
    if (hasPendingWork(parts)) await reconcile(parts);
  } catch (error) {
    runner.close();
    throw error;
  }
  return {
    compose,
    plan: admitted,
    start,
    run: async (job, options) => await (await start(job, options)).result,
    list: (filter) => parts.store.listRuns(filter),
    find: (selector, workspace) => parts.store.findRun(selector, workspace),
    bundle: async (id) => await readRunBundle(parts.stateDirectory, read(id)),
    output: (id, stream) => readKept(runPaths(parts.stateDirectory, id).directory, stream, OUTPUT_KEPT_BYTES),
    changes: async (id) => (await readChangeSet(await openStage(parts, read(id)))).changeSet,
    apply: async (id, selection) => await applyRun(parts, read(id), selection),
    drop: async (id) => await dropRun(parts, read(id)),
    on: (id) => startOnRun(parts, read(id)),
    fork: async (checkpoint, workspace) => await startFromCheckpoint(parts, parts.store.findCheckpoint(checkpoint, workspace)),
    checkpoint: async (id, { name = null, timeoutMs = AGENT_PATIENCE_MS } = {}) => {
      const run = read(id);
      if (run.lease === null) return await createCheckpoint(parts, run, name);
      const made = await askAgent(runPaths(parts.stateDirectory, id).directory, id, { op: 'checkpoint', timeoutMs, name });
      return parts.store.findCheckpoint(typeof made.id === 'string' ? made.id : '', run.workspace);
    },
    checkpoints: (workspace) => parts.store.listCheckpoints(workspace === undefined ? {} : { workspace }),
    verifyCheckpoint: async (checkpoint) => await verifyCheckpoint(parts, checkpoint),
    deleteCheckpoint: async (checkpoint) => {
      await deleteCheckpoint(parts, checkpoint);
    },
    wait: async (id, abort) => await waitForRun(parts, id, abort),
    reconcile: async () => await reconcile(parts),
    close: () => {
      closing ??= closeAll();
      return closing;
    },
  };
}
