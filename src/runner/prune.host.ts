import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { errnoOf } from '../core/errors.ts';
import { parseRunId } from '../core/ids.ts';
import { TERMINAL_STATES } from '../core/run.ts';
import { dropStage } from '../stage/index.ts';
import type { StoredCheckpoint, StoredRun } from '../store/index.ts';
import { deleteCheckpoint, type CheckpointParts } from './checkpoint.host.ts';
import { removeTree } from './run-directory.host.ts';
import type { RunnerParts } from './runner.ts';
import { runPaths } from './state-directory.ts';
import { forgetPruned } from './undo-run.host.ts';

export interface PruneRule {
  /** Only runs that ended before this, ms since the epoch. */
  readonly endedBeforeMs: number;
  /** Also runs whose stage was neither applied nor dropped. */
  readonly staged: boolean;
  /** Also checkpoints made before `endedBeforeMs`, and the runs that only they keep. */
  readonly checkpoints?: boolean;
  /** Only of this workspace; undefined: of all. */
  readonly workspace?: string;
}

/** What a rule takes. */
export interface Prunable {
  readonly runs: readonly StoredRun[];
  readonly checkpoints: readonly StoredCheckpoint[];
  /** Runs that the rule would take but for their stage. */
  readonly keptForStage: number;
  /** Runs that the rule would take but for a checkpoint of theirs, or a run that started from them, that stays. */
  readonly keptForLineage: number;
}

export interface Pruned {
  readonly removed: readonly StoredRun[];
  readonly checkpoints: readonly StoredCheckpoint[];
  readonly keptForLineage: number;
  /** Runs that the rule would take but for their stage. */
  readonly keptForStage: number;
  /** Absolute paths that could not be removed. */
  readonly left: readonly string[];
}

/** What prune would take. Never a live run, and nothing that something which stays was made from. */
export function prunable(parts: Pick<RunnerParts, 'store'>, rule: PruneRule): Prunable {
  const { store } = parts;
  const ended = store.listRuns({
    states: TERMINAL_STATES,
    endedBeforeMs: rule.endedBeforeMs,
    ...(rule.workspace === undefined ? {} : { workspace: rule.workspace }),
  });
  const free = ended.filter((run) => rule.staged || (run.stageState !== 'staged' && run.stageState !== 'partly_applied'));
  const all = store.listCheckpoints(rule.workspace === undefined ? {} : { workspace: rule.workspace });
  const checkpoints = rule.checkpoints === true ? all.filter((one) => one.state === 'whole' && one.createdMs < rule.endedBeforeMs) : [];
  const going = new Set(checkpoints.map((one) => one.id));
  const kept = new Set<string>(
    store
      .listCheckpoints()
      .filter((one) => !going.has(one.id))
      .map((one) => one.runId),
  );
  const lineage = store.lineage();
  let runs = free;
  // A run that stays keeps the one that it came from, which may keep another.
  for (let before = -1; before !== runs.length;) {
    before = runs.length;
    const taken = new Set<string>(runs.map((run) => run.id));
    const parents = new Set<string>(lineage.filter((one) => !taken.has(one.runId)).map((one) => one.parent));
    runs = runs.filter((run) => !kept.has(run.id) && !parents.has(run.id));
  }
  return { runs, checkpoints, keptForStage: ended.length - free.length, keptForLineage: free.length - runs.length };
}

/** Removes records, bundles, outputs, stages and checkpoints. First the record, then the directory: what a crash leaves between them the next prune sweeps. */
export async function prune(parts: CheckpointParts, rule: PruneRule): Promise<Pruned> {
  const { runs, checkpoints, keptForStage, keptForLineage } = prunable(parts, rule);
  const left: string[] = [];
  for (const checkpoint of checkpoints) await deleteCheckpoint(parts, checkpoint);
  for (const run of runs) {
    parts.store.deleteRun(run.id, { staged: rule.staged });
    left.push(...(await removeRunDirectory(parts, run.id)));
  }
  await forgetPruned(parts);
  for (const id of unknownDirectories(parts)) left.push(...(await removeRunDirectory(parts, id)));
  return { removed: runs, checkpoints, keptForStage, keptForLineage, left };
}

async function removeRunDirectory(parts: Pick<RunnerParts, 'stateDirectory' | 'shim'>, id: string): Promise<readonly string[]> {
  const paths = runPaths(parts.stateDirectory, id);
  // What a job made in its layer may be deeper than any path.
  await dropStage({ shim: parts.shim, directory: paths.stage }).catch(() => undefined);
  return removeTree(paths.directory);
}

/** Directories of runs that the store doesn't know: a run is recorded before it gets one. */
function unknownDirectories(parts: Pick<RunnerParts, 'stateDirectory' | 'store'>): readonly string[] {
  try {
    return readdirSync(join(parts.stateDirectory, 'runs')).filter((name) => {
      const id = parseRunId(name);
      return id !== undefined && parts.store.readRun(id) === undefined;
    });
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
}
