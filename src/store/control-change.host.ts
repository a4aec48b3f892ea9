import { CONTROL_ENDS, CONTROL_STATES, type ControlState } from '../core/control.ts';
import { ProofrunError } from '../core/errors.ts';
import type { Connection } from './connection.host.ts';
import { linkControlEvent } from './control-chain.ts';
import {
  columnsOf,
  controlDigest,
  mayMovePart,
  mayMoveRun,
  parseControlRow,
  partKey,
  saturatingAdd,
  type ApprovalRow,
  type ControlRunRow,
  type ModelAttemptRow,
  type PartRow,
  type StepRow,
  type TurnRow,
} from './control-rows.ts';
import { CONTROL_TABLES, type ControlPart, type ControlRow, type ControlTable } from './control-schema.ts';
import { DAMAGE_NOTED, type NewEvent } from './event-chain.ts';
import type { Owner } from './owner.host.ts';
import { runNotFound } from './selector.ts';

/** What must still be true under the write lock; else ERR_STORE_STALE and nothing is written. */
export interface ControlGuard {
  readonly states: readonly ControlState[];
  /** Of the lease under which the caller acts. */
  readonly fence?: number;
  /** With `fence`: the lease must not have lapsed. For the start of an effect. */
  readonly alive?: true;
  /** Last event that the caller has seen: what it decided upon is still the truth. */
  readonly seq?: number;
  /** A record that was altered past the store may still be closed; only for changes that end the run. */
  readonly evenDamaged?: true;
}

export type ControlLease = { readonly owner: Owner; readonly leaseId: string; readonly expiresMs: number };

/** Changes to the totals of a run; they saturate. */
export interface ControlTotals {
  readonly turns?: number;
  readonly steps?: number;
  readonly modelCalls?: number;
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  readonly costNanoUsd?: number;
}

type Update<R> = { readonly [C in keyof R]?: R[C] };

/** One row to insert, or to change by compare and set: `from` are the states that it may be in. */
export type PartWrite =
  | { readonly table: 'control_turns'; readonly insert: Omit<TurnRow, 'run_id'> }
  | { readonly table: 'control_steps'; readonly insert: Omit<StepRow, 'run_id'> }
  | { readonly table: 'control_approvals'; readonly insert: Omit<ApprovalRow, 'run_id'> }
  | { readonly table: 'control_attempts'; readonly insert: Omit<ModelAttemptRow, 'run_id'> }
  | { readonly table: 'control_steps'; readonly key: number; readonly from: readonly StepRow['state'][]; readonly set: Update<StepRow> }
  | { readonly table: 'control_approvals'; readonly key: string; readonly from: readonly ApprovalRow['state'][]; readonly set: Update<ApprovalRow> }
  | { readonly table: 'control_attempts'; readonly key: number; readonly from: readonly ModelAttemptRow['state'][]; readonly set: Update<ModelAttemptRow> };

export interface ControlChange {
  readonly guard: ControlGuard;
  readonly events: readonly NewEvent[];
  readonly state?: ControlState;
  readonly fields?: Update<Pick<ControlRunRow, 'reason' | 'detail' | 'failures' | 'result'>>;
  readonly add?: ControlTotals;
  /** take: a new owner, the fence rises. release: nobody owns it. Absent: as it is; an end releases. */
  readonly lease?: { readonly kind: 'take'; readonly lease: ControlLease } | { readonly kind: 'release' };
  readonly writes?: readonly PartWrite[];
}

/** What a change left, for caches: the run, and every row that it wrote. */
export interface ControlChanged {
  readonly run: ControlRunRow;
  readonly parts: readonly PartRow[];
}

const insertSql = (table: ControlTable): string =>
  `INSERT INTO ${table} (${columnsOf(table).join(', ')}) VALUES (${columnsOf(table)
    .map((column) => `@${column}`)
    .join(', ')})`;
const updateSql = (table: ControlTable): string => {
  const key: readonly string[] = CONTROL_TABLES[table].key;
  const set = columnsOf(table).filter((column) => !key.includes(column));
  return `UPDATE ${table} SET ${set.map((column) => `${column} = @${column}`).join(', ')} WHERE ${key.map((column) => `${column} = @${column}`).join(' AND ')}`;
};
const INSERT_RUN = insertSql('control_runs');
const UPDATE_RUN = updateSql('control_runs');
const SQL: Readonly<Record<ControlPart, { readonly insert: string; readonly update: string; readonly select: string }>> = {
  control_turns: {
    insert: insertSql('control_turns'),
    update: updateSql('control_turns'),
    select: 'SELECT * FROM control_turns WHERE run_id = ? AND number = ?',
  },
  control_steps: {
    insert: insertSql('control_steps'),
    update: updateSql('control_steps'),
    select: 'SELECT * FROM control_steps WHERE run_id = ? AND number = ?',
  },
  control_approvals: {
    insert: insertSql('control_approvals'),
    update: updateSql('control_approvals'),
    select: 'SELECT * FROM control_approvals WHERE run_id = ? AND id = ?',
  },
  control_attempts: {
    insert: insertSql('control_attempts'),
    update: updateSql('control_attempts'),
    select: 'SELECT * FROM control_attempts WHERE run_id = ? AND number = ?',
  },
};
const INSERT_EVENT =
  'INSERT INTO control_events (run_id, seq, time_ms, kind, data, row_sha256, rows, hash) VALUES (@run_id, @seq, @time_ms, @kind, @data, @row_sha256, @rows, @hash)';

