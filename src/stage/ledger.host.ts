import { closeSync, constants, fsyncSync, lstatSync, mkdirSync, openSync, readFileSync, readdirSync, renameSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import type { AppliedPath } from '../core/change.ts';
import { ProofrunError, errnoOf } from '../core/errors.ts';

/**
 * apply: changes of a stage came into its roots. target: into another directory, so that the stage knows nothing of it. undo: an apply
 * was taken back.
 */
export const LEDGER_PURPOSES = ['apply', 'target', 'undo'] as const;
export type LedgerPurpose = (typeof LEDGER_PURPOSES)[number];

/**
 * The record of one apply, written before anything is touched and gone when nothing is left to do.
 * planned: what happened has to be read from the tree. applied: everything was carried out, and has to be recorded.
 * restored: everything was put back, and `paths` are the ones whose ctime moved by that.
 */
export interface ApplyLedger {
  readonly version: 2;
  readonly id: string;
  readonly run_id: string;
  readonly purpose: LedgerPurpose;
  /** Id of the apply that an undo takes back, else empty. */
  readonly undoes: string;
  /** Absolute paths of the staged roots. */
  readonly roots: readonly string[];
  readonly state: 'planned' | 'applied' | 'restored';
  /** While planned or applied one for each operation of the plan; identities are filled in when the state is `applied`. */
  readonly paths: readonly AppliedPath[];
  /** Inode that each operation found, decimal. */
  readonly before: readonly string[];
  /** Device of each root, as in AppliedPath. */
  readonly dev: readonly string[];
}

const ID = /^[0-9A-Z]{26}$/;

/** The directory of ledgers, plans and staging in a state directory, made 0700 and checked to be one of ours. */
export function applyDirectory(stateDirectory: string): string {
  return ownDirectory(join(stateDirectory, 'apply'));
}

function ownDirectory(path: string): string {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  const facts = lstatSync(path);
  const uid = process.getuid?.() ?? facts.uid;
  if (!facts.isDirectory() || facts.uid !== uid || (facts.mode & 0o077) !== 0) {
    throw new ProofrunError('ERR_STAGE_LAYER', { message: `${path} must be a directory of yours with mode 0700` });
  }
  return path;
}

/** The directory of what was there before each apply, for an undo. 0700, on the filesystem of the ledgers. */
export function keptDirectory(stateDirectory: string): string {
  return ownDirectory(join(stateDirectory, 'undo'));
}

export function planPath(directory: string, id: string): string {
  return join(directory, `${id}.plan`);
}

function syncDirectory(path: string): void {
  const fd = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

function writeNew(path: string, bytes: Buffer): void {
  const fd = openSync(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW, 0o600);
  try {
    for (let done = 0; done < bytes.length;) {
      done += writeSync(fd, bytes, done);
    }
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/** Writes the plan; durable with the next saveLedger in the same directory. */
export function savePlan(directory: string, id: string, plan: Buffer): void {
  writeNew(planPath(directory, id), plan);
}

/** Writes content that belongs to one apply; durable with its ledger, which comes later. Returns the directory. */
export function saveGiven(directory: string, id: string, given: ReadonlyMap<string, Buffer>): string {
  const path = join(directory, `${id}.given`);
  mkdirSync(path, { mode: 0o700 });
  for (const [name, content] of given) writeNew(join(path, name), content);
  syncDirectory(path);
  return path;
}

/** Writes a ledger atomically and durably. */
export function saveLedger(directory: string, ledger: ApplyLedger): void {
  const path = join(directory, `${ledger.id}.json`);
  const fresh = `${path}.new`;
  rmSync(fresh, { force: true });
  writeNew(fresh, Buffer.from(JSON.stringify(ledger)));
  renameSync(fresh, path);
  syncDirectory(directory);
}

/** Moves an apply that is over to the directory of what was kept; the ledger last. */
export function moveLedger(directory: string, kept: string, id: string): void {
  rmSync(join(directory, `${id}.json.new`), { force: true });
  for (const name of [`${id}.plan`, `${id}.json`]) {
    try {
      renameSync(join(directory, name), join(kept, name));
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') throw error;
    }
  }
  syncDirectory(kept);
}

/** Every apply of which something is kept, with its run. A damaged record counts as one of no run. */
export function keptRuns(stateDirectory: string): readonly { readonly id: string; readonly runId: string }[] {
  const kept = keptDirectory(stateDirectory);
  return readdirSync(kept).flatMap((name) => {
    const id = /^([0-9A-Z]{26})\.json$/.exec(name)?.[1];
    return id === undefined ? [] : [{ id, runId: parseLedger(readFileSync(join(kept, name), 'utf8'))?.run_id ?? '' }];
  });
}

/** What was kept of one apply; undefined when it can't be taken back any more. */
export function loadKept(kept: string, id: string): { readonly ledger: ApplyLedger; readonly plan: Buffer } | undefined {
  if (!ID.test(id)) return undefined;
  try {
    const ledger = parseLedger(readFileSync(join(kept, `${id}.json`), 'utf8'));
    return ledger === undefined ? undefined : { ledger, plan: readFileSync(planPath(kept, id)) };
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

/** The plan first: a ledger without its plan is one that was never begun or is already settled. */
export function removeLedger(directory: string, id: string): void {
  rmSync(planPath(directory, id), { force: true });
  rmSync(join(directory, `${id}.json.new`), { force: true });
  rmSync(join(directory, `${id}.json`), { force: true });
}

function isAppliedPath(value: unknown): value is AppliedPath {
  if (typeof value !== 'object' || value === null) return false;
  const it = value as Partial<Record<keyof AppliedPath, unknown>>;
  return (
    typeof it.root === 'number' &&
    typeof it.path === 'string' &&
    (it.encoding === 'utf8' || it.encoding === 'base64') &&
    (it.state === 'present' || it.state === 'absent' || it.state === 'restored') &&
    typeof it.dev === 'string' &&
    /^\d+$/.test(it.dev) &&
    typeof it.ino === 'string' &&
    /^\d+$/.test(it.ino) &&
    (it.ctime === undefined || (Array.isArray(it.ctime) && it.ctime.length === 2 && it.ctime.every((part) => typeof part === 'number')))
  );
}

function isDecimals(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'string' && /^\d+$/.test(item));
}

function parseLedger(text: string): ApplyLedger | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof value !== 'object' || value === null) return undefined;
  const it = value as Partial<Record<keyof ApplyLedger, unknown>>;
  const good =
    it.version === 2 &&
    typeof it.id === 'string' &&
    ID.test(it.id) &&
    typeof it.run_id === 'string' &&
    LEDGER_PURPOSES.some((purpose) => purpose === it.purpose) &&
    typeof it.undoes === 'string' &&
    Array.isArray(it.roots) &&
    it.roots.every((root) => typeof root === 'string') &&
    (it.state === 'planned' || it.state === 'applied' || it.state === 'restored') &&
    Array.isArray(it.paths) &&
    it.paths.every(isAppliedPath) &&
    isDecimals(it.before) &&
    isDecimals(it.dev);
  return good ? (value as ApplyLedger) : undefined;
}

/** Every ledger that is left. Throws ERR_APPLY_INTERRUPTED for one that can't be read: it may stand for files. */
export function loadLedgers(directory: string): ApplyLedger[] {
  const found: ApplyLedger[] = [];
  for (const name of readdirSync(directory).sort()) {
    const id = /^([0-9A-Z]{26})\.json$/.exec(name)?.[1];
    if (id === undefined) continue;
    let text: string;
    try {
      text = readFileSync(join(directory, name), 'utf8');
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') continue;
      throw error;
    }
    const ledger = parseLedger(text);
    if (ledger?.id !== id) {
      throw new ProofrunError('ERR_APPLY_INTERRUPTED', {
        message: `the ledger ${join(directory, name)} is damaged`,
        hint: 'keep it and the directories beside it: they may hold files of the workspace',
      });
    }
    found.push(ledger);
  }
  return found;
}

/** Plans whose ledger was never written: nothing had begun. */
export function removeOrphanPlans(directory: string, known: ReadonlySet<string>): void {
  for (const name of readdirSync(directory)) {
    const id = /^([0-9A-Z]{26})\.(plan|json\.new|given)$/.exec(name)?.[1];
    if (id !== undefined && !known.has(id)) {
      rmSync(join(directory, name), { force: true, recursive: true });
    }
  }
}
