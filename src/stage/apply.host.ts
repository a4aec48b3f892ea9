import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { getSystemErrorMap } from 'node:util';
import { ulid } from 'ulid';
import type { AppliedPath } from '../core/change.ts';
import { ProofrunError } from '../core/errors.ts';
import { displayPath, safeText } from '../core/text-safety.ts';
import { appliedPaths, buildApplyPlan, type ApplyPlan } from './apply-plan.ts';
import { ShimDied, openApplySession, type ApplyAnswer, type ApplySession, type SessionOptions } from './apply-session.host.ts';
import { bytesOf, type BytePath } from './byte-path.ts';
import { readChangeSet, type ReadStageInput, type StageView } from './change-set.host.ts';
import { applyDirectory, loadLedgers, planPath, removeLedger, removeOrphanPlans, saveLedger, savePlan, type ApplyLedger } from './ledger.host.ts';
import { selectChanges, type SelectedChanges, type Selection } from './select.ts';

/**
 * Remembers what an apply touched (see AppliedPath): called once for each apply that changed the tree or put it back, again
 * after a crash, before anything is forgotten. The paths are added to those of the run; the latest word on a path counts.
 */
export type RecordApplied = (runId: string, touched: readonly AppliedPath[]) => void | Promise<void>;

export interface ApplyInput {
  readonly runId: string;
  /** Where ledgers, plans and, on the same mount, the staging directory lie. 0700, never in the workspace. */
  readonly stateDirectory: string;
  readonly stage: ReadStageInput;
  readonly selection: Selection;
  readonly record: RecordApplied;
  /** Decide everything, change nothing. */
  readonly dryRun?: boolean;
  readonly session?: SessionOptions;
}

export interface ApplyResult {
  readonly applied: readonly AppliedPath[];
  readonly selected: SelectedChanges;
  /** True when nothing is left in the stage. */
  readonly complete: boolean;
  readonly recovered: readonly RecoveredApply[];
}

export interface RecoveredApply {
  readonly runId: string;
  readonly roots: readonly string[];
  /**
   * finished: carried out whole and now recorded. rolled_back: the tree is as before. unsettled: neither could be done yet;
   * what was there before is kept, the ledger stays, and applies to these roots are refused until it is settled.
   */
  readonly outcome: 'finished' | 'rolled_back' | 'unsettled';
  readonly touched: readonly AppliedPath[];
  /** Why it is unsettled, with where things are kept and what to do. */
  readonly trouble?: ProofrunError;
}

export interface RecoverInput {
  readonly shim: string;
  readonly stateDirectory: string;
  readonly record: RecordApplied;
  /** Only applies to these roots; undefined: all. */
  readonly roots?: readonly string[];
  readonly session?: SessionOptions;
}

function errnoName(errno: number): string {
  return getSystemErrorMap().get(-errno)?.[0] ?? `errno ${errno}`;
}

function lockPaths(directory: string, roots: readonly string[]): string[] {
  return roots.map((root) => join(directory, `${createHash('sha256').update(root).digest('hex').slice(0, 32)}.lock`));
}

function stuckError(directory: string, ledger: ApplyLedger, answer: ApplyAnswer): ProofrunError {
  const paths = answer.stuck.flatMap((index) => {
    const path = ledger.paths[index];
    return path === undefined ? [] : [displayPath(path.path, path.encoding)];
  });
  const kept = answer.inside.map((inside, root) =>
    inside ? join(ledger.roots[root] ?? '', `.proofrun-apply-${ledger.id}`) : join(directory, `${ledger.id}.${root}`),
  );
  return new ProofrunError('ERR_APPLY_INTERRUPTED', {
    message: `an apply could not be put back whole: ${paths.join(', ')} changed meanwhile; what was there before is kept in ${kept.join(' and ')}`,
    hint: 'put these files where you want them, then run the command again',
    data: { paths, kept, ledger: join(directory, `${ledger.id}.json`) },
  });
}

/** The roots can't be reached or read: another disk, perhaps. Nothing was done. */
function unsettledError(directory: string, ledger: ApplyLedger, answer: ApplyAnswer): ProofrunError {
  return new ProofrunError('ERR_APPLY_INTERRUPTED', {
    message: `an interrupted apply to ${ledger.roots.join(', ')} can't be settled: ${answer.what}${answer.errno === 0 ? '' : `: ${errnoName(answer.errno)}`}`,
    hint: `bring the directory back; if it is gone for good, remove ${join(directory, ledger.id)}.*`,
    data: { ledger: join(directory, `${ledger.id}.json`) },
  });
}

