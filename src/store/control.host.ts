import { messageOf } from '../core/errors.ts';
import type { ControlState } from '../core/control.ts';
import { sha256Hex } from '../core/canonical-json.ts';
import type { JsonValue } from '../core/json.ts';
import { parseStrictJson } from '../core/strict-json.ts';
import type { Connection } from './connection.host.ts';
import { changeControlRun, insertControlRun, type ControlChange, type ControlChanged, type ControlLease } from './control-change.host.ts';
import { checkControlChain, type ControlEvent, type ControlEventRow } from './control-chain.ts';
import {
  controlDigest,
  parseControlRow,
  partKey,
  type ApprovalRow,
  type ControlRunRow,
  type ModelAttemptRow,
  type PartRow,
  type StepRow,
  type TurnRow,
} from './control-rows.ts';
import type { ControlPart } from './control-schema.ts';
import { CHAIN_START, type ChainCheck, type NewEvent } from './event-chain.ts';
import { livenessOf } from './owner.host.ts';
import { checkRunName, runAmbiguous, runNotFound } from './selector.ts';
import { unreadableStore } from './sqlite-errors.ts';

export interface NewControlRun {
  /** `ctl-<ulid>`. */
  readonly id: string;
  readonly name: string | null;
  /** Absolute. */
  readonly workspace: string;
  /** What the agent is called. */
  readonly agent: string;
  /** Canonical JSON: task, limits, tools as they are offered. */
  readonly spec: string;
  /** Milliseconds since the epoch; null: no limit of elapsed time. */
  readonly deadlineMs: number | null;
  readonly lease: ControlLease;
}

export interface ControlFilter {
  readonly workspace?: string;
  readonly states?: readonly ControlState[];
  /** Newest first; at most this many. Default: all. */
  readonly limit?: number;
  /** The page that follows this run. */
  readonly before?: Pick<ControlRunRow, 'id' | 'created_ms'>;
}

/** All rows of a run, of one moment. */
export interface ControlRows {
  readonly run: ControlRunRow;
  readonly turns: readonly TurnRow[];
  readonly steps: readonly StepRow[];
  readonly approvals: readonly ApprovalRow[];
  readonly attempts: readonly ModelAttemptRow[];
}

/** What of a run is due for the sweeper. */
export interface DueControls {
  readonly approvals: readonly ApprovalRow[];
  readonly runs: readonly ControlRunRow[];
}

/** The record of the control runtime. Every method is one transaction; see Store for errors. */
export interface ControlStore {
  create(run: NewControlRun, events: readonly NewEvent[]): ControlChanged;
  /** See changeControlRun. */
  change(runId: string, change: ControlChange): ControlChanged;
  /** Undefined when there is none. */
  read(runId: string): ControlRunRow | undefined;
  /** ERR_RUN_NOT_FOUND. */
  rows(runId: string): ControlRows;
  spec(sha256: string): string;
  /** Newest first. A damaged run is among them. */
  list(filter?: ControlFilter): readonly ControlRunRow[];
  /** An id, a unique prefix, a name, or `last` of the workspace. ERR_RUN_NOT_FOUND, ERR_RUN_AMBIGUOUS. */
  find(selector: string, workspace: string): ControlRunRow;
  /** By id, or a unique prefix. ERR_RUN_NOT_FOUND, ERR_RUN_AMBIGUOUS. */
  findApproval(selector: string): ApprovalRow;
  /** Approvals that wait for a person, oldest first; of one run or of all. */
  pending(runId?: string): readonly ApprovalRow[];
  events(runId: string, after?: { readonly seq: number }): readonly ControlEvent[];
  /** Follows the event chain to every row as it is now; `head`: an event that was noted earlier. */
  check(runId: string, head?: { readonly seq: number; readonly hash: string }): ChainCheck;
  /** Runs in progress whose owner died or let its lease lapse. */
  orphans(): readonly ControlRunRow[];
  due(nowMs: number): DueControls;
  /** Moves the end of every lease of one holder. Number of runs. */
  renew(leaseId: string, expiresMs: number): number;
}

/** The owner's process is gone, or its lease lapsed. */
export function isOrphanControl(row: ControlRunRow, now: number): boolean {
  if (row.state !== 'running') return false;
  if (row.expires_ms === null || row.expires_ms < now) return true;
  const { owner_pid: pid, owner_start_ticks: startTicks, owner_boot_id: bootId, owner_pid_namespace: pidNamespace } = row;
  if (pid === null || startTicks === null || bootId === null || pidNamespace === null) return true;
  return livenessOf({ pid, startTicks, bootId, pidNamespace }) === 'dead';
}

