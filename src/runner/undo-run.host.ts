import { ProofrunError } from '../core/errors.ts';
import { parseRunId } from '../core/ids.ts';
import { forgetKept, keptRuns, undoChanges, type SessionOptions, type UndoResult } from '../stage/index.ts';
import type { StoredApply, StoredRun } from '../store/index.ts';
import { applyRecord, batchFacts, type BatchFacts } from './apply-record.host.ts';
import type { ApplyParts } from './apply-run.host.ts';

export interface UndoneRun {
  readonly run: StoredRun;
  /** The batch that is taken back now, or was before. */
  readonly batch: string;
  /** Undefined: it had been taken back already. */
  readonly result: UndoResult | undefined;
  /** Batches of the run that are still applied, newest first. */
  readonly left: readonly string[];
}

interface KnownBatch {
  readonly apply: StoredApply;
  readonly facts: BatchFacts;
  readonly undone: boolean;
}

/** Applies of a run that were carried out, newest first. */
function batchesOf(parts: Pick<ApplyParts, 'store'>, run: StoredRun): readonly KnownBatch[] {
  const all = parts.store.applies(run.id).flatMap((apply): readonly { apply: StoredApply; facts: BatchFacts }[] => {
    const facts = batchFacts(apply);
    return facts === undefined || apply.state !== 'done' ? [] : [{ apply, facts }];
  });
  const undone = new Set(all.filter(({ facts }) => facts.purpose === 'undo').map(({ facts }) => facts.undoes));
  return all
    .filter(({ facts }) => facts.purpose !== 'undo')
    .map(({ apply, facts }) => ({ apply, facts, undone: undone.has(facts.batch) }))
    .reverse();
}

/**
 * Takes an apply of a run back: the newest, or the one with that id. Repeating it is no error and does nothing. All of it or nothing: it
 * is refused when a file is no longer as it was applied. ERR_RUN_STATE when the run has no apply, or nothing is kept of it.
 */
export async function undoRun(parts: ApplyParts, run: StoredRun, batchId?: string, session: SessionOptions = {}): Promise<UndoneRun> {
  const batches = batchesOf(parts, run);
  const chosen = batchId === undefined ? batches[0] : batches.find(({ apply }) => apply.id === batchId);
  if (chosen === undefined) {
    throw new ProofrunError('ERR_RUN_STATE', {
      message: batchId === undefined ? `${run.id}: nothing of it was applied` : `${run.id}: no apply ${batchId}`,
      hint: batches.length === 0 ? `job status ${run.id}` : `its applies: ${batches.map(({ apply }) => apply.id).join(', ')}`,
    });
  }
  const left = (): readonly string[] =>
    batchesOf(parts, run)
      .filter(({ undone }) => !undone)
      .map(({ apply }) => apply.id);
  if (chosen.undone) return { run, batch: chosen.apply.id, result: undefined, left: left() };
  const result = await undoChanges({
    runId: run.id,
    id: chosen.facts.batch,
    roots: chosen.facts.roots,
    shim: parts.shim,
    stateDirectory: parts.stateDirectory,
    record: applyRecord(parts.store, {}),
    session,
  });
  return { run: parts.store.readRun(run.id) ?? run, batch: chosen.apply.id, result, left: left() };
}

/** Gives up what was kept for the undo of applies whose run the store no longer knows. */
export async function forgetPruned(parts: Pick<ApplyParts, 'stateDirectory' | 'store' | 'shim'>): Promise<void> {
  for (const { id, runId } of keptRuns(parts.stateDirectory)) {
    const known = parseRunId(runId);
    if (known === undefined || parts.store.readRun(known) === undefined) await forgetKept(parts, id);
  }
}