/** Records what is to be remembered, removes the staging directory, then the ledger: in this order, so that a crash loses nothing. */
async function settle(directory: string, session: ApplySession, ledger: ApplyLedger, record: RecordApplied): Promise<void> {
  if (ledger.state !== 'planned' && ledger.paths.length > 0) {
    await record(ledger.run_id, ledger.paths);
  }
  const answer = await session.request('clean', planPath(directory, ledger.id));
  if (answer.result !== 'cleaned') {
    throw new ProofrunError('ERR_APPLY_INTERRUPTED', {
      message: `the staging directory of an apply can't be removed: ${answer.what}: ${errnoName(answer.errno)}`,
      hint: 'the next command tries again',
    });
  }
  removeLedger(directory, ledger.id);
}

function withInodes(ledger: ApplyLedger, answer: ApplyAnswer): ApplyLedger {
  return {
    ...ledger,
    state: 'applied',
    paths: ledger.paths.map((path, index) => (path.state === 'present' ? { ...path, ino: answer.inodes[index] ?? '0' } : path)),
  };
}

/** Ends an apply that was put back: the new ctimes are remembered. */
async function settleRestored(
  directory: string,
  session: ApplySession,
  ledger: ApplyLedger,
  answer: ApplyAnswer,
  record: RecordApplied,
): Promise<readonly AppliedPath[]> {
  const paths = answer.restored.flatMap(([index, seconds, nanoseconds]): AppliedPath[] => {
    const path = ledger.paths[index];
    const ino = ledger.before[index];
    return path === undefined || ino === undefined
      ? []
      : [{ ...path, state: 'restored', dev: ledger.dev[path.root] ?? '0', ino, ctime: [seconds, nanoseconds] }];
  });
  const restored: ApplyLedger = { ...ledger, state: 'restored', paths };
  if (paths.length > 0) {
    saveLedger(directory, restored);
  }
  await settle(directory, session, restored, record);
  return paths;
}

/** Finishes or rolls back one ledger; the session holds its locks. */
async function recoverLedger(directory: string, session: ApplySession, ledger: ApplyLedger, record: RecordApplied): Promise<RecoveredApply> {
  const base = { runId: ledger.run_id, roots: ledger.roots };
  if (ledger.state !== 'planned') {
    await settle(directory, session, ledger, record);
    return { ...base, outcome: ledger.state === 'applied' ? 'finished' : 'rolled_back', touched: ledger.paths };
  }
  const answer = await session.request('recover', planPath(directory, ledger.id));
  switch (answer.result) {
    case 'finished':
    case 'committed': {
      const applied = withInodes(ledger, answer);
      saveLedger(directory, applied);
      await settle(directory, session, applied, record);
      return { ...base, outcome: 'finished', touched: applied.paths };
    }
    case 'rolled_back':
    case 'nothing':
      return { ...base, outcome: 'rolled_back', touched: await settleRestored(directory, session, ledger, answer, record) };
    case 'stuck':
      return { ...base, outcome: 'unsettled', touched: [], trouble: stuckError(directory, ledger, answer) };
    default:
      return { ...base, outcome: 'unsettled', touched: [], trouble: unsettledError(directory, ledger, answer) };
  }
}

/**
 * Finishes or rolls back every apply that a crash left half way, and removes its litter. An apply that is still going on
 * (its lock is held) is left alone; one that can't be settled is reported, and nothing of it is lost.
 */
export async function recoverApply(input: RecoverInput): Promise<RecoveredApply[]> {
  const directory = applyDirectory(input.stateDirectory);
  const wanted = input.roots === undefined ? undefined : new Set(input.roots);
  const done: RecoveredApply[] = [];
  for (const ledger of loadLedgers(directory)) {
    if (wanted !== undefined && !ledger.roots.some((root) => wanted.has(root))) continue;
    let session: ApplySession;
    try {
      session = await openApplySession(input.shim, lockPaths(directory, ledger.roots), input.session);
    } catch (error) {
      if (error instanceof ProofrunError && error.code === 'ERR_APPLY_LOCKED') continue;
      throw error;
    }
    try {
      // Read again under the lock: its owner may have settled it meanwhile.
      const current = loadLedgers(directory).find((other) => other.id === ledger.id);
      if (current !== undefined) done.push(await recoverLedger(directory, session, current, input.record));
    } finally {
      await session.close();
    }
  }
  return done;
}