/** Inserts a run and its first events, in one transaction. */
export function insertControlRun(connection: Connection, row: ControlRunRow, spec: string, events: readonly NewEvent[]): ControlChanged {
  return connection.write(() => {
    connection.run('INSERT INTO control_specs (sha256, spec) VALUES (?, ?) ON CONFLICT (sha256) DO NOTHING', row.spec_sha256, spec);
    return save(connection, INSERT_RUN, row, [], events);
  });
}

/**
 * Everything that one change means, in one transaction: the run by compare and set, its other rows by compare and set, the totals, the lease and
 * the events. ERR_STORE_STALE with nothing written when anything isn't as the guard says; ERR_STORE_UNREADABLE for a damaged record.
 */
export function changeControlRun(connection: Connection, runId: string, change: ControlChange): ControlChanged {
  return connection.write(() => {
    const found = connection.get('SELECT * FROM control_runs WHERE id = ?', runId);
    if (found === undefined) throw runNotFound(runId);
    const row = parseControlRow('control_runs', found, connection.file);
    const now = connection.clock();
    const damage = damageOf(connection, row);
    if (damage !== null && change.guard.evenDamaged !== true) throw damagedRecord(runId, damage);
    checkGuard(row, change.guard, now);
    const state = change.state ?? row.state;
    if (!mayMoveRun(row.state, state) && !isLate(row, change)) throw stale(runId, `it is ${row.state}, which is final`);
    const ends = CONTROL_ENDS.includes(state) && !CONTROL_ENDS.includes(row.state);
    const next: ControlRunRow = {
      ...row,
      ...change.fields,
      state,
      ...totals(row, change.add),
      ...(ends ? { ended_ms: now } : {}),
      ...leaseColumns(row, ends ? { kind: 'release' } : change.lease, now),
    };
    const parts = (change.writes ?? []).map((write) => apply(connection, runId, write));
    const noted = damage === null ? [] : [{ kind: DAMAGE_NOTED, data: { fact: damage } }];
    return save(connection, UPDATE_RUN, next, parts, [...noted, ...change.events]);
  });
}

interface Applied {
  readonly part: PartRow;
  readonly sql: string;
}

function save(connection: Connection, sql: string, row: ControlRunRow, applied: readonly Applied[], all: readonly NewEvent[]): ControlChanged {
  if (all.length === 0) throw new ProofrunError('ERR_INTERNAL', { message: 'a control run is never changed without an event' });
  const rowSha256 = controlDigest('control_runs', row);
  const digests = applied.map(({ part }) => [partKey(part), digestOf(part)] as const);
  const timeMs = connection.clock();
  let { last_seq: seq, chain } = row;
  const links = all.map((event, index) => {
    seq += 1;
    const link = linkControlEvent(event, { runId: row.id, seq, timeMs, rowSha256, rows: index === all.length - 1 ? digests : [], previous: chain });
    chain = link.hash;
    return link;
  });
  const next = { ...row, last_seq: seq, chain };
  connection.run(sql, next);
  connection.announce('rows');
  for (const { part, sql: partSql } of applied) if (connection.run(partSql, part.row) !== 1) throw stale(row.id, `${partKey(part)} is gone`);
  for (const link of links) connection.run(INSERT_EVENT, link);
  return { run: next, parts: applied.map(({ part }) => part) };
}

function digestOf(part: PartRow): string {
  return controlDigest(part.table, part.row as ControlRow<ControlPart>);
}

function apply(connection: Connection, runId: string, write: PartWrite): Applied {
  if ('insert' in write) return { part: { table: write.table, row: { ...write.insert, run_id: runId } } as PartRow, sql: SQL[write.table].insert };
  const found = connection.get(SQL[write.table].select, runId, write.key);
  if (found === undefined) throw stale(runId, `it has no ${write.table} ${write.key}`);
  const row = parseControlRow(write.table, found, connection.file);
  const from: readonly string[] = write.from;
  if (!from.includes(row.state)) throw stale(runId, `${write.table} ${write.key} is ${row.state}, expected ${from.join(' or ')}`);
  const next = { ...row, ...write.set };
  if (!mayMovePart(write.table, row.state, next.state)) throw stale(runId, `${write.table} ${write.key}: ${row.state} never becomes ${next.state}`);
  return { part: { table: write.table, row: next } as PartRow, sql: SQL[write.table].update };
}

