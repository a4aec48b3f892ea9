import { closeSync, constants, existsSync, fstatSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { LOGIN_OUTCOMES, type BundleLogin, type LoginOutcome } from '../core/bundle.ts';
import { sha256Hex } from '../core/canonical-json.ts';
import { errnoOf, messageOf, ProofrunError } from '../core/errors.ts';
import { parseRunId } from '../core/ids.ts';
import type { EffectiveJob, LoginGrant } from '../core/job.ts';
import { TERMINAL_STATES } from '../core/run.ts';
import { readRegularFile, sweepTemporaries, writeDurably } from '../store/durable-file.host.ts';
import { withFileLock } from '../store/file-lock.host.ts';
import type { Store } from '../store/index.ts';
import { readLayerFile } from './layer-file.host.ts';
import type { LoginPoint } from './points.ts';
import { judgeLogin, laterLogin, LOGIN_BYTES } from './login-value.ts';
import { runPaths } from './state-directory.ts';

export interface LoginParts {
  readonly stateDirectory: string;
  /** Told of each moment at which a process may be killed, while the lock is held. Tests alone give it. */
  readonly atLogin?: (point: LoginPoint) => void;
}

/** A login file of a run, as it is kept in `logins/<run>.json` until the run's end is recorded. */
interface LoginEntry {
  readonly path: string;
  readonly home: string;
  readonly profile: string;
  readonly writeBack: boolean;
  readonly values: readonly string[];
  readonly newest?: string;
  /** Digest of what the job was given, or of what was written back since. */
  readonly base: string;
  readonly end: { readonly outcome: LoginOutcome; readonly detail: string | null; readonly kept: string | null } | null;
}

interface LoginRecord {
  readonly version: 1;
  readonly run: string;
  /** Where the job's private home lies; null before the launch. */
  readonly layer: string | null;
  readonly entries: readonly LoginEntry[];
}

export interface PreparedLogins {
  /** For the launch. */
  readonly files: readonly { readonly path: string; readonly source: string }[];
  readonly warnings: readonly string[];
}

/**
 * Takes a copy of each login file of a job that is about to be launched. What other runs have refreshed so far is written back before, so that the job gets the
 * newest: a refresh token serves once. A login that isn't there, or can't be read safely, doesn't enter, and is told as a warning.
 */
export function prepareLogins(parts: LoginParts, runId: string, job: EffectiveJob): PreparedLogins {
  const { logins = [] } = job.permissions.credentials;
  if (logins.length === 0) return { files: [], warnings: [] };
  const { scratch } = runPaths(parts.stateDirectory, runId);
  mkdirSync(join(scratch, 'logins'), { recursive: true, mode: 0o700 });
  mkdirSync(recordsOf(parts), { recursive: true, mode: 0o700 });
  return locked(parts, () => {
    const paths = new Set(logins.map(({ path }) => path));
    for (const other of recordIds(parts)) if (other !== runId) settleRecord(parts, other, { only: paths, final: false });
    const files: { path: string; source: string }[] = [];
    const warnings: string[] = [];
    const entries: LoginEntry[] = [];
    for (const login of logins) {
      const found = readHostLogin(login);
      if (found.kind === 'absent') continue;
      if (found.kind === 'refused') {
        warnings.push(`the login file ${login.path} does not enter the job: ${found.reason}`);
        continue;
      }
      const source = baseFile(parts, runId, entries.length);
      writeDurably(source, found.bytes, { sync: false });
      files.push({ path: login.path, source });
      const { path, profile, writeBack, values, newest } = login;
      entries.push({ path, home: job.home, profile, writeBack, values, ...(newest === undefined ? {} : { newest }), base: sha256Hex(found.bytes), end: null });
    }
    if (entries.length > 0) writeRecord(parts, { version: 1, run: runId, layer: null, entries });
    return { files, warnings };
  });
}

/** The sandbox is built: what the job will write to its home lies there. Before the command is released. */
export function placeLogins(parts: LoginParts, runId: string, layer: string): void {
  locked(parts, () => {
    const record = readRecord(parts, runId);
    if (record !== undefined) writeRecord(parts, { ...record, layer });
  });
}

/**
 * Writes back what the job refreshed, once, and says what became of every login file. The sandbox must be gone. Never throws for what a job left: that is `failed`,
 * with the kept copy. Of a run without logins: nothing.
 */
export function settleLogins(parts: LoginParts, runId: string): readonly BundleLogin[] {
  if (!existsSync(recordFile(parts, runId))) return [];
  return locked(parts, () => {
    const record = settleRecord(parts, runId, { only: undefined, final: true });
    return (record?.entries ?? []).map(({ path, profile, end }) => ({ path, profile, ...(end ?? UNCHANGED) }));
  });
}

/** The account of the run is written: its record goes. */
export function forgetLogins(parts: LoginParts, runId: string): void {
  rmSync(recordFile(parts, runId), { force: true });
}

/** Removes records of runs that are over and accounted for; a process may die between the two. */
export function sweepLogins(parts: LoginParts, store: Pick<Store, 'readRun'>): void {
  for (const id of recordIds(parts)) {
    const runId = parseRunId(id);
    const state = runId === undefined ? undefined : store.readRun(runId)?.state;
    if (state === undefined || TERMINAL_STATES.includes(state)) forgetLogins(parts, id);
  }
}

const UNCHANGED = { outcome: 'unchanged', detail: null, kept: null } as const;

interface SettleRule {
  /** Undefined: every file of the record. */
  readonly only: ReadonlySet<string> | undefined;
  /** The run is over: what can't be written back is kept and told. A live run is asked again. */
  readonly final: boolean;
}

/** Under the lock. */
function settleRecord(parts: LoginParts, runId: string, rule: SettleRule): LoginRecord | undefined {
  const record = readRecord(parts, runId);
  if (record === undefined) return undefined;
  const entries = record.entries.map((entry, index) => {
    if (entry.end !== null || (rule.only !== undefined && !rule.only.has(entry.path))) return entry;
    return settleEntry(parts, record, entry, index, rule.final);
  });
  if (entries.every((entry, index) => entry === record.entries[index])) return record;
  const settled = { ...record, entries };
  writeRecord(parts, settled);
  parts.atLogin?.('login-settled');
  return settled;
}

function settleEntry(parts: LoginParts, record: LoginRecord, entry: LoginEntry, index: number, final: boolean): LoginEntry {
  const end = (outcome: LoginOutcome, detail: string | null = null, kept: string | null = null): LoginEntry =>
    final ? { ...entry, end: { outcome, detail, kept } } : entry;
  const names = entry.path.slice(entry.home.length + 1).split('/');
  const left = record.layer === null ? ({ kind: 'absent' } as const) : readLayer(record.layer, names);
  if (left.kind === 'absent') return end('unchanged');
  if (left.kind === 'deleted') return end('deleted');
  if (left.kind === 'refused') {
    return entry.writeBack ? end('failed', `what the job left there is ${left.reason}, and nothing of it was kept`) : end('not_kept');
  }
  const { bytes } = left;
  if (sha256Hex(bytes) === entry.base) return end('unchanged');
  if (!entry.writeBack) return end('not_kept');
  const failed = (detail: string): LoginEntry => {
    if (!final) return entry;
    try {
      return end('failed', detail, keepCopy(parts, record.run, index, entry.path, bytes));
    } catch (error) {
      // The reserve makes room, and this is asked again.
      if (error instanceof ProofrunError && error.code === 'ERR_DISK_FULL') throw error;
      return end('failed', `${detail}; the copy could not be kept either: ${messageOf(error)}`);
    }
  };
  try {
    const base = readBase(parts, record.run, index);
    if (base === undefined) return failed('what it was at the start is not known any more');
    const judged = judgeLogin(base, bytes, entry);
    if (judged.kind === 'refused') return failed(judged.reason);
    const host = readHostLogin(entry);
    if (host.kind === 'absent') return failed('the file is gone from the host');
    if (host.kind === 'refused') return failed(`the host's file can't be replaced: ${host.reason}`);
    const now = sha256Hex(host.bytes);
    if (now !== sha256Hex(bytes)) {
      if (now !== entry.base) {
        const later = laterLogin(host.bytes, bytes, entry);
        if (later === 'a') return end('superseded');
        const shape = judgeLogin(host.bytes, bytes, entry);
        if (later === undefined || shape.kind === 'refused') return failed('the file on the host was changed meanwhile');
      }
      parts.atLogin?.('login-judged');
      writeDurably(entry.path, bytes, {
        announce: (point) => {
          if (point === 'written') parts.atLogin?.('login-written');
          if (point === 'renamed') parts.atLogin?.('login-renamed');
        },
      });
    }
    // What a killed process left beside it.
    sweepTemporaries(entry.path);
    if (final) return end('written_back');
    writeDurably(baseFile(parts, record.run, index), bytes, { sync: false });
    return { ...entry, base: sha256Hex(bytes) };
  } catch (error) {
    return failed(messageOf(error));
  }
}

type HostLogin = { readonly kind: 'file'; readonly bytes: Buffer } | { readonly kind: 'absent' } | { readonly kind: 'refused'; readonly reason: string };

/** The host's login file: regular, one name, of this user, at most 1 MiB. */
function readHostLogin({ path }: Pick<LoginGrant, 'path'>): HostLogin {
  let descriptor: number;
  try {
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === 'ENOENT' || errno === 'ENOTDIR') return { kind: 'absent' };
    return { kind: 'refused', reason: errno === 'ELOOP' ? 'it is a symbolic link' : messageOf(error) };
  }
  try {
    const facts = fstatSync(descriptor);
    if (!facts.isFile()) return { kind: 'refused', reason: 'it is not a regular file' };
    if (facts.uid !== process.geteuid?.()) return { kind: 'refused', reason: `it belongs to uid ${facts.uid}` };
    if (facts.nlink !== 1) return { kind: 'refused', reason: `it has ${facts.nlink} names` };
    if (facts.size > LOGIN_BYTES) return { kind: 'refused', reason: `it has ${facts.size} bytes, at most ${LOGIN_BYTES} are copied` };
    return { kind: 'file', bytes: readFileSync(descriptor) };
  } finally {
    closeSync(descriptor);
  }
}