function runFailure(answer: ApplyAnswer, plan: ApplyPlan): ProofrunError {
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

/** Runs one plan under the locks; returns the settled ledger's paths. */
async function carryOut(
  directory: string,
  session: ApplySession,
  input: ApplyInput,
  view: StageView,
  entries: SelectedChanges['entries'],
  inside: boolean,
): Promise<readonly AppliedPath[] | 'other_mount'> {
  const id = ulid();
  const plan = buildApplyPlan({
    id,
    roots: view.roots,
    directories: view.directories,
    entries,
    stagingParent: inside ? undefined : directory,
    setOwner: process.getuid?.() === 0,
  });
  const ledger: ApplyLedger = {
    version: 1,
    id,
    run_id: input.runId,
    roots: view.roots.map((root) => root.root),
    state: 'planned',
    paths: appliedPaths(plan.operations, view.directories, []),
    before: plan.operations.map((operation) => String(operation.before?.ino ?? 0n)),
    dev: view.directories.map((directories) => String(directories.get('' as BytePath)?.dev ?? 0n)),
  };
  savePlan(directory, id, plan.bytes);
  saveLedger(directory, ledger);
  const answer = await session.request('run', planPath(directory, id));
  if (answer.result === 'applied') {
    const applied = withInodes(ledger, answer);
    saveLedger(directory, applied);
    await settle(directory, session, applied, input.record);
    return applied.paths;
  }
  if (answer.result === 'stuck') {
    throw stuckError(directory, ledger, answer);
  }
  await settleRestored(directory, session, ledger, answer, input.record);
  // Project quotas and the like: the same mount, and yet no rename between the two directories.
  if (answer.result === 'failed' && errnoName(answer.errno) === 'EXDEV' && !inside) {
    return 'other_mount';
  }
  throw runFailure(answer, plan);
}

/**
 * Applies a selection of a stage to the tree: all of it or nothing. First any apply that a crash left is settled, then
 * the stage is read anew and every path is checked; each refusal names all paths (see selectChanges). What was applied
 * is handed to `record` before the ledger goes. Throws ERR_APPLY_LOCKED, ERR_STAGE_*, ERR_APPLY_INTERRUPTED.
 */
export async function applyChanges(input: ApplyInput): Promise<ApplyResult> {
  const directory = applyDirectory(input.stateDirectory);
  const { shim } = input.stage;
  const roots = input.stage.roots.map((root) => root.root);
  const recovered = await recoverApply({ shim, stateDirectory: input.stateDirectory, record: input.record, roots });
  const unsettled = recovered.find((past) => past.trouble !== undefined);
  if (unsettled?.trouble !== undefined) throw unsettled.trouble;
  const session = await openApplySession(shim, lockPaths(directory, roots), input.session);
  try {
    removeOrphanPlans(directory, new Set(loadLedgers(directory).map((ledger) => ledger.id)));
    const earlier = recovered.filter((past) => past.runId === input.runId).flatMap((past) => past.touched);
    const view = await readChangeSet({ ...input.stage, applied: [...input.stage.applied, ...earlier] });
    const selected = selectChanges(view.entries, view.roots, input.selection);
    const complete = selected.entries.length === view.entries.length;
    if (input.dryRun === true || selected.entries.length === 0) {
      return { applied: [], selected, complete: complete && input.dryRun !== true, recovered };
    }
    let applied = await carryOut(directory, session, input, view, selected.entries, false);
    if (applied === 'other_mount') {
      applied = await carryOut(directory, session, input, view, selected.entries, true);
    }
    if (applied === 'other_mount') {
      throw new ProofrunError('ERR_INTERNAL', { message: 'the staging directory inside the workspace is on another filesystem' });
    }
    return { applied, selected, complete, recovered };
  } catch (error) {
    if (!(error instanceof ShimDied)) throw error;
    await session.close();
    const [outcome] = await recoverApply({ shim, stateDirectory: input.stateDirectory, record: input.record, roots });
    throw new ProofrunError('ERR_APPLY_INTERRUPTED', {
      message:
        outcome?.outcome === 'finished'
          ? 'the apply was interrupted and has been finished'
          : 'the apply was interrupted and has been rolled back: nothing was applied',
      hint: outcome?.outcome === 'finished' ? 'see job status' : 'run the command again',
      data: { outcome: outcome?.outcome ?? 'rolled_back' },
      cause: error,
    });
  } finally {
    await session.close();
  }
}