export function openControl(connection: Connection): ControlStore {
  const runs = (sql: string, ...values: readonly unknown[]): readonly ControlRunRow[] =>
    connection.all(sql, ...values).map((row) => parseControlRow('control_runs', row, connection.file));
  const read = (runId: string): ControlRunRow | undefined => runs('SELECT * FROM control_runs WHERE id = ?', runId)[0];
  const approvals = (sql: string, ...values: readonly unknown[]): readonly ApprovalRow[] =>
    connection.all(sql, ...values).map((row) => parseControlRow('control_approvals', row, connection.file));
  return {
    create: (run, events) => createRun(connection, run, events),
    change: (runId, change) => changeControlRun(connection, runId, change),
    read,
    rows: (runId) => connection.snapshot(() => readRows(connection, runId)),
    spec: (sha256) => readSpec(connection, sha256),
    list: (filter = {}) => listRuns(connection, filter),
    find: (selector, workspace) => findRun(connection, selector, workspace),
    findApproval: (selector) => {
      const found = approvals('SELECT * FROM control_approvals WHERE id >= ? AND id < ? ORDER BY id LIMIT 6', selector, `${selector}~`);
      return only(found, selector);
    },
    pending: (runId) =>
      runId === undefined
        ? approvals("SELECT * FROM control_approvals WHERE state = 'pending' ORDER BY id")
        : approvals("SELECT * FROM control_approvals WHERE run_id = ? AND state = 'pending' ORDER BY id", runId),
    events: (runId, after) =>
      connection.all('SELECT * FROM control_events WHERE run_id = ? AND seq > ? ORDER BY seq', runId, after?.seq ?? 0).map((row) => {
        const event = parseEvent(row, connection.file);
        return { runId: event.run_id, seq: event.seq, timeMs: event.time_ms, kind: event.kind, data: readData(event.data), hash: event.hash };
      }),
    check: (runId, head) => connection.snapshot(() => checkRun(connection, runId, head)),
    orphans: () =>
      runs('SELECT * FROM control_runs INDEXED BY control_runs_leased WHERE lease_id IS NOT NULL').filter((row) => isOrphanControl(row, connection.clock())),
    due: (nowMs) =>
      connection.snapshot(() => ({
        approvals: approvals(
          "SELECT * FROM control_approvals WHERE (state = 'pending' AND expires_ms <= ?) OR (state = 'approved' AND grant_expires_ms <= ?)",
          nowMs,
          nowMs,
        ),
        runs: runs("SELECT * FROM control_runs WHERE deadline_ms <= ? AND state IN ('running', 'waiting')", nowMs),
      })),
    renew: (leaseId, expiresMs) => connection.write(() => connection.run(RENEW_SQL, expiresMs, leaseId)),
  };
}

/** Also the statement of the renewal thread. */
export const RENEW_SQL = 'UPDATE control_runs SET expires_ms = ? WHERE lease_id = ? AND lease_id IS NOT NULL';

function createRun(connection: Connection, run: NewControlRun, events: readonly NewEvent[]): ControlChanged {
  const now = connection.clock();
  const row: ControlRunRow = {
    id: run.id,
    name: run.name === null ? null : checkRunName(run.name),
    workspace: run.workspace,
    agent: run.agent,
    state: 'running',
    reason: null,
    detail: null,
    spec_sha256: sha256Hex(run.spec),
    created_ms: now,
    ended_ms: null,
    deadline_ms: run.deadlineMs,
    active_ms: 0,
    active_since_ms: now,
    turns: 0,
    steps: 0,
    failures: 0,
    model_calls: 0,
    input_tokens: 0,
    output_tokens: 0,
    cost_nano_usd: 0,
    result: null,
    last_seq: 0,
    chain: CHAIN_START,
    owner_pid: run.lease.owner.pid,
    owner_start_ticks: run.lease.owner.startTicks,
    owner_boot_id: run.lease.owner.bootId,
    owner_pid_namespace: run.lease.owner.pidNamespace,
    lease_id: run.lease.leaseId,
    expires_ms: run.lease.expiresMs,
    fence: 1,
  };
  return insertControlRun(connection, row, run.spec, events);
}

function readRows(connection: Connection, runId: string): ControlRows {
  const found = connection.get('SELECT * FROM control_runs WHERE id = ?', runId);
  if (found === undefined) throw runNotFound(runId);
  const part = <T extends ControlPart>(table: T, order: string) =>
    connection.all(`SELECT * FROM ${table} WHERE run_id = ? ORDER BY ${order}`, runId).map((row) => parseControlRow(table, row, connection.file));
  return {
    run: parseControlRow('control_runs', found, connection.file),
    turns: part('control_turns', 'number'),
    steps: part('control_steps', 'number'),
    approvals: part('control_approvals', 'id'),
    attempts: part('control_attempts', 'number'),
  };
}

function readSpec(connection: Connection, sha256: string): string {
  const row = connection.get('SELECT spec FROM control_specs WHERE sha256 = ?', sha256);
  const spec = typeof row === 'object' && row !== null && 'spec' in row && typeof row.spec === 'string' ? row.spec : undefined;
  if (spec === undefined) throw unreadableStore(connection.file, `lacks the specification ${sha256.slice(0, 12)} of a run`, 'job show');
  if (sha256Hex(spec) !== sha256) throw unreadableStore(connection.file, `the specification ${sha256.slice(0, 12)} of a run was altered`, 'job show');
  return spec;
}

