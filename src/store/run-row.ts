import { canonicalSha256 } from '../core/canonical-json.ts';
import { unreadableStore } from './sqlite-errors.ts';

/** Kinds of column; `?` may be null. */
const COLUMN_TYPES = {
  id: 'text',
  name: 'text?',
  workspace: 'text',
  state: 'text',
  stage_state: 'text',
  mode: 'text',
  executor: 'text?',
  argv: 'text',
  created_ms: 'integer',
  started_ms: 'integer?',
  ended_ms: 'integer?',
  ending: 'text?',
  plan: 'text?',
  bundle_path: 'text?',
  bundle_sha256: 'text?',
  staged_summary: 'text?',
  last_seq: 'integer',
  chain: 'text',
  owner_pid: 'integer?',
  owner_start_ticks: 'integer?',
  owner_boot_id: 'text?',
  owner_pid_namespace: 'text?',
  expires_ms: 'integer?',
  fence: 'integer',
} as const;

type ColumnType<K> = K extends 'text' ? string : K extends 'text?' ? string | null : K extends 'integer' ? number : number | null;

/** A row of `runs` as it is stored. JSON columns are text. */
export type RunRow = { readonly [C in keyof typeof COLUMN_TYPES]: ColumnType<(typeof COLUMN_TYPES)[C]> };

export const RUN_COLUMNS = Object.keys(COLUMN_TYPES) as readonly (keyof RunRow)[];

/** Columns outside the event chain: the chain itself, and the lease, which is renewed without an event. */
const UNCHAINED: ReadonlySet<keyof RunRow> = new Set([
  'last_seq',
  'chain',
  'owner_pid',
  'owner_start_ticks',
  'owner_boot_id',
  'owner_pid_namespace',
  'expires_ms',
  'fence',
]);

/** What SQLite returned, checked column by column. Throws ERR_STORE_UNREADABLE. */
export function parseRunRow(value: unknown, file: string): RunRow {
  if (typeof value !== 'object' || value === null) throw unreadableStore(file, 'a run is not a row', 'job ls');
  const row: Readonly<Record<string, unknown>> = { ...value };
  for (const column of RUN_COLUMNS) {
    const type = COLUMN_TYPES[column];
    const cell = row[column];
    const fits = cell === null ? type.endsWith('?') : type.startsWith('text') ? typeof cell === 'string' : typeof cell === 'number';
    if (!fits) throw unreadableStore(file, `column ${column} of a run holds ${typeof cell}`, 'job ls');
  }
  return row as RunRow;
}

/** Digest of everything that the row says, for the event chain. */
export function rowDigest(row: RunRow): string {
  return canonicalSha256(Object.fromEntries(RUN_COLUMNS.filter((column) => !UNCHAINED.has(column)).map((column) => [column, row[column]])));
}
