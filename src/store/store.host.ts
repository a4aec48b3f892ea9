import type { CheckpointId, RunId } from '../core/ids.ts';
import { TERMINAL_STATES, type RunState, type StageState } from '../core/run.ts';
import { ProofrunError, messageOf } from '../core/errors.ts';
import type { JsonValue } from '../core/json.ts';
import { parseStrictJson } from '../core/strict-json.ts';
import * as applies from './applies.host.ts';
import type { ApplyEnd, AppliedPath, NewApply, StoredApply } from './applies.host.ts';
import * as checkpoints from './checkpoints.host.ts';
import type { CheckpointFilter, NewCheckpoint, StoredCheckpoint, WholeCheckpoint } from './checkpoints.host.ts';
import { Connection, type Clock, type StoreOptions } from './connection.host.ts';
import { openControl, type ControlStore } from './control.host.ts';
import { checkChain, type ChainCheck, type EventRow, type NewEvent, type StoredEvent } from './event-chain.ts';
import { listLineage, type StoredLineage } from './lineage.host.ts';
import { livenessOf, type Owner } from './owner.host.ts';
import { parseRunRow, rowDigest, type RunRow } from './run-row.ts';
import {
  appendRunEvents,
  insertRun,
  renewRunLease,
  restageRun,
  SELECT_RUN,
  takeOverRun,
  transitionRun,
  type NewRun,
  type RunChange,
  type StageChange,
} from './runs.host.ts';
import { parseSelector, runAmbiguous, runNotFound } from './selector.ts';
import { unreadableStore } from './sqlite-errors.ts';
import { toStoredRun, type Lease, type StoredRun } from './stored-run.ts';

export interface RunFilter {
  readonly workspace?: string;
  readonly states?: readonly RunState[];
  readonly stageStates?: readonly StageState[];
  readonly name?: string;
  /** Only runs that ended before this (ms since the epoch). */
  readonly endedBeforeMs?: number;
  /** Newest first; at most this many. */
  readonly limit?: number;
}

/**
 * The record of all runs of one user. Every method is one transaction, on disk when it returns, and safe among any number of processes.
 * Errors: ERR_STORE_UNREADABLE (damage), ERR_STORE_STALE (somebody else was faster), ERR_DISK_FULL.
 */
