import { join } from 'node:path';
import { ulid } from 'ulid';
import type { AppliedPath } from '../core/change.ts';
import { ProofrunError } from '../core/errors.ts';
import { openApplySession } from './apply-session.host.ts';
import { lockPaths, recoverApply, type ApplyPlace, type RecoveredApply } from './apply-settle.host.ts';
import { encodePath, encodingOf } from './byte-path.ts';
import { afterDeath, carryOut } from './carry-out.host.ts';
import { applyDirectory, keptDirectory, loadKept } from './ledger.host.ts';
import type { PlanOperation } from './plan-bytes.ts';
import { parsePlan } from './plan-bytes.ts';
import { invertPlan } from './plan-inverse.ts';

export interface UndoInput extends ApplyPlace {
  readonly runId: string;
  /** Id of the apply: ApplyBatch.id. */
  readonly id: string;
  /** Absolute paths of the roots of the apply. */
  readonly roots: readonly string[];
}

export interface UndoResult {
  /** Empty when a crash had left the undo half way and it was finished now. */
  readonly undone: readonly AppliedPath[];
  readonly recovered: readonly RecoveredApply[];
}

/** Paths of a run's own roots are known again as the run knew them; of another directory nothing is remembered. */
function undonePath(operation: PlanOperation): AppliedPath {
  const encoding = encodingOf([operation.path]);
  return { root: operation.root, path: encodePath(operation.path, encoding), encoding, state: 'restored', dev: '0', ino: '0', ctime: [0, 0] };
}

/**
 * Takes an apply back: every path as it was, the very files where they could be kept, while all of it is still as it was applied; else
 * nothing is touched and ERR_STAGE_CONFLICT names the path. Throws ERR_RUN_STATE when nothing is kept of that apply, ERR_APPLY_LOCKED,
 * ERR_APPLY_INTERRUPTED.
 */
export async function undoChanges(input: UndoInput): Promise<UndoResult> {
  const directory = applyDirectory(input.stateDirectory);
  const kept = keptDirectory(input.stateDirectory);
  const recovered = await recoverApply({ ...input, roots: input.roots });
  const unsettled = recovered.find((past) => past.trouble !== undefined);
  if (unsettled?.trouble !== undefined) throw unsettled.trouble;
  if (
    recovered.some((past) => past.purpose === 'undo' && past.outcome === 'finished' && past.runId === input.runId) &&
    loadKept(kept, input.id) === undefined
  ) {
    return { undone: [], recovered };
  }
  const session = await openApplySession(input.shim, lockPaths(directory, input.roots), input.session);
  try {
    const found = loadKept(kept, input.id);
    if (found === undefined) {
      throw new ProofrunError('ERR_RUN_STATE', {
        message: `nothing is kept of the apply ${input.id}: it can't be taken back`,
        hint: `job status ${input.runId}`,
      });
    }
    const plan = parsePlan(found.plan);
    const target = found.ledger.purpose === 'target';
    for (const stagingParent of [directory, undefined]) {
      const inverse = invertPlan({
        plan,
        inodes: found.ledger.paths.map((path) => BigInt(path.ino)),
        id: ulid(),
        kept: plan.roots.map((_, root) => join(kept, `${input.id}.${root}`)),
        stagingParent,
        uid: process.getuid?.() ?? 0,
      });
      const paths = inverse.operations.map(undonePath);
      const undone = await carryOut({ place: input, session, runId: input.runId, purpose: 'undo', undoes: input.id, plan: inverse, paths });
      if (undone !== 'other_mount') return { undone: target ? [] : undone, recovered };
    }
    throw new ProofrunError('ERR_INTERNAL', { message: 'the staging directory inside the workspace is on another filesystem' });
  } catch (error) {
    throw await afterDeath(error, input, input.roots, session);
  } finally {
    await session.close();
  }
}
