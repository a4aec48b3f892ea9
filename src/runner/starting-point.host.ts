import type { StagedRoot } from '../core/change.ts';
import { ProofrunError } from '../core/errors.ts';
import type { EffectiveJob } from '../core/job.ts';
import type { ExecutorPlan } from '../core/plan.ts';
import { startsFromLayers } from '../executor/executor.ts';
import type { Lineage, StoredRun } from '../store/index.ts';
import type { RunnerParts } from './runner.ts';
import { readStageRecord } from './staged-run.host.ts';
import { runPaths } from './state-directory.ts';
import type { OverlayMarkers } from './stage-record.ts';

/** The staged result that a new run starts from instead of the workspace alone. */
export interface StartingPoint {
  readonly lineage: Lineage;
  /** How a person calls it: `run-...` or `cp-...`. */
  readonly name: string;
  readonly markers: OverlayMarkers;
  /** Its roots, with absolute paths. */
  readonly roots: readonly StagedRoot[];
  /** Absolute paths that its run couldn't see. */
  readonly hidden: readonly string[];
  /** Throws when it was applied, dropped or removed: asked again after its layers were taken over. */
  readonly holds: () => void;
}

/** `--on RUN`. ERR_RUN_STATE, with the next command, for a run that goes on, or whose stage isn't there whole. */
export function startOnRun(parts: Pick<RunnerParts, 'stateDirectory' | 'store'>, run: StoredRun): StartingPoint {
  const holds = (): void => {
    refuseUnusable(parts.store.findRun(run.id, run.workspace));
  };
  refuseUnusable(run);
  const record = readStageRecord(runPaths(parts.stateDirectory, run.id).stage);
  if (record === undefined || record.roots.some((root) => root.base !== undefined)) {
    throw new ProofrunError('ERR_STAGE_LAYER', { message: `${run.id}: its stage is not there whole`, hint: `job status ${run.id}` });
  }
  return {
    lineage: { kind: 'on', parent: run.id, checkpoint: null },
    name: run.id,
    markers: record.markers,
    roots: record.roots,
    hidden: record.hidden.map(({ path }) => path),
    holds,
  };
}

/** Also for inspect and checkpoints: the run is over, and its stage is whole. */
export function refuseUnusable(run: StoredRun): void {
  const refuse = (fact: string, hint: string): never => {
    throw new ProofrunError('ERR_RUN_STATE', { message: `${run.id}: ${fact}`, hint });
  };
  if (run.lease !== null) refuse(`it is ${run.state}`, `job wait ${run.id}`);
  switch (run.stageState) {
    case 'none':
      refuse('it staged nothing: there is no result to start from', `job status ${run.id}`);
      break;
    case 'applied':
      refuse('its stage was applied: the workspace holds its result', 'leave --on out');
      break;
    case 'dropped':
      refuse('its stage was dropped', 'job ls');
      break;
    case 'partly_applied':
      refuse('a part of its stage was applied, so the rest alone is no longer its result', `job apply ${run.id} --all, or job drop ${run.id}`);
      break;
    case 'staged':
  }
}

/** Before anything is recorded: the new run stages the same directories, in a sandbox that can lay layers. ERR_USAGE, ERR_WORKSPACE. */
export async function refuseOtherRoots(parts: Pick<RunnerParts, 'executor'>, from: StartingPoint, plan: ExecutorPlan): Promise<void> {
  const { job } = plan;
  const executor = await parts.executor(plan.executor);
  if (!plan.dimensions.file_write.controls.includes('staged_workspace') || !startsFromLayers(executor)) {
    throw new ProofrunError('ERR_USAGE', {
      message: `the ${plan.executor} executor can't start from the staged result of ${from.name}`,
      hint: 'job run --executor native --on ...',
    });
  }
  const theirs = from.roots.map((root) => root.root);
  const ours = stagedRoots(job);
  if (theirs.length !== ours.length || theirs.some((root, index) => root !== ours[index])) {
    throw new ProofrunError('ERR_WORKSPACE', {
      message: `${from.name} staged ${theirs.join(', ')}; this job stages ${ours.join(', ')}`,
      hint: `--workspace ${theirs[0] ?? ''}`,
    });
  }
  const markers: OverlayMarkers = process.geteuid?.() === 0 ? 'trusted' : 'user';
  if (from.markers !== markers) {
    throw new ProofrunError('ERR_RUN_STATE', {
      message: `${from.name} was staged by ${from.markers === 'trusted' ? 'root' : 'an ordinary user'}: its layers can't be read as this user`,
    });
  }
}

function stagedRoots(job: EffectiveJob): readonly string[] {
  return job.permissions.fileWrite.stage;
}
