import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { getSystemErrorMap } from 'node:util';
import type { AppliedPath } from '../core/change.ts';
import { ProofrunError } from '../core/errors.ts';
import { displayPath } from '../core/text-safety.ts';
import { openApplySession, type ApplyAnswer, type ApplySession, type SessionOptions } from './apply-session.host.ts';
import {
  applyDirectory,
  keptDirectory,
  loadLedgers,
  moveLedger,
  planPath,
  removeLedger,
  saveLedger,
  type ApplyLedger,
  type LedgerPurpose,
} from './ledger.host.ts';
import { runShim } from './shim-process.host.ts';

/** One apply, undo, or apply to another directory, as the record knows it. */
export interface ApplyBatch {
  readonly id: string;
  readonly runId: string;
  readonly purpose: LedgerPurpose;
  /** Id of the batch that an undo takes back, else empty. */
  readonly undoes: string;
  readonly roots: readonly string[];
}

/**
 * Where applies are recorded. `begin`: before anything is touched; what it throws keeps the apply from beginning. `end`: once everything
 * is done or put back, again after a crash, before anything is forgotten; the paths are added to those of the run, and the latest word
 * on a path counts.
 */
export interface ApplyRecord {
  begin(batch: ApplyBatch, planned: readonly AppliedPath[]): void | Promise<void>;
  end(batch: ApplyBatch, outcome: 'done' | 'rolled_back', touched: readonly AppliedPath[]): void | Promise<void>;
}

/** What every command on applies needs. */
export interface ApplyPlace {
  /** Absolute path of proofrun-shim. */
  readonly shim: string;
  /** Where ledgers, plans and, on the same mount, the staging directory lie. 0700, never in the workspace. */
  readonly stateDirectory: string;
  readonly record: ApplyRecord;
  readonly session?: SessionOptions;
  /** Tests of crashes: called at each step between the ledger and the shim. */
  readonly at?: (point: LedgerPoint) => void | Promise<void>;
}

/** The steps of an apply that this program takes itself, in their order. */
export const LEDGER_POINTS = ['begun', 'planned', 'carried-out', 'ledger-applied', 'recorded', 'kept', 'cleaned', 'forgotten'] as const;
export type LedgerPoint = (typeof LEDGER_POINTS)[number];

