import { ulid } from 'ulid';
import type { AppliedPath } from '../core/change.ts';
import { ProofrunError } from '../core/errors.ts';
import { appliedPaths, buildApplyPlan } from './apply-plan.ts';
import { openApplySession, type ApplySession } from './apply-session.host.ts';
import { lockPaths, recoverApply, type ApplyPlace, type RecoveredApply } from './apply-settle.host.ts';
import { afterDeath, carryOut } from './carry-out.host.ts';
import type { StagedEntry } from './change-set.ts';
import { readChangeSet, readTargetSet, type ReadStageInput, type StageView } from './change-set.host.ts';
import { applyDirectory, loadLedgers, removeOrphanPlans, saveGiven } from './ledger.host.ts';
import { mergeConflicts } from './merge.host.ts';
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
  /** Merge texts that changed here meanwhile, where what the run saw was kept. */
  readonly merge?: boolean;
  /** Asked once everything is selected and nothing is in the way. Undefined from it: nothing is applied. */
  readonly choose?: (selected: SelectedChanges, view: StageView) => Promise<Choice | undefined>;
}

export interface ApplyResult {
  readonly applied: readonly AppliedPath[];
  readonly selected: SelectedChanges;
  /** True when nothing is left in the stage. */
  readonly complete: boolean;
  readonly recovered: readonly RecoveredApply[];
  /** What was merged (ApplyInput.merge), with the places in it that need a person. */
  readonly merged?: readonly { readonly entry: StagedEntry; readonly conflicts: number }[];
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
    const merge = input.merge === true ? await mergeConflicts(view, input.stateDirectory) : undefined;
    const selected = selectChanges(merge?.entries ?? view.entries, input.stage.roots, input.selection);
    const complete = selected.entries.length === view.entries.length;
    if (input.dryRun === true || selected.entries.length === 0) {
      return { applied: [], selected, complete: complete && input.dryRun !== true, recovered };
    }
    const choice =
      input.choose === undefined
        ? { entries: selected.entries, partial: new Set<StagedEntry>(), given: new Map<string, Buffer>() }
        : await input.choose(selected, view);
    if (choice === undefined || choice.entries.length === 0) return { applied: [], selected: { entries: [], notes: [] }, complete: false, recovered };
    const given = new Map([...choice.given, ...(merge?.given ?? [])]);
    const applied = await bringIn({ input, place, session, view, choice: { ...choice, given } });
    return {
      merged: merge?.merged.filter(({ entry }) => choice.entries.includes(entry)) ?? [],
      applied,
      selected: input.choose === undefined ? selected : { entries: choice.entries, notes: selected.notes },
      complete: choice.entries.length === view.entries.length && choice.partial.size === 0,
      recovered,
    };
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
  readonly choice: Choice;
}

/** Staging lies beside the state where that is the same mount, else in the root. */
async function bringIn({ input, place, session, view, choice }: BringIn): Promise<readonly AppliedPath[]> {
  for (const stagingParent of [applyDirectory(input.stateDirectory), undefined]) {
    const id = ulid();
    const given = choice.given.size === 0 ? undefined : saveGiven(applyDirectory(input.stateDirectory), id, choice.given);
    const plan = buildApplyPlan({
      id,
      roots: view.roots,
      directories: view.directories,
      entries: choice.entries,
      stagingParent,
      uid: process.getuid?.() ?? 0,
      ...(given === undefined ? {} : { given }),
    });
    // Of what was taken in part the rest stays staged: the run knows the path as it is now.
    const partial = new Set([...choice.partial].map(({ change, path }) => `${change.root}/${path}`));
    const paths = appliedPaths(plan, []).map((path, index): AppliedPath => {
      const operation = plan.operations[index];
      return operation !== undefined && partial.has(`${operation.root}/${operation.path}`) ? { ...path, state: 'restored', ctime: [0, 0] } : path;
    });
    const applied = await carryOut({ place, session, runId: input.runId, purpose: input.target === undefined ? 'apply' : 'target', undoes: '', plan, paths });
    if (applied !== 'other_mount') return applied;
  }
  throw new ProofrunError('ERR_INTERNAL', { message: 'the staging directory inside the workspace is on another filesystem' });
}
