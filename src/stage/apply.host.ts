import { ulid } from 'ulid';
import type { AppliedPath } from '../core/change.ts';
import { ProofrunError } from '../core/errors.ts';
import { appliedPaths, buildApplyPlan } from './apply-plan.ts';
import { openApplySession, type ApplySession } from './apply-session.host.ts';
import { lockPaths, recoverApply, type ApplyPlace, type RecoveredApply } from './apply-settle.host.ts';
import { afterDeath, carryOut } from './carry-out.host.ts';
import { readChangeSet, readTargetSet, type ReadStageInput, type StageView } from './change-set.host.ts';
import { applyDirectory, loadLedgers, removeOrphanPlans } from './ledger.host.ts';
import { selectChanges, type SelectedChanges, type Selection } from './select.ts';

/** What a person chose among the changes, after they were read: other entries, or the same with other content. */
export interface Choice {
  readonly entries: SelectedChanges['entries'];
  /** Those of them of which something stays staged. */
  readonly partial: ReadonlySet<SelectedChanges['entries'][number]>;
  /** Content of entries that is neither the layer's nor the tree's (StagedEntry.given), by name. */
  readonly given: ReadonlyMap<string, Buffer>;
}

export interface ApplyInput extends Omit<ApplyPlace, 'shim'> {
  readonly runId: string;
  readonly stage: ReadStageInput;
  readonly selection: Selection;
  /** Decide everything, change nothing. */
  readonly dryRun?: boolean;
  /** Another directory to apply to; absolute. The stage stays as it is. */
  readonly target?: string;
  /** Asked once everything is selected and nothing is in the way. Undefined from it: nothing is applied. */
  readonly choose?: (selected: SelectedChanges, view: StageView) => Promise<Choice | undefined>;
}

export interface ApplyResult {
  readonly applied: readonly AppliedPath[];
  readonly selected: SelectedChanges;
  /** True when nothing is left in the stage. */
  readonly complete: boolean;
  readonly recovered: readonly RecoveredApply[];
}

/**
 * Applies a selection of a stage to the tree: all of it or nothing. First any apply that a crash left is settled, then
 * the stage is read anew and every path is checked; each refusal names all paths (see selectChanges). What was applied
 * is recorded before the ledger goes, and what was there before is kept for an undo. Throws ERR_APPLY_LOCKED, ERR_STAGE_*,
 * ERR_APPLY_INTERRUPTED.
 */
export async function applyChanges(input: ApplyInput): Promise<ApplyResult> {
  const directory = applyDirectory(input.stateDirectory);
  const { shim } = input.stage;
  const place: ApplyPlace = { ...input, shim };
  const roots = input.target === undefined ? input.stage.roots.map((root) => root.root) : [input.target];
  const recovered = await recoverApply({ ...place, roots });
  const unsettled = recovered.find((past) => past.trouble !== undefined);
  if (unsettled?.trouble !== undefined) throw unsettled.trouble;
  const session = await openApplySession(shim, lockPaths(directory, roots), input.session);
  try {
    removeOrphanPlans(directory, new Set(loadLedgers(directory).map((ledger) => ledger.id)));
    const earlier = recovered.filter((past) => past.runId === input.runId).flatMap((past) => past.touched);
    const stage = { ...input.stage, applied: [...input.stage.applied, ...earlier] };
    const view = input.target === undefined ? await readChangeSet(stage) : await readTargetSet(stage, input.target);
    const selected = selectChanges(view.entries, input.stage.roots, input.selection);
    const complete = selected.entries.length === view.entries.length;
    if (input.dryRun === true || selected.entries.length === 0) {
      return { applied: [], selected, complete: complete && input.dryRun !== true, recovered };
    }
    const applied = await bringIn({ input, place, session, view, entries: selected.entries });
    return { applied, selected, complete, recovered };
  } catch (error) {
    throw await afterDeath(error, place, roots, session);
  } finally {
    await session.close();
  }
}

interface BringIn {
  readonly input: ApplyInput;
  readonly place: ApplyPlace;
  readonly session: ApplySession;
  readonly view: StageView;
  readonly entries: SelectedChanges['entries'];
}

/** Staging lies beside the state where that is the same mount, else in the root. */
async function bringIn({ input, place, session, view, entries }: BringIn): Promise<readonly AppliedPath[]> {
  for (const stagingParent of [applyDirectory(input.stateDirectory), undefined]) {
    const plan = buildApplyPlan({
      id: ulid(),
      roots: view.roots,
      directories: view.directories,
      entries,
      stagingParent,
      uid: process.getuid?.() ?? 0,
    });
    const paths = appliedPaths(plan, []);
    const applied = await carryOut({ place, session, runId: input.runId, purpose: input.target === undefined ? 'apply' : 'target', undoes: '', plan, paths });
    if (applied !== 'other_mount') return applied;
  }
  throw new ProofrunError('ERR_INTERNAL', { message: 'the staging directory inside the workspace is on another filesystem' });
}