export interface Store {
  /** The database file. */
  readonly file: string;
  /** What opening noticed: a filesystem that may be shared between machines. */
  readonly warnings: readonly string[];
  /** Inserts a run in state recorded (with a lease) or refused. ERR_USAGE for a name that can't be one. */
  recordRun(run: NewRun, events: readonly NewEvent[]): StoredRun;
  /** Compare and set; an end is never left. ERR_STORE_STALE when state or fence differ. An end clears the lease. */
  transition(runId: RunId, change: RunChange): StoredRun;
  /** Events without a change of state. */
  appendEvents(runId: RunId, events: readonly NewEvent[]): StoredRun;
  /** Moves the moment at which an owner that can't be seen counts as gone. ERR_STORE_STALE under another fence. */
  renewLease(runId: RunId, fence: number, expiresMs: number): void;
  /** Makes the caller the owner of a living run; the fence rises. */
  takeOver(runId: RunId, fence: number, lease: Lease, events: readonly NewEvent[]): StoredRun;
  /** Compare and set of the stage state of a run that is over. ERR_RUN_STATE. */
  setStageState(runId: RunId, change: StageChange & { readonly events: readonly NewEvent[] }): StoredRun;
  /** Newest first. Damaged rows are among them, marked. */
  listRuns(filter?: RunFilter): readonly StoredRun[];
  /** By id; undefined when there is none. */
  readRun(runId: RunId): StoredRun | undefined;
  /**
   * An id, a unique prefix of one, a name (the newest of that name in the workspace, else in all), or `last` (the newest of the workspace).
   * ERR_RUN_NOT_FOUND, ERR_RUN_AMBIGUOUS.
   */
  findRun(selector: string, workspace: string): StoredRun;
  events(runId: RunId, after?: { readonly seq: number }): readonly StoredEvent[];
  /** Follows the event chain of a run to its row as it is now. */
  checkChain(runId: RunId): ChainCheck;
  /** Living runs whose owner is dead: gone, replaced by another process of that number, of an earlier boot, or unseen with an expired lease. */
  reconcilable(): readonly StoredRun[];
  /** Removes a run that is over, its events and batches. ERR_RUN_STATE for a living run, and for a stage that is neither applied nor dropped unless `staged`. */
  deleteRun(runId: RunId, options: { readonly staged: boolean }): void;
  /** See applies.host.ts. */
  beginApply(apply: NewApply): string;
  finishApply(applyId: string, end: ApplyEnd): StoredRun;
  openApplies(workspace?: string): readonly StoredApply[];
  applies(runId: RunId): readonly StoredApply[];
  appliedPaths(applyId: string): readonly AppliedPath[];
  /** Which run started from which; every run that did, of all workspaces. */
  lineage(): readonly StoredLineage[];
  /** See checkpoints.host.ts. */
  beginCheckpoint(checkpoint: NewCheckpoint): void;
  finishCheckpoint(id: CheckpointId, whole: WholeCheckpoint): StoredCheckpoint;
  beginCheckpointRemoval(id: CheckpointId, owner: Owner): StoredCheckpoint;
  forgetCheckpoint(id: CheckpointId): void;
  listCheckpoints(filter?: CheckpointFilter): readonly StoredCheckpoint[];
  findCheckpoint(selector: string, workspace: string): StoredCheckpoint;
  /** Half made or half removed, by processes that are dead. */
  abandonedCheckpoints(): readonly StoredCheckpoint[];
  /** Runs of the control runtime. */
  readonly control: ControlStore;
  /** Idempotent. */
  close(): void;
}

/** Opens the store of a state directory, creating it when missing. `clock`: milliseconds since the epoch. The caller closes it. */
export function openStore(stateDirectory: string, clock: Clock, options: StoreOptions = {}): Store {
  const connection = new Connection(stateDirectory, clock, options);
  return {
    file: connection.file,
    warnings: connection.warnings,
    recordRun: (run, events) => insertRun(connection, run, events),
    transition: (runId, change) => transitionRun(connection, runId, change),
    appendEvents: (runId, events) => appendRunEvents(connection, runId, events),
    renewLease: (runId, fence, expiresMs) => {
      renewRunLease(connection, runId, fence, expiresMs);
    },
    takeOver: (runId, fence, lease, events) => takeOverRun(connection, runId, fence, lease, events),
    setStageState: (runId, change) => restageRun(connection, runId, change),
    listRuns: (filter = {}) => listRuns(connection, filter),
    readRun: (runId) => readRun(connection, runId),
    findRun: (selector, workspace) => findRun(connection, selector, workspace),
    events: (runId, after) =>
      connection
        .all('SELECT * FROM events WHERE run_id = ? AND seq > ? ORDER BY seq', runId, after?.seq ?? 0)
        .map((row) => toStoredEvent(parseEventRow(row, connection.file))),
    checkChain: (runId) => checkRunChain(connection, runId),
    reconcilable: () => listRuns(connection, { states: LIVING }).filter((run) => isOrphan(run, clock())),
    deleteRun: (runId, removal) => {
      deleteRun(connection, runId, removal.staged);
    },
    beginApply: (apply) => applies.beginApply(connection, apply),
    finishApply: (applyId, end) => applies.finishApply(connection, applyId, end),
    openApplies: (workspace) => applies.openApplies(connection, workspace),
    applies: (runId) => applies.appliesOfRun(connection, runId),
    appliedPaths: (applyId) => applies.appliedPaths(connection, applyId),
    lineage: () => listLineage(connection),
    beginCheckpoint: (checkpoint) => {
      checkpoints.beginCheckpoint(connection, checkpoint);
    },
    finishCheckpoint: (id, whole) => checkpoints.finishCheckpoint(connection, id, whole),
    beginCheckpointRemoval: (id, owner) => checkpoints.beginCheckpointRemoval(connection, id, owner),
    forgetCheckpoint: (id) => {
      checkpoints.forgetCheckpoint(connection, id);
    },
    listCheckpoints: (filter = {}) => checkpoints.listCheckpoints(connection, filter),
    findCheckpoint: (selector, at) => checkpoints.findCheckpoint(connection, selector, at),
    abandonedCheckpoints: () => checkpoints.abandonedCheckpoints(connection),
    control: openControl(connection),
    close: () => {
      connection.close();
    },
  };
}

