import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { errnoOf } from '../core/errors.ts';
import { parseRunId } from '../core/ids.ts';
import { TERMINAL_STATES } from '../core/run.ts';
import { dropStage } from '../stage/index.ts';
import type { StoredRun } from '../store/index.ts';
import { removeTree } from './run-directory.host.ts';
import type { RunnerParts } from './runner.ts';
import { runPaths } from './state-directory.ts';
import { forgetPruned } from './undo-run.host.ts';

export interface PruneRule {
  /** Only runs that ended before this, ms since the epoch. */
  readonly endedBeforeMs: number;
  /** Also runs whose stage was neither applied nor dropped. */
  readonly staged: boolean;
  /** Only of this workspace; undefined: of all. */
  readonly workspace?: string;
}

export interface Pruned {
  readonly removed: readonly StoredRun[];
  /** Runs that the rule would take but for their stage. */
  readonly keptForStage: number;
  /** Absolute paths that could not be removed. */
  readonly left: readonly string[];
}

/** What prune would take. Never a live run. */
export function prunable(parts: Pick<RunnerParts, 'store'>, rule: PruneRule): { readonly runs: readonly StoredRun[]; readonly keptForStage: number } {
  const ended = parts.store.listRuns({
    states: TERMINAL_STATES,
    endedBeforeMs: rule.endedBeforeMs,
    ...(rule.workspace === undefined ? {} : { workspace: rule.workspace }),
  });
  const runs = ended.filter((run) => rule.staged || (run.stageState !== 'staged' && run.stageState !== 'partly_applied'));
  return { runs, keptForStage: ended.length - runs.length };
}

/** Removes records, bundles, outputs and stages. First the record, then the directory: what a crash leaves between them the next prune sweeps. */
export async function prune(parts: Pick<RunnerParts, 'stateDirectory' | 'store' | 'shim'>, rule: PruneRule): Promise<Pruned> {
  const { runs, keptForStage } = prunable(parts, rule);
  const left: string[] = [];
  for (const run of runs) {
    parts.store.deleteRun(run.id, { staged: rule.staged });
    left.push(...(await removeRunDirectory(parts, run.id)));
  }
  await forgetPruned(parts);
  for (const id of unknownDirectories(parts)) left.push(...(await removeRunDirectory(parts, id)));
  return { removed: runs, keptForStage, left };
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
