import { canonicalJson } from '../core/canonical-json.ts';
import { toSnake } from '../core/case.ts';
import type { Mode } from '../core/dimension.ts';
import { ProofrunError } from '../core/errors.ts';
import type { RunId } from '../core/ids.ts';
import type { JsonValue } from '../core/json.ts';
import type { Ending, RunState, StageState } from '../core/run.ts';
import type { Connection } from './connection.host.ts';
import { CHAIN_START, DAMAGE_NOTED, linkEvent, type NewEvent } from './event-chain.ts';
import { insertLineage, type Lineage } from './lineage.host.ts';
import { parseRunRow, rowDigest, RUN_COLUMNS, type RunRow } from './run-row.ts';
import { checkRunName, runNotFound } from './selector.ts';
import { formatSummary, toStoredRun, type Lease, type StagedSummary, type StoredRun } from './stored-run.ts';
import { isTerminal, mayMove, mayRestage } from './transitions.ts';

/** A run to record. In state `refused` it is over at once and has no lease. */
export interface NewRun {
  readonly id: RunId;
  readonly name: string | null;
  readonly workspace: string;
  readonly mode: Mode;
  readonly executor: string | null;
  readonly argv: readonly string[];
  /** The plan in its form on disk, without values of the environment. null when refused. */
  readonly plan: JsonValue;
  /** What it started from, when that isn't the workspace alone. */
  readonly lineage?: Lineage;
  readonly state:
    | { readonly kind: 'recorded'; readonly lease: Lease }
    | { readonly kind: 'refused'; readonly ending: Ending; readonly bundle: { readonly path: string; readonly sha256: string } | null };
}

/** Columns that a transition may set besides the state. */
export interface RunFields {
  readonly startedMs?: number;
  /** Default at an end: the clock. */
  readonly endedMs?: number;
  readonly ending?: Ending;
  readonly executor?: string;
  /** `path` is relative to the state directory. */
  readonly bundle?: { readonly path: string; readonly sha256: string };
  readonly stageState?: StageState;
  readonly stagedSummary?: StagedSummary;
}

export interface RunChange {
  readonly from: readonly RunState[];
  readonly to: RunState;
  readonly events: readonly NewEvent[];
  readonly fields?: RunFields;
  /** Of the lease under which the caller acts. */
  readonly fence: number;
}

const COLUMN_LIST = RUN_COLUMNS.join(', ');
const INSERT_RUN = `INSERT INTO runs (${COLUMN_LIST}) VALUES (${RUN_COLUMNS.map((column) => `@${column}`).join(', ')})`;
const UPDATE_RUN = `UPDATE runs SET ${RUN_COLUMNS.filter((column) => column !== 'id')
  .map((column) => `${column} = @${column}`)
  .join(', ')} WHERE id = @id`;
const INSERT_EVENT =
  'INSERT INTO events (run_id, seq, time_ms, kind, data, row_sha256, hash) VALUES (@run_id, @seq, @time_ms, @kind, @data, @row_sha256, @hash)';
export const SELECT_RUN = `SELECT ${COLUMN_LIST} FROM runs`;

/** One transaction: the row and its events. */
export function insertRun(connection: Connection, run: NewRun, events: readonly NewEvent[]): StoredRun {
  const now = connection.clock();
  const refused = run.state.kind === 'refused' ? run.state : undefined;
  const row: RunRow = {
    id: run.id,
    name: run.name === null ? null : checkRunName(run.name),
    workspace: run.workspace,
    state: run.state.kind,
    stage_state: 'none',
    mode: run.mode,
    executor: run.executor,
    argv: canonicalJson(run.argv),
    created_ms: now,
    started_ms: null,
    ended_ms: refused === undefined ? null : now,
    ending: refused === undefined ? null : canonicalJson(toSnake(refused.ending)),
    plan: run.plan === null ? null : canonicalJson(run.plan),
    bundle_path: refused?.bundle?.path ?? null,
    bundle_sha256: refused?.bundle?.sha256 ?? null,
    staged_summary: null,
    last_seq: 0,
    chain: CHAIN_START,
    ...leaseColumns(run.state.kind === 'recorded' ? run.state.lease : null),
    fence: 1,
  };
  return connection.write(() => {
    const saved = saveRun(connection, INSERT_RUN, row, events);
    if (run.lineage !== undefined) insertLineage(connection, run.id, run.lineage);
    return saved;
  });
}