const LIVING: readonly RunState[] = ['recorded', 'preparing', 'gate', 'running', 'finishing'];

function listRuns(connection: Connection, filter: RunFilter): readonly StoredRun[] {
  const conditions: string[] = [];
  const values: unknown[] = [];
  const oneOf = (column: string, words: readonly string[]): void => {
    conditions.push(`${column} IN (${words.map(() => '?').join(', ')})`);
    values.push(...words);
  };
  if (filter.workspace !== undefined) oneOf('workspace', [filter.workspace]);
  if (filter.name !== undefined) oneOf('name', [filter.name]);
  if (filter.states !== undefined) oneOf('state', filter.states);
  if (filter.stageStates !== undefined) oneOf('stage_state', filter.stageStates);
  if (filter.endedBeforeMs !== undefined) {
    conditions.push('ended_ms < ?');
    values.push(filter.endedBeforeMs);
  }
  const where = conditions.length === 0 ? '' : ` WHERE ${conditions.join(' AND ')}`;
  values.push(filter.limit ?? -1);
  return connection
    .all(`${SELECT_RUN}${where} ORDER BY created_ms DESC, id DESC LIMIT ?`, ...values)
    .map((row) => toStoredRun(parseRunRow(row, connection.file)));
}

function readRow(connection: Connection, runId: RunId): RunRow | undefined {
  const row = connection.get(`${SELECT_RUN} WHERE id = ?`, runId);
  return row === undefined ? undefined : parseRunRow(row, connection.file);
}

function readRun(connection: Connection, runId: RunId): StoredRun | undefined {
  const row = readRow(connection, runId);
  return row === undefined ? undefined : toStoredRun(row);
}

function findRun(connection: Connection, text: string, workspace: string): StoredRun {
  const selector = parseSelector(text);
  switch (selector.kind) {
    case 'id': {
      const run = readRun(connection, selector.id);
      if (run === undefined) throw runNotFound(text);
      return run;
    }
    case 'last': {
      const run = listRuns(connection, { workspace, limit: 1 })[0];
      if (run === undefined) throw runNotFound(text);
      return run;
    }
    case 'word':
      return findWord(connection, text, selector, workspace);
  }
}

function findWord(
  connection: Connection,
  text: string,
  selector: { readonly name: string; readonly prefix: string | undefined },
  workspace: string,
): StoredRun {
  const here = listRuns(connection, { name: selector.name, workspace, limit: 1 });
  const named = here.length > 0 ? here : listRuns(connection, { name: selector.name, limit: 1 });
  const prefixed = selector.prefix === undefined ? [] : byPrefix(connection, selector.prefix);
  const candidates = [...new Map([...named, ...prefixed].map((run) => [run.id, run])).values()];
  const [only] = candidates;
  if (only === undefined) throw runNotFound(text);
  if (candidates.length > 1) {
    throw runAmbiguous(
      text,
      candidates.map((run) => run.id),
    );
  }
  return only;
}