function readLayer(layer: string, names: readonly string[]): ReturnType<typeof readLayerFile> {
  try {
    return readLayerFile(layer, names, LOGIN_BYTES);
  } catch (error) {
    return errnoOf(error) === 'ENOENT' ? { kind: 'absent' } : { kind: 'refused', reason: `not readable (${messageOf(error)})` };
  }
}

function keepCopy(parts: LoginParts, runId: string, index: number, path: string, bytes: Buffer): string {
  const directory = join(runPaths(parts.stateDirectory, runId).directory, 'kept-logins');
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const kept = join(directory, `${index}-${basename(path)}`);
  writeDurably(kept, bytes);
  return kept;
}

function readBase(parts: LoginParts, runId: string, index: number): Buffer | undefined {
  try {
    return readRegularFile(baseFile(parts, runId, index), LOGIN_BYTES);
  } catch {
    return undefined;
  }
}

function baseFile(parts: LoginParts, runId: string, index: number): string {
  return join(runPaths(parts.stateDirectory, runId).scratch, 'logins', String(index));
}

function locked<T>(parts: LoginParts, body: () => T): T {
  return withFileLock(join(recordsOf(parts), 'lock'), body);
}

function recordsOf({ stateDirectory }: LoginParts): string {
  return join(stateDirectory, 'logins');
}