/** Compare and set: the row must be in one of `from` and under `fence`, else ERR_STORE_STALE; an end is never left. */
export function transitionRun(connection: Connection, runId: RunId, change: RunChange): StoredRun {
  return changeRun(connection, runId, change.events, (row, damage) => {
    const run = toStoredRun(row);
    if (row.fence !== change.fence) throw stale(runId, `another process owns it (fence ${row.fence}, ours ${change.fence})`);
    if (!change.from.includes(run.state)) throw stale(runId, `it is ${run.state}, expected ${change.from.join(' or ')}`);
    if (!mayMove(run.state, change.to)) throw stale(runId, `${run.state} never becomes ${change.to}`);
    if (!isTerminal(change.to)) refuseDamaged(runId, damage);
    return {
      ...row,
      ...shownWords(run),
      ...fieldColumns(change.fields ?? {}),
      state: change.to,
      ...(isTerminal(change.to) ? endColumns(row, change.fields, connection.clock()) : {}),
    };
  });
}

/** Compare and set of the stage state; `applied` and `dropped` are never left. */
export function restageRun(connection: Connection, runId: RunId, change: StageChange & { readonly events: readonly NewEvent[] }): StoredRun {
  return changeRun(connection, runId, change.events, (row, damage) => restagedRow(row, change, damage));
}

export interface StageChange {
  readonly from: readonly StageState[];
  readonly to: StageState;
  readonly stagedSummary?: StagedSummary;
}

/** The row with its stage state changed, or ERR_RUN_STATE. `damage`: as changeRun tells it. */
export function restagedRow(row: RunRow, change: StageChange, damage: string | null): RunRow {
  const runId = row.id;
  const run = toStoredRun(row);
  if (!isTerminal(run.state)) throw stateError(runId, `it is ${run.state}`, `job wait ${runId}`);
  if (!change.from.includes(run.stageState)) {
    throw stateError(runId, `its stage is ${run.stageState}, expected ${change.from.join(' or ')}`, `job status ${runId}`);
  }
  if (!mayRestage(run.stageState, change.to)) throw stateError(runId, `a stage that is ${run.stageState} never becomes ${change.to}`, `job status ${runId}`);
  if (change.to !== 'dropped') refuseDamaged(runId, damage);
  return {
    ...row,
    ...shownWords(run),
    stage_state: change.to,
    ...(change.stagedSummary === undefined ? {} : { staged_summary: canonicalJson(formatSummary(change.stagedSummary)) }),
  };
}

/** A new owner for a living run; the fence rises. ERR_STORE_STALE when somebody else was faster. */
export function takeOverRun(connection: Connection, runId: RunId, fence: number, lease: Lease, events: readonly NewEvent[]): StoredRun {
  return changeRun(connection, runId, events, (row) => {
    if (row.fence !== fence) throw stale(runId, `another process owns it (fence ${row.fence}, ours ${fence})`);
    if (isTerminal(toStoredRun(row).state)) throw stale(runId, `it is ${row.state}`);
    return { ...row, ...leaseColumns(lease), fence: fence + 1 };
  });
}

/** No event: only the moment after which a process that can't see the owner may take over. */
export function renewRunLease(connection: Connection, runId: RunId, fence: number, expiresMs: number): void {
  const renewed = connection.write(() =>
    connection.run('UPDATE runs SET expires_ms = ? WHERE id = ? AND fence = ? AND owner_pid IS NOT NULL', expiresMs, runId, fence),
  );
  if (renewed !== 1) throw stale(runId, 'another process owns it, or it is over');
}

/** Appends events and changes nothing else. */
export function appendRunEvents(connection: Connection, runId: RunId, events: readonly NewEvent[]): StoredRun {
  return changeRun(connection, runId, events, (row) => row);
}

/**
 * Read, decide, write, all under the write lock. `decide` throws to leave everything as it is, and may write more rows of its own; `damage`
 * says why the row can't be trusted. The first change of a damaged row is preceded by an event that says so for good.
 */
export function changeRun(
  connection: Connection,
  runId: RunId,
  events: readonly NewEvent[],
  decide: (row: RunRow, damage: string | null) => RunRow,
): StoredRun {
  return connection.write(() => {
    const found = connection.get(`${SELECT_RUN} WHERE id = ?`, runId);
    if (found === undefined) throw runNotFound(runId);
    const row = parseRunRow(found, connection.file);
    const noted = connection.get('SELECT 1 FROM events WHERE run_id = ? AND kind = ?', runId, DAMAGE_NOTED) !== undefined;
    const damage = noted ? 'noted earlier' : damageOf(connection, row);
    const next = decide(row, damage);
    return saveRun(connection, UPDATE_RUN, next, damage === null || noted ? events : [{ kind: DAMAGE_NOTED, data: { fact: damage } }, ...events]);
  });
}

