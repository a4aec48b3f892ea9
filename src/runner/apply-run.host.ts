import { lstatSync, realpathSync } from 'node:fs';
import { messageOf, ProofrunError } from '../core/errors.ts';
import type { JsonObject } from '../core/json.ts';
import { applyChanges, dropStage, recoverApply, type ApplyInput, type ApplyResult, type RecoveredApply, type Selection } from '../stage/index.ts';
import type { StoredRun } from '../store/index.ts';
import { applyRecord } from './apply-record.host.ts';
import { readRunBundle } from './run-bundle.host.ts';
import type { RunnerParts } from './runner.ts';
import { openStage } from './staged-run.host.ts';
import { runPaths } from './state-directory.ts';

export type ApplyParts = Pick<RunnerParts, 'stateDirectory' | 'store' | 'shim' | 'executesOnHost'>;

export interface AppliedRun {
  readonly result: ApplyResult;
  readonly run: StoredRun;
}

/** What an apply may do beside taking a selection. */
export type ApplyOptions = Pick<ApplyInput, 'dryRun' | 'target' | 'choose' | 'merge' | 'session'>;

/**
 * Brings staged changes of a run into its workspace: the selection as a whole, or nothing. The run's bundle has to be readable first. What
 * is applied is recorded with the run before the stage's own ledger goes. The stage and what was there before stay until `job prune`, so
 * that the apply can be taken back. ERR_RUN_STATE, ERR_BUNDLE_INVALID, and what applyChanges throws.
 */
export async function applyRun(parts: ApplyParts, run: StoredRun, selection: Selection, options: ApplyOptions = {}): Promise<AppliedRun> {
  await readRunBundle(parts.stateDirectory, run);
  const target = options.target === undefined ? undefined : targetDirectory(options.target, run, parts.stateDirectory);
  const result = await applyChanges({
    ...options,
    ...(target === undefined ? {} : { target }),
    runId: run.id,
    stateDirectory: parts.stateDirectory,
    stage: await openStage(parts, run),
    selection,
    record: applyRecord(parts.store, selectionJson(selection)),
  });
  const now = parts.store.readRun(run.id) ?? run;
  if (options.dryRun === true || options.target !== undefined || !result.complete) return { result, run: now };
  return { result, run: parts.store.setStageState(run.id, { from: ['staged', 'partly_applied'], to: 'applied', events: [{ kind: 'stage.applied' }] }) };
}

/** The real path of another directory to apply to. ERR_WORKSPACE. */
function targetDirectory(typed: string, run: StoredRun, stateDirectory: string): string {
  const wrong = (fact: string): ProofrunError =>
    new ProofrunError('ERR_WORKSPACE', { message: `--target ${typed}: ${fact}`, hint: 'name a directory, such as a copy of the workspace' });
  let target: string;
  try {
    target = realpathSync(typed);
  } catch (error) {
    throw wrong(messageOf(error));
  }
  if (!lstatSync(target).isDirectory()) throw wrong('expected a directory');
  if (target === run.workspace) throw new ProofrunError('ERR_USAGE', { message: `--target ${typed} is the workspace itself`, hint: 'leave --target out' });
  if (target === '/' || stateDirectory === target || stateDirectory.startsWith(`${target}/`) || target.startsWith(`${stateDirectory}/`)) {
    throw wrong('expected a directory apart from the records of Proofrun');
  }
  return target;
}

/** Finishes or rolls back what a killed apply left half way, in any workspace. */
export async function recoverApplies(parts: Pick<RunnerParts, 'stateDirectory' | 'store' | 'shim'>): Promise<readonly RecoveredApply[]> {
  return await recoverApply({ shim: parts.shim, stateDirectory: parts.stateDirectory, record: applyRecord(parts.store, {}) });
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

function selectionJson(selection: Selection): JsonObject {
  return { paths: selection.paths, include: selection.include, exclude: selection.exclude, allow_exec: selection.allowExec, overwrite: selection.overwrite };
}