function checkGuard(row: ControlRunRow, guard: ControlGuard, now: number): void {
  if (guard.fence !== undefined && row.fence !== guard.fence) throw stale(row.id, `another process owns it (fence ${row.fence}, ours ${guard.fence})`);
  const damaged = guard.evenDamaged === true && !CONTROL_STATES.includes(row.state);
  if (!damaged && !guard.states.includes(row.state)) throw stale(row.id, `it is ${row.state}, expected ${guard.states.join(' or ')}`);
  if (guard.alive === true && (row.expires_ms === null || row.expires_ms < now)) throw stale(row.id, 'the lease lapsed');
  if (guard.seq !== undefined && row.last_seq !== guard.seq) throw stale(row.id, 'its record changed meanwhile');
}

/** After the end only one thing is recorded: how a step went that was on its way. */
function isLate(row: ControlRunRow, change: ControlChange): boolean {
  if (change.state !== undefined || change.fields !== undefined || change.lease !== undefined || change.add !== undefined) return false;
  const late = (write: PartWrite): boolean =>
    !('insert' in write) && write.table === 'control_steps' && Object.keys(write.set).every((column) => column === 'late');
  return CONTROL_ENDS.includes(row.state) && (change.writes ?? []).every(late);
}

function totals(row: ControlRunRow, add: ControlTotals | undefined): Partial<ControlRunRow> {
  if (add === undefined) return {};
  return {
    turns: saturatingAdd(row.turns, add.turns ?? 0),
    steps: saturatingAdd(row.steps, add.steps ?? 0),
    model_calls: saturatingAdd(row.model_calls, add.modelCalls ?? 0),
    input_tokens: saturatingAdd(row.input_tokens, add.inputTokens ?? 0),
    output_tokens: saturatingAdd(row.output_tokens, add.outputTokens ?? 0),
    cost_nano_usd: saturatingAdd(row.cost_nano_usd, add.costNanoUsd ?? 0),
  };
}

/** Time counts as active from taking the lease to giving it up, or, for an owner that died, to the moment at which its lease lapsed. */
function leaseColumns(row: ControlRunRow, lease: ControlChange['lease'], now: number): Partial<ControlRunRow> {
  if (lease === undefined) return {};
  const until = lease.kind === 'take' ? Math.min(now, row.expires_ms ?? now) : now;
  const active = row.active_since_ms === null ? 0 : Math.max(0, until - row.active_since_ms);
  const owner = lease.kind === 'take' ? lease.lease.owner : undefined;
  return {
    active_ms: saturatingAdd(row.active_ms, active),
    active_since_ms: lease.kind === 'take' ? now : null,
    owner_pid: owner?.pid ?? null,
    owner_start_ticks: owner?.startTicks ?? null,
    owner_boot_id: owner?.bootId ?? null,
    owner_pid_namespace: owner?.pidNamespace ?? null,
    lease_id: lease.kind === 'take' ? lease.lease.leaseId : null,
    expires_ms: lease.kind === 'take' ? lease.lease.expiresMs : null,
    ...(lease.kind === 'take' ? { fence: row.fence + 1 } : {}),
  };
}

/** Why the row of a run can't be trusted. Its other rows are held against the chain by checkControl, before a run is continued. */
function damageOf(connection: Connection, row: ControlRunRow): string | null {
  const last = connection.get('SELECT seq, hash, row_sha256, kind FROM control_events WHERE run_id = ? ORDER BY seq DESC LIMIT 1', row.id);
  if (typeof last !== 'object' || last === null || !('seq' in last) || last.seq !== row.last_seq || !('hash' in last) || last.hash !== row.chain) {
    return 'its events were altered';
  }
  return 'row_sha256' in last && last.row_sha256 === controlDigest('control_runs', row) ? null : 'the row was altered';
}

function damagedRecord(runId: string, damage: string): ProofrunError {
  return new ProofrunError('ERR_STORE_UNREADABLE', {
    message: `${runId}: its record is damaged (${damage}); it can be shown and cancelled, not continued`,
    hint: `job cancel ${runId}`,
  });
}

function stale(runId: string, fact: string): ProofrunError {
  return new ProofrunError('ERR_STORE_STALE', { message: `${runId}: ${fact}`, hint: `job show ${runId}` });
}
