import { canonicalJson } from '../core/canonical-json.ts';
import type { AppliedPath } from '../core/change.ts';
import { ProofrunError } from '../core/errors.ts';
import { parseRunId } from '../core/ids.ts';
import type { JsonObject } from '../core/json.ts';
import { applyChanges, dropStage, recoverApply, type ApplyResult, type RecordApplied, type RecoveredApply, type Selection } from '../stage/index.ts';
import { currentOwner, livenessOf, type Store, type StoredRun } from '../store/index.ts';
import { readRunBundle } from './run-bundle.host.ts';
import type { RunnerParts } from './runner.ts';
import { openStage } from './staged-run.host.ts';
import { runPaths } from './state-directory.ts';

export type ApplyParts = Pick<RunnerParts, 'stateDirectory' | 'store' | 'shim' | 'executesOnHost'>;

export interface AppliedRun {
  readonly result: ApplyResult;
  readonly run: StoredRun;
}

/**
 * Brings staged changes of a run into its workspace: the selection as a whole, or nothing. The run's bundle has to be readable first. What
 * is applied is recorded with the run before the stage's own ledger goes; when nothing is left, the stage goes too. ERR_RUN_STATE,
 * ERR_BUNDLE_INVALID, and what applyChanges throws.
 */
export async function applyRun(parts: ApplyParts, run: StoredRun, selection: Selection, dryRun = false): Promise<AppliedRun> {
  await readRunBundle(parts.stateDirectory, run);
  const result = await applyChanges({
    runId: run.id,
    stateDirectory: parts.stateDirectory,
    stage: await openStage(parts, run),
    selection,
    record: recorder(parts.store, selectionJson(selection)),
    dryRun,
  });
  if (dryRun || !result.complete) return { result, run: parts.store.readRun(run.id) ?? run };
  const applied = parts.store.setStageState(run.id, { from: ['staged', 'partly_applied'], to: 'applied', events: [{ kind: 'stage.applied' }] });
  await dropStage({ shim: parts.shim, directory: runPaths(parts.stateDirectory, run.id).stage });
  return { result, run: applied };
}

/** Finishes or rolls back what a killed apply left half way, in any workspace. */
export async function recoverApplies(parts: Pick<RunnerParts, 'stateDirectory' | 'store' | 'shim'>): Promise<readonly RecoveredApply[]> {
  return await recoverApply({ shim: parts.shim, stateDirectory: parts.stateDirectory, record: recorder(parts.store, {}) });
}

/**
 * Throws away what a run staged. Terminal; the bundle stays. Repeating it is no error, and finishes a removal that was cut off.
 * ERR_RUN_STATE for a live run and for a stage that was applied.
 */
export async function dropRun(parts: Pick<RunnerParts, 'stateDirectory' | 'store' | 'shim'>, run: StoredRun): Promise<StoredRun> {
  let dropped = run;
  if (run.lease !== null) throw new ProofrunError('ERR_RUN_STATE', { message: `${run.id}: it is ${run.state}`, hint: `job stop ${run.id}` });
  if (run.stageState === 'applied') {
    throw new ProofrunError('ERR_RUN_STATE', { message: `${run.id}: its stage was applied already; nothing is left to drop`, hint: `job status ${run.id}` });
  }
  if (run.stageState === 'staged' || run.stageState === 'partly_applied') {
    dropped = parts.store.setStageState(run.id, { from: ['staged', 'partly_applied'], to: 'dropped', events: [{ kind: 'stage.dropped' }] });
  }
  await dropStage({ shim: parts.shim, directory: runPaths(parts.stateDirectory, run.id).stage });
  return dropped;
}

/** Keeps what an apply touched, once: the same paths told again, after a crash, are known. */
function recorder(store: Store, selection: JsonObject): RecordApplied {
  return (runId, touched) => {
    const id = parseRunId(runId);
    const run = id === undefined ? undefined : store.readRun(id);
    // A ledger of a run that was pruned meanwhile has nobody to tell.
    if (id === undefined || run === undefined) return;
    closeAbandoned(store, run.workspace);
    const paths = touched.map((path) => ({
      root: path.root,
      path: path.path,
      encoding: path.encoding,
      kind: path.state,
      before: null,
      after: identityJson(path),
      backup: null,
    }));
    if (isRecorded(store, run, touched)) return;
    const applyId = store.beginApply({ runId: id, workspace: run.workspace, owner: currentOwner(), selection, paths });
    const carriedOut = touched.some((path) => path.state !== 'restored');
    store.finishApply(applyId, {
      state: carriedOut ? 'done' : 'rolled_back',
      result: { paths: touched.length },
      ...(carriedOut ? { stage: { from: ['staged', 'partly_applied'], to: 'partly_applied' } } : {}),
    });
  };
}

/** A batch that a dying process opened and didn't close: its paths come again, with the stage's own ledger. */
function closeAbandoned(store: Store, workspace: string): void {
  for (const open of store.openApplies(workspace)) {
    if (livenessOf(open.owner) === 'dead') store.finishApply(open.id, { state: 'failed', result: { reason: 'its process died' } });
  }
}

function isRecorded(store: Store, run: StoredRun, touched: readonly AppliedPath[]): boolean {
  const wanted = digest(touched.map((path) => [path.root, path.encoding, path.path, path.state, identityJson(path)]));
  return store
    .applies(run.id)
    .some(
      (apply) =>
        (apply.state === 'done' || apply.state === 'rolled_back') &&
        digest(store.appliedPaths(apply.id).map((path) => [path.root, path.encoding, path.path, path.kind, path.after])) === wanted,
    );
}

function digest(rows: readonly unknown[]): string {
  return rows
    .map((row) => canonicalJson(row))
    .sort()
    .join('\n');
}

function identityJson(path: AppliedPath): JsonObject {
  return { dev: path.dev, ino: path.ino, ...(path.ctime === undefined ? {} : { ctime: path.ctime }) };
}

function selectionJson(selection: Selection): JsonObject {
  return { paths: selection.paths, include: selection.include, exclude: selection.exclude, allow_exec: selection.allowExec, overwrite: selection.overwrite };
}