export interface RecoveredApply {
  readonly runId: string;
  readonly purpose: LedgerPurpose;
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

export function errnoName(errno: number): string {
  return getSystemErrorMap().get(-errno)?.[0] ?? `errno ${errno}`;
}

export function lockPaths(directory: string, roots: readonly string[]): string[] {
  return roots.map((root) => join(directory, `${createHash('sha256').update(root).digest('hex').slice(0, 32)}.lock`));
}

function batchOf(ledger: ApplyLedger): ApplyBatch {
  return { id: ledger.id, runId: ledger.run_id, purpose: ledger.purpose, undoes: ledger.undoes, roots: ledger.roots };
}

export function stuckError(directory: string, ledger: ApplyLedger, answer: ApplyAnswer): ProofrunError {
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

/**
 * Records what is to be remembered, keeps what was there before for an undo, removes the staging directory, then the ledger: in this
 * order, so that a crash loses nothing. Each step can be repeated.
 */
export async function settle(place: ApplyPlace, session: ApplySession, settled: ApplyLedger): Promise<ApplyLedger> {
  const directory = applyDirectory(place.stateDirectory);
  const keptHere = keptDirectory(place.stateDirectory);
  const done = settled.state === 'applied';
  const ledger = done && settled.purpose === 'undo' ? await afterForgetting(place, session, settled) : settled;
  await place.record.end(batchOf(ledger), done ? 'done' : 'rolled_back', ledger.state === 'planned' ? [] : ledger.paths);
  await place.at?.('recorded');
  const plan = planPath(directory, ledger.id);
  let kept = done && ledger.purpose !== 'undo';
  if (existsSync(plan)) {
    if (kept) kept = (await session.keep(plan, keptHere)).result === 'kept';
    await place.at?.('kept');
    const answer = await session.request('clean', plan);
    if (answer.result !== 'cleaned') {
      throw new ProofrunError('ERR_APPLY_INTERRUPTED', {
        message: `the staging directory of an apply can't be removed: ${answer.what}: ${errnoName(answer.errno)}`,
        hint: 'the next command tries again',
      });
    }
    await place.at?.('cleaned');
  }
  await dropTree(place.shim, join(directory, `${ledger.id}.given`));
  if (kept) moveLedger(directory, keptHere, ledger.id);
  else removeLedger(directory, ledger.id);
  await place.at?.('forgotten');
  return ledger;
}

/** What was kept is a second name of what came back: that it goes moves the ctime, so it goes before the ctime is remembered. */
async function afterForgetting(place: ApplyPlace, session: ApplySession, ledger: ApplyLedger): Promise<ApplyLedger> {
  const directory = applyDirectory(place.stateDirectory);
  await forgetKept(place, ledger.undoes);
  if (!existsSync(planPath(directory, ledger.id))) return ledger;
  const answer = await session.request('tell', planPath(directory, ledger.id));
  // Cleaned already: then it was recorded too.
  if (answer.result !== 'told') return ledger;
  const told = withAnswer(ledger, answer);
  saveLedger(directory, told);
  return told;
}

async function dropTree(shim: string, path: string): Promise<void> {
  if (existsSync(path)) await runShim(shim, ['apply', '--remove', path]);
}

/** Gives up what was kept for the undo of one apply. Absent is fine. */
export async function forgetKept(place: Pick<ApplyPlace, 'shim' | 'stateDirectory'>, id: string): Promise<void> {
  const kept = keptDirectory(place.stateDirectory);
  for (let root = 0; root < 16; root++) await dropTree(place.shim, join(kept, `${id}.${root}`));
  removeLedger(kept, id);
}

/** The ledger with what the shim told of the entries that it brought. */
export function withAnswer(ledger: ApplyLedger, answer: ApplyAnswer): ApplyLedger {
  const told = new Map(answer.told.map((entry) => [entry.operation, entry]));
  return {
    ...ledger,
    state: 'applied',
    paths: ledger.paths.map((path, index): AppliedPath => {
      if (path.state === 'present') return { ...path, ino: answer.inodes[index] ?? '0' };
      const entry = told.get(index);
      return path.state !== 'restored' || entry === undefined ? path : { ...path, dev: entry.dev, ino: entry.ino, ctime: entry.ctime };
    }),
  };
}

/** Ends an apply that was put back: the new ctimes are remembered. */
export async function settleRestored(place: ApplyPlace, session: ApplySession, ledger: ApplyLedger, answer: ApplyAnswer): Promise<readonly AppliedPath[]> {
  const paths = answer.restored.flatMap(([index, seconds, nanoseconds]): AppliedPath[] => {
    const path = ledger.paths[index];
    const ino = ledger.before[index];
    // An undo that was put back leaves what the apply made: the run knows that already, and by content.
    return path === undefined || ino === undefined || ledger.purpose !== 'apply'
      ? []
      : [{ ...path, state: 'restored', dev: ledger.dev[path.root] ?? '0', ino, ctime: [seconds, nanoseconds] }];
  });
  const restored: ApplyLedger = { ...ledger, state: 'restored', paths };
  if (paths.length > 0) saveLedger(applyDirectory(place.stateDirectory), restored);
  await settle(place, session, restored);
  return paths;
}

/** Finishes or rolls back one ledger; the session holds its locks. */
async function recoverLedger(place: ApplyPlace, session: ApplySession, ledger: ApplyLedger): Promise<RecoveredApply> {
  const directory = applyDirectory(place.stateDirectory);
  const base = { runId: ledger.run_id, purpose: ledger.purpose, roots: ledger.roots };
  if (ledger.state !== 'planned') {
    const { paths } = await settle(place, session, ledger);
    return { ...base, outcome: ledger.state === 'applied' ? 'finished' : 'rolled_back', touched: ledger.purpose === 'target' ? [] : paths };
  }
  const answer = await session.request('recover', planPath(directory, ledger.id));
  switch (answer.result) {
    case 'finished':
    case 'committed': {
      const applied = withAnswer(ledger, answer);
      saveLedger(directory, applied);
      const settled = await settle(place, session, applied);
      return { ...base, outcome: 'finished', touched: ledger.purpose === 'target' ? [] : settled.paths };
    }
    case 'rolled_back':
    case 'nothing':
      return { ...base, outcome: 'rolled_back', touched: await settleRestored(place, session, ledger, answer) };
    case 'stuck':
      return { ...base, outcome: 'unsettled', touched: [], trouble: stuckError(directory, ledger, answer) };
    default:
      return { ...base, outcome: 'unsettled', touched: [], trouble: unsettledError(directory, ledger, answer) };
  }
}

/**
 * Finishes or rolls back every apply that a crash left half way (only those to `roots`, when given), and removes its litter. An apply
 * that is still going on (its lock is held) is left alone; one that can't be settled is reported, and nothing of it is lost.
 */
export async function recoverApply(place: ApplyPlace & { readonly roots?: readonly string[] }): Promise<RecoveredApply[]> {
  const directory = applyDirectory(place.stateDirectory);
  const wanted = place.roots === undefined ? undefined : new Set(place.roots);
  const done: RecoveredApply[] = [];
  for (const ledger of loadLedgers(directory)) {
    if (wanted !== undefined && !ledger.roots.some((root) => wanted.has(root))) continue;
    let session: ApplySession;
    try {
      session = await openApplySession(place.shim, lockPaths(directory, ledger.roots), place.session);
    } catch (error) {
      if (error instanceof ProofrunError && error.code === 'ERR_APPLY_LOCKED') continue;
      throw error;
    }
    try {
      // Read again under the lock: its owner may have settled it meanwhile.
      const current = loadLedgers(directory).find((other) => other.id === ledger.id);
      if (current !== undefined) done.push(await recoverLedger(place, session, current));
    } finally {
      await session.close();
    }
  }
  return done;
}