function recordFile(parts: LoginParts, runId: string): string {
  return join(recordsOf(parts), `${runId}.json`);
}

function recordIds(parts: LoginParts): readonly string[] {
  try {
    return readdirSync(recordsOf(parts)).flatMap((name) => /^(run-[0-9A-Z]{26})\.json$/.exec(name)?.[1] ?? []);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
}

function writeRecord(parts: LoginParts, record: LoginRecord): void {
  writeDurably(recordFile(parts, record.run), `${JSON.stringify(record)}\n`);
}

/** Undefined: there is none, or it is not one of this version. */
function readRecord(parts: LoginParts, runId: string): LoginRecord | undefined {
  try {
    const value: unknown = JSON.parse(readRegularFile(recordFile(parts, runId), LOGIN_BYTES).toString('utf8'));
    return isRecord(value) && value.run === runId ? value : undefined;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function isRecord(value: unknown): value is LoginRecord {
  if (typeof value !== 'object' || value === null || !('version' in value) || value.version !== 1) return false;
  if (!('run' in value) || typeof value.run !== 'string' || !('layer' in value) || !('entries' in value) || !Array.isArray(value.entries)) return false;
  return (value.layer === null || typeof value.layer === 'string') && value.entries.every(isEntry);
}

function isEntry(value: unknown): value is LoginEntry {
  if (typeof value !== 'object' || value === null || !('path' in value) || !('home' in value) || !('base' in value) || !('values' in value)) return false;
  if (typeof value.path !== 'string' || typeof value.home !== 'string' || typeof value.base !== 'string' || !Array.isArray(value.values)) return false;
  if (!('end' in value) || typeof value.end !== 'object') return false;
  const { end } = value;
  return (
    value.path.startsWith(`${value.home}/`) &&
    dirname(value.path) !== '/' &&
    (end === null || ('outcome' in end && LOGIN_OUTCOMES.some((one) => one === end.outcome)))
  );
}
