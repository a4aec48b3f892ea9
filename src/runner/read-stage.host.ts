import { lstatSync, readdirSync } from 'node:fs';
import type { BundleChanges } from '../core/bundle.ts';
import type { AppliedPath, StagedRoot } from '../core/change.ts';
import type { ReadStageInput } from '../stage/index.ts';
import { executesBeneath } from './executes-question.host.ts';
import type { RunnerParts } from './runner.ts';
import type { OverlayMarkers } from './stage-record.ts';

/** A stage that can be read: what prepareStaging made, or what the commands that come later found. */
export interface ReadableStage {
  readonly roots: readonly StagedRoot[];
  readonly markers: OverlayMarkers;
  readonly hidden: readonly { readonly path: string }[];
  /** The run's workspace; roots may be parts of it. */
  readonly workspace: string;
}

/** The input of the stage's own functions. */
export async function stageInput(
  parts: Pick<RunnerParts, 'shim' | 'executesOnHost'>,
  stage: ReadableStage,
  applied: readonly AppliedPath[],
): Promise<ReadStageInput> {
  return {
    shim: parts.shim,
    roots: stage.roots,
    markers: stage.markers,
    hidden: stage.hidden.map(({ path }) => path),
    applied,
    executes: executesBeneath(await parts.executesOnHost(), stage.roots, stage.workspace),
  };
}

/** What the job changed. A layer in which nothing was made is not scanned. Throws ERR_STAGE_LAYER. */
export async function readChanges(parts: Pick<RunnerParts, 'shim' | 'executesOnHost'>, stage: ReadableStage): Promise<BundleChanges> {
  const roots = stage.roots.map((root) => root.root);
  if (isUntouchedStage(stage)) {
    return { changes: [], totals: { added: 0, modified: 0, deleted: 0, other: 0, conflicts: 0, addedLines: 0, removedLines: 0 }, roots };
  }
  // Loaded when there is something to read: most of a job's time is its start.
  const { readChangeSet } = await import('../stage/change-set.host.ts');
  const { changeSet } = await readChangeSet(await stageInput(parts, stage, []));
  return { ...changeSet, roots };
}

/** Whether nothing was made in any layer. */
export function isUntouchedStage(stage: Pick<ReadableStage, 'roots'>): boolean {
  return stage.roots.every(isUntouched);
}

/** Nothing lies in the layer, and its top still has the permissions and the owner of the directory below. */
function isUntouched({ root, upper }: StagedRoot): boolean {
  if (readdirSync(upper).length > 0) return false;
  const [above, below] = [lstatSync(upper), lstatSync(root)];
  return above.mode === below.mode && above.uid === below.uid && above.gid === below.gid;
}