function byPrefix(connection: Connection, prefix: string): readonly StoredRun[] {
  // '~' sorts after every character of an id.
  return connection
    .all(`${SELECT_RUN} WHERE id >= ? AND id < ? ORDER BY id LIMIT 6`, prefix, `${prefix}~`)
    .map((row) => toStoredRun(parseRunRow(row, connection.file)));
}

function isOrphan(run: StoredRun, now: number): boolean {
  if (run.lease === null) return true;
  const liveness = livenessOf(run.lease.owner);
  return liveness === 'dead' || (liveness === 'unknown' && run.lease.expiresMs < now);
}

function checkRunChain(connection: Connection, runId: RunId): ChainCheck {
  return connection.snapshot(() => {
    const row = readRow(connection, runId);
    if (row === undefined) throw runNotFound(runId);
    const events = connection.all('SELECT * FROM events WHERE run_id = ? ORDER BY seq', runId).map((event) => parseEventRow(event, connection.file));
    const check = checkChain(events, { lastSeq: row.last_seq, chain: row.chain, rowSha256: rowDigest(row) });
    return check.ok ? checkBatches(connection, runId, events) : check;
  });
}

/** The last event of each batch carries the digest of its paths. */
function checkBatches(connection: Connection, runId: RunId, events: readonly EventRow[]): ChainCheck {
  const stated = new Map<string, { readonly seq: number; readonly digest: JsonValue | undefined }>();
  for (const event of events) {
    const { data } = toStoredEvent(event);
    if (!event.kind.startsWith('apply.') || typeof data !== 'object' || data === null || !('apply' in data) || typeof data.apply !== 'string') continue;
    stated.set(data.apply, { seq: event.seq, digest: data.paths_sha256 });
  }
  for (const apply of applies.appliesOfRun(connection, runId)) {
    if (!stated.has(apply.id)) return { ok: false, seq: events.length, fact: `knows nothing of ${apply.id}` };
  }
  for (const [id, { seq, digest }] of stated) {
    if (applies.pathsDigest(applies.appliedPaths(connection, id)) !== digest) {
      return { ok: false, seq, fact: `does not match the paths of ${id}, which were altered` };
    }
  }
  return { ok: true };
}

function deleteRun(connection: Connection, runId: RunId, staged: boolean): void {
  connection.write(() => {
    const run = readRun(connection, runId);
    if (run === undefined) throw runNotFound(runId);
    if (!TERMINAL_STATES.includes(run.state)) throw new ProofrunError('ERR_RUN_STATE', { message: `${runId}: it is ${run.state}`, hint: `job stop ${runId}` });
    if (!staged && (run.stageState === 'staged' || run.stageState === 'partly_applied')) {
      throw new ProofrunError('ERR_RUN_STATE', { message: `${runId}: its stage is ${run.stageState}`, hint: `job drop ${runId}` });
    }
    connection.run('DELETE FROM runs WHERE id = ?', runId);
  });
}

function parseEventRow(value: unknown, file: string): EventRow {
  const row: Readonly<Record<string, unknown>> = typeof value === 'object' && value !== null ? { ...value } : {};
  for (const column of ['run_id', 'kind', 'data', 'row_sha256', 'hash']) {
    if (typeof row[column] !== 'string') throw unreadableStore(file, `column ${column} of an event is damaged`, 'job ls');
  }
  for (const column of ['seq', 'time_ms']) {
    if (typeof row[column] !== 'number') throw unreadableStore(file, `column ${column} of an event is damaged`, 'job ls');
  }
  return row as unknown as EventRow;
}

function toStoredEvent(row: EventRow): StoredEvent {
  return { runId: row.run_id, seq: row.seq, timeMs: row.time_ms, kind: row.kind, data: readData(row.data), rowSha256: row.row_sha256, hash: row.hash };
}

/** Data that can't be read is shown as such; the chain says that it was altered. */
function readData(text: string): JsonValue {
  try {
    return parseStrictJson(text);
  } catch (error) {
    return { unreadable: messageOf(error) };
  }
}
