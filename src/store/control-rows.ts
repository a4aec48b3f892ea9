import { canonicalJson, sha256Hex } from '../core/canonical-json.ts';
import { CONTROL_ENDS, type ApprovalState, type ControlState, type ModelAttemptState, type StepState } from '../core/control.ts';
import { CONTROL_TABLES, type ControlPart, type ControlRow, type ControlTable } from './control-schema.ts';
import { unreadableStore } from './sqlite-errors.ts';

export type ControlRunRow = ControlRow<'control_runs'>;
export type TurnRow = ControlRow<'control_turns'>;
export type StepRow = ControlRow<'control_steps'>;
export type ApprovalRow = ControlRow<'control_approvals'>;
export type ModelAttemptRow = ControlRow<'control_attempts'>;

/** A row of any part, with the table that it belongs to. */
export type PartRow = { readonly [T in ControlPart]: { readonly table: T; readonly row: ControlRow<T> } }[ControlPart];

const columnNames = new Map<ControlTable, readonly string[]>();
const chainedNames = new Map<ControlTable, readonly string[]>();

export function columnsOf(table: ControlTable): readonly string[] {
  let names = columnNames.get(table);
  if (names === undefined) {
    names = Object.keys(CONTROL_TABLES[table].columns);
    columnNames.set(table, names);
  }
  return names;
}

function chainedOf(table: ControlTable): readonly string[] {
  let names = chainedNames.get(table);
  if (names === undefined) {
    const unchained: readonly string[] = CONTROL_TABLES[table].unchained;
    names = columnsOf(table).filter((column) => !unchained.includes(column));
    chainedNames.set(table, names);
  }
  return names;
}

/**
 * What SQLite returned, checked column by column. Throws ERR_STORE_UNREADABLE for another type; a word that the schema doesn't know passes, so
 * that a damaged run can still be listed.
 */
export function parseControlRow<T extends ControlTable>(table: T, value: unknown, file: string): ControlRow<T> {
  if (typeof value !== 'object' || value === null) throw unreadableStore(file, `no row of ${table}`, 'job show');
  const row = value as Readonly<Record<string, unknown>>;
  for (const [column, type] of Object.entries(CONTROL_TABLES[table].columns as Readonly<Record<string, string | readonly string[]>>)) {
    const cell = row[column];
    const nullable = typeof type === 'string' ? type.endsWith('?') : type.includes('null');
    const wanted = typeof type === 'string' && type.startsWith('integer') ? 'number' : 'string';
    if (cell === null ? !nullable : typeof cell !== wanted) {
      throw unreadableStore(file, `column ${column} of ${table} holds ${cell === null ? 'nothing' : typeof cell}`, 'job show');
    }
  }
  return value as ControlRow<T>;
}

/** Digest of everything that a row says, in the order of its columns. */
export function controlDigest<T extends ControlTable>(table: T, row: ControlRow<T>): string {
  const cells = row as Readonly<Record<string, unknown>>;
  return sha256Hex(canonicalJson([table, ...chainedOf(table).map((column) => cells[column])]));
}

/** Names one row of a run in events: `control_steps:3`. */
export function partKey(part: PartRow): string {
  return part.table === 'control_approvals' ? `${part.table}:${part.row.id}` : `${part.table}:${part.row.number}`;
}

const STEP_MOVES: Readonly<Record<StepState, readonly StepState[]>> = {
  proposed: ['invalid', 'denied', 'waiting', 'started', 'failed'],
  waiting: ['denied', 'started', 'done', 'failed'],
  started: ['done', 'failed', 'unknown'],
  unknown: ['waiting', 'started', 'done', 'failed'],
  invalid: [],
  denied: [],
  done: [],
  failed: [],
};
const APPROVAL_MOVES: Readonly<Record<ApprovalState, readonly ApprovalState[]>> = {
  pending: ['approved', 'rejected', 'settled', 'expired', 'withdrawn'],
  approved: ['used', 'expired', 'withdrawn'],
  rejected: [],
  settled: [],
  used: [],
  expired: [],
  withdrawn: [],
};
const ATTEMPT_MOVES: Readonly<Record<ModelAttemptState, readonly ModelAttemptState[]>> = {
  reserved: ['settled', 'conservative', 'orphaned'],
  settled: [],
  conservative: [],
  orphaned: [],
};
const MOVES: Readonly<Partial<Record<ControlPart, Readonly<Record<string, readonly string[]>>>>> = {
  control_steps: STEP_MOVES,
  control_approvals: APPROVAL_MOVES,
  control_attempts: ATTEMPT_MOVES,
};

/** Whether a row of a part may go from one state to another; the same state is no move. */
export function mayMovePart(table: ControlPart, from: string, to: string): boolean {
  return from === to || (MOVES[table]?.[from]?.includes(to) ?? false);
}

/** Whether a run may: an end is never left. */
export function mayMoveRun(from: ControlState, to: ControlState): boolean {
  if (from === to) return !CONTROL_ENDS.includes(from);
  return !CONTROL_ENDS.includes(from);
}

/** The sum, at most 2^53 - 1 and never below 0. A total that reached the top stays there: nothing may be taken from what wasn't counted. */
export function saturatingAdd(total: number, more: number): number {
  if (total >= Number.MAX_SAFE_INTEGER) return Number.MAX_SAFE_INTEGER;
  const sum = total + more;
  return sum >= Number.MAX_SAFE_INTEGER ? Number.MAX_SAFE_INTEGER : Math.max(0, sum);
}
