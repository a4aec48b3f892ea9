import type { AppliedPath } from '../core/change.ts';
import { ProofrunError } from '../core/errors.ts';
import { safeText } from '../core/text-safety.ts';
import { ShimDied, type ApplyAnswer, type ApplySession } from './apply-session.host.ts';
import { errnoName, recoverApply, settle, settleRestored, stuckError, withAnswer, type ApplyPlace, type RecoveredApply } from './apply-settle.host.ts';
import { bytesOf } from './byte-path.ts';
import { applyDirectory, planPath, saveLedger, savePlan, type ApplyLedger, type LedgerPurpose } from './ledger.host.ts';
import { formatPlan, type PlanContent } from './plan-bytes.ts';

export interface CarriedOut {
  readonly place: ApplyPlace;
  readonly session: ApplySession;
  readonly runId: string;
  readonly purpose: LedgerPurpose;
  readonly undoes: string;
  readonly plan: PlanContent;
  /** One for each operation, as it is to be remembered; identities are filled in. */
  readonly paths: readonly AppliedPath[];
}

function runFailure(answer: ApplyAnswer, plan: PlanContent): ProofrunError {
  const operation = answer.operation === undefined ? undefined : plan.operations[answer.operation];
  const path = operation === undefined ? 'the workspace' : safeText(bytesOf(operation.path));
  if (answer.result === 'conflict') {
    return new ProofrunError('ERR_STAGE_CONFLICT', {
      message: `conflict: ${path}: ${answer.what}\nnothing was applied`,
      hint: 'look again: job status --review',
      data: { path, reason: answer.what },
    });
  }
  const errno = errnoName(answer.errno);
  return new ProofrunError(errno === 'ENOSPC' || errno === 'EDQUOT' ? 'ERR_STAGE_FULL' : 'ERR_STAGE_REFUSED', {
    message: `${path} can't be applied: ${answer.what}: ${errno}\nnothing was applied`,
    data: { path, call: answer.what, errno },
  });
}

/**
 * Records, runs and settles one plan under the locks of the session; returns what is remembered of it. `other_mount`: nothing was done,
 * because the staging directory has to lie in the root. Throws ERR_STAGE_*, ERR_APPLY_INTERRUPTED.
 */
export async function carryOut({ place, session, runId, purpose, undoes, plan, paths }: CarriedOut): Promise<readonly AppliedPath[] | 'other_mount'> {
  const directory = applyDirectory(place.stateDirectory);
  const ledger: ApplyLedger = {
    version: 2,
    id: plan.id,
    run_id: runId,
    purpose,
    undoes,
    roots: plan.roots.map((root) => root.path),
    state: 'planned',
    paths,
    before: plan.operations.map((operation) => String(operation.before?.ino ?? 0n)),
    dev: plan.roots.map((root) => String(root.dev)),
  };
  await place.record.begin({ id: plan.id, runId, purpose, undoes, roots: ledger.roots }, paths);
  await place.at?.('begun');
  savePlan(directory, plan.id, formatPlan(plan));
  saveLedger(directory, ledger);
  await place.at?.('planned');
  const answer = await session.request('run', planPath(directory, plan.id));
  await place.at?.('carried-out');
  if (answer.result === 'applied') {
    const applied = withAnswer(ledger, answer);
    saveLedger(directory, applied);
    await place.at?.('ledger-applied');
    return (await settle(place, session, applied)).paths;
  }
  if (answer.result === 'stuck') throw stuckError(directory, ledger, answer);
  await settleRestored(place, session, ledger, answer);
  // Project quotas and the like: the same mount, and yet no rename between the two directories.
  const inside = plan.roots.every((root) => root.stagingParent === '');
  if (answer.result === 'failed' && errnoName(answer.errno) === 'EXDEV' && !inside) return 'other_mount';
  throw runFailure(answer, plan);
}

/** What to say when the shim died: the apply is settled at once. Any other error passes. */
export async function afterDeath(error: unknown, place: ApplyPlace, roots: readonly string[], session: ApplySession): Promise<unknown> {
  if (!(error instanceof ShimDied)) return error;
  await session.close();
  let outcome: RecoveredApply | undefined;
  try {
    [outcome] = await recoverApply({ ...place, roots });
  } catch (second) {
    if (!(second instanceof ShimDied)) return second;
    return new ProofrunError('ERR_APPLY_INTERRUPTED', {
      message: `a change of ${roots.join(', ')} was interrupted, and so was what puts it right`,
      hint: 'run the command again: it finishes the change or rolls it back first',
      cause: second,
    });
  }
  if (outcome?.outcome === 'unsettled') return outcome.trouble;
  const what = outcome?.purpose === 'undo' ? 'undo' : 'apply';
  return new ProofrunError('ERR_APPLY_INTERRUPTED', {
    message:
      outcome?.outcome === 'finished'
        ? `the ${what} was interrupted and has been finished`
        : `the ${what} was interrupted and has been rolled back: nothing was ${what === 'undo' ? 'undone' : 'applied'}`,
    hint: outcome?.outcome === 'finished' ? 'see job status' : 'run the command again',
    data: { outcome: outcome?.outcome ?? 'rolled_back' },
    cause: error,
  });
}