/** Why a row can't be trusted: a column that can't be read, or a row or event that was changed past the store. */
function damageOf(connection: Connection, row: RunRow): string | null {
  const { damaged } = toStoredRun(row);
  if (damaged !== null) return damaged;
  const last = connection.get('SELECT seq, hash, row_sha256 FROM events WHERE run_id = ? ORDER BY seq DESC LIMIT 1', row.id);
  if (typeof last !== 'object' || last === null || !('seq' in last) || last.seq !== row.last_seq || !('hash' in last) || last.hash !== row.chain) {
    return 'its events were altered';
  }
  return 'row_sha256' in last && last.row_sha256 === rowDigest(row) ? null : 'the row was altered';
}

function saveRun(connection: Connection, sql: string, row: RunRow, events: readonly NewEvent[]): StoredRun {
  if (events.length === 0) throw new ProofrunError('ERR_INTERNAL', { message: 'a run is never changed without an event' });
  const rowSha256 = rowDigest(row);
  const timeMs = connection.clock();
  let { last_seq: seq, chain } = row;
  const links = events.map((event) => {
    seq += 1;
    const link = linkEvent(event, { runId: row.id, seq, timeMs, rowSha256, previous: chain });
    chain = link.hash;
    return link;
  });
  const next = { ...row, last_seq: seq, chain };
  connection.run(sql, next);
  connection.announce('rows');
  for (const link of links) connection.run(INSERT_EVENT, link);
  return toStoredRun(next);
}

function fieldColumns(fields: RunFields): Partial<RunRow> {
  return {
    ...(fields.startedMs === undefined ? {} : { started_ms: fields.startedMs }),
    ...(fields.endedMs === undefined ? {} : { ended_ms: fields.endedMs }),
    ...(fields.ending === undefined ? {} : { ending: canonicalJson(toSnake(fields.ending)) }),
    ...(fields.executor === undefined ? {} : { executor: fields.executor }),
    ...(fields.bundle === undefined ? {} : { bundle_path: fields.bundle.path, bundle_sha256: fields.bundle.sha256 }),
    ...(fields.stageState === undefined ? {} : { stage_state: fields.stageState }),
    ...(fields.stagedSummary === undefined ? {} : { staged_summary: canonicalJson(formatSummary(fields.stagedSummary)) }),
  };
}

function endColumns(row: RunRow, fields: RunFields | undefined, now: number): Partial<RunRow> {
  return { ...leaseColumns(null), ended_ms: fields?.endedMs ?? row.ended_ms ?? now };
}

function leaseColumns(lease: Lease | null): Pick<RunRow, 'owner_pid' | 'owner_start_ticks' | 'owner_boot_id' | 'owner_pid_namespace' | 'expires_ms'> {
  return {
    owner_pid: lease?.owner.pid ?? null,
    owner_start_ticks: lease?.owner.startTicks ?? null,
    owner_boot_id: lease?.owner.bootId ?? null,
    owner_pid_namespace: lease?.owner.pidNamespace ?? null,
    expires_ms: lease?.expiresMs ?? null,
  };
}

/** The columns with a fixed vocabulary as they are shown: closing a damaged row also makes it one that the schema allows. */
function shownWords(run: StoredRun): Pick<RunRow, 'state' | 'stage_state' | 'mode'> {
  return { state: run.state, stage_state: run.stageState, mode: run.mode };
}

/** For changes that would build on the row. */
export function refuseDamaged(runId: string, damage: string | null): void {
  if (damage === null) return;
  throw new ProofrunError('ERR_STORE_UNREADABLE', {
    message: `${runId}: its record is damaged (${damage}); it can be shown and dropped, not continued`,
    hint: `job drop ${runId}`,
  });
}

function stale(runId: string, fact: string): ProofrunError {
  return new ProofrunError('ERR_STORE_STALE', { message: `${runId}: ${fact}`, hint: `job status ${runId}` });
}

function stateError(runId: string, fact: string, hint: string): ProofrunError {
  return new ProofrunError('ERR_RUN_STATE', { message: `${runId}: ${fact}`, hint });
}