function listRuns(connection: Connection, filter: ControlFilter): readonly ControlRunRow[] {
  const conditions: string[] = [];
  const values: unknown[] = [];
  if (filter.workspace !== undefined) {
    conditions.push('workspace = ?');
    values.push(filter.workspace);
  }
  if (filter.states !== undefined) {
    conditions.push(`state IN (${filter.states.map(() => '?').join(', ')})`);
    values.push(...filter.states);
  }
  if (filter.before !== undefined) {
    conditions.push('(created_ms, id) < (?, ?)');
    values.push(filter.before.created_ms, filter.before.id);
  }
  const where = conditions.length === 0 ? '' : ` WHERE ${conditions.join(' AND ')}`;
  return connection
    .all(`SELECT * FROM control_runs${where} ORDER BY created_ms DESC, id DESC LIMIT ?`, ...values, filter.limit ?? -1)
    .map((row) => parseControlRow('control_runs', row, connection.file));
}

const PREFIX = /^(?:ctl-([0-9A-HJKMNP-TV-Z]{0,26})|([0-9A-HJKMNP-TV-Z]{4,26}))$/i;

function findRun(connection: Connection, selector: string, workspace: string): ControlRunRow {
  if (selector === 'last') {
    const newest = listRuns(connection, { workspace, limit: 1 })[0];
    if (newest === undefined) throw runNotFound('last');
    return newest;
  }
  const match = PREFIX.exec(selector);
  const rest = match?.[1] ?? match?.[2];
  const prefix = rest === undefined ? undefined : `ctl-${rest.toUpperCase()}`;
  const parse = (row: unknown): ControlRunRow => parseControlRow('control_runs', row, connection.file);
  const named = connection
    .all('SELECT * FROM control_runs WHERE name = ? ORDER BY workspace = ? DESC, created_ms DESC, id DESC LIMIT 1', selector, workspace)
    .map(parse);
  const prefixed =
    prefix === undefined ? [] : connection.all('SELECT * FROM control_runs WHERE id >= ? AND id < ? ORDER BY id LIMIT 6', prefix, `${prefix}~`).map(parse);
  return only([...new Map([...named, ...prefixed].map((row) => [row.id, row])).values()], selector);
}

function only<R extends { readonly id: string }>(found: readonly R[], selector: string): R {
  const [first] = found;
  if (first === undefined) throw runNotFound(selector);
  if (found.length > 1 && first.id !== selector) {
    throw runAmbiguous(
      selector,
      found.map(({ id }) => id),
    );
  }
  return first;
}

function checkRun(connection: Connection, runId: string, head?: { readonly seq: number; readonly hash: string }): ChainCheck {
  const all = readRows(connection, runId);
  const parts: readonly PartRow[] = [
    ...all.turns.map((row) => ({ table: 'control_turns', row }) as const),
    ...all.steps.map((row) => ({ table: 'control_steps', row }) as const),
    ...all.approvals.map((row) => ({ table: 'control_approvals', row }) as const),
    ...all.attempts.map((row) => ({ table: 'control_attempts', row }) as const),
  ];
  const events = connection.all('SELECT * FROM control_events WHERE run_id = ? ORDER BY seq', runId).map((row) => parseEvent(row, connection.file));
  const check = checkControlChain(events, {
    lastSeq: all.run.last_seq,
    chain: all.run.chain,
    rowSha256: controlDigest('control_runs', all.run),
    rows: new Map(parts.map((part) => [partKey(part), controlDigest(part.table, part.row as never)])),
    ...(head === undefined ? {} : { head }),
  });
  if (!check.ok) return check;
  try {
    readSpec(connection, all.run.spec_sha256);
  } catch (error) {
    return { ok: false, seq: 1, fact: `does not match the specification: ${messageOf(error)}` };
  }
  return check;
}

function parseEvent(value: unknown, file: string): ControlEventRow {
  const row: Readonly<Record<string, unknown>> = typeof value === 'object' && value !== null ? { ...value } : {};
  for (const column of ['run_id', 'kind', 'data', 'row_sha256', 'rows', 'hash']) {
    if (typeof row[column] !== 'string') throw unreadableStore(file, `column ${column} of an event is damaged`, 'job show');
  }
  for (const column of ['seq', 'time_ms']) {
    if (typeof row[column] !== 'number') throw unreadableStore(file, `column ${column} of an event is damaged`, 'job show');
  }
  return row as unknown as ControlEventRow;
}

/** Data that can't be read is shown as such; the chain says that it was altered. */
function readData(text: string): JsonValue {
  try {
    return parseStrictJson(text);
  } catch (error) {
    return { unreadable: messageOf(error) };
  }
}
