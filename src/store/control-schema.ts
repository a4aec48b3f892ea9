import { APPROVAL_KINDS, APPROVAL_STATES, ATTEMPT_STATES, CONTROL_STATES, EFFECTS, ON_REJECT, OUTCOMES, STEP_STATES, TURN_KINDS } from '../core/control.ts';

/** What a column holds; `?` may be null. A list of words: one of them. */
type ColumnType = 'text' | 'text?' | 'integer' | 'integer?' | readonly string[];

interface TableShape {
  readonly key: readonly string[];
  readonly columns: Readonly<Record<string, ColumnType>>;
  /** Columns outside the event chain: the chain itself, and the lease, which is renewed without an event. */
  readonly unchained: readonly string[];
}

const WORD_OR_NULL = <W extends string>(words: readonly W[]): readonly [...W[], 'null'] => [...words, 'null'] as const;

/**
 * The tables of the control runtime as data: their SQL, the check of what SQLite returns, and the digests of the event chain are all made
 * from this. JSON columns are canonical text.
 */
export const CONTROL_TABLES = {
  control_runs: {
    key: ['id'],
    columns: {
      id: 'text',
      name: 'text?',
      workspace: 'text',
      agent: 'text',
      state: CONTROL_STATES,
      reason: 'text?',
      detail: 'text?',
      spec_sha256: 'text',
      created_ms: 'integer',
      ended_ms: 'integer?',
      deadline_ms: 'integer?',
      active_ms: 'integer',
      active_since_ms: 'integer?',
      turns: 'integer',
      steps: 'integer',
      failures: 'integer',
      model_calls: 'integer',
      input_tokens: 'integer',
      output_tokens: 'integer',
      cost_nano_usd: 'integer',
      result: 'text?',
      last_seq: 'integer',
      chain: 'text',
      owner_pid: 'integer?',
      owner_start_ticks: 'integer?',
      owner_boot_id: 'text?',
      owner_pid_namespace: 'text?',
      lease_id: 'text?',
      expires_ms: 'integer?',
      fence: 'integer',
    },
    unchained: ['last_seq', 'chain', 'owner_pid', 'owner_start_ticks', 'owner_boot_id', 'owner_pid_namespace', 'lease_id', 'expires_ms', 'fence'],
  },
  control_turns: {
    key: ['run_id', 'number'],
    columns: {
      run_id: 'text',
      number: 'integer',
      kind: TURN_KINDS,
      stop: 'text?',
      reason: 'text',
      decision: 'text?',
      raw: 'text?',
      fault: 'text?',
      created_ms: 'integer',
    },
    unchained: [],
  },
  control_steps: {
    key: ['run_id', 'number'],
    columns: {
      run_id: 'text',
      number: 'integer',
      turn: 'integer',
      call_id: 'text',
      tool: 'text',
      effect: WORD_OR_NULL(EFFECTS),
      arguments: 'text?',
      raw: 'text?',
      request_sha256: 'text?',
      spec_sha256: 'text?',
      policy: 'text?',
      state: STEP_STATES,
      outcome: WORD_OR_NULL(OUTCOMES),
      observation: 'text?',
      detail: 'text?',
      evidence: 'text?',
      executions: 'integer',
      fence: 'integer?',
      started_ms: 'integer?',
      ended_ms: 'integer?',
      late: 'text?',
    },
    unchained: [],
  },
  control_approvals: {
    key: ['id'],
    columns: {
      id: 'text',
      run_id: 'text',
      step: 'integer',
      kind: APPROVAL_KINDS,
      state: APPROVAL_STATES,
      capability: 'text',
      presentation: 'text',
      request: 'text',
      spec_sha256: 'text',
      policy_sha256: 'text',
      shown_sha256: 'text',
      on_reject: ON_REJECT,
      created_ms: 'integer',
      expires_ms: 'integer?',
      grant_ms: 'integer?',
      decided_ms: 'integer?',
      grant_expires_ms: 'integer?',
      decider: 'text?',
      note: 'text?',
      edited_request: 'text?',
      edited_sha256: 'text?',
      settlement: 'text?',
    },
    unchained: [],
  },
  control_attempts: {
    key: ['run_id', 'number'],
    columns: {
      run_id: 'text',
      number: 'integer',
      turn: 'integer',
      model: 'text',
      state: ATTEMPT_STATES,
      request_sha256: 'text',
      reserved_input: 'integer',
      reserved_output: 'integer',
      reserved_cost: 'integer',
      charged_input: 'integer',
      charged_output: 'integer',
      charged_cost: 'integer',
      usage: 'text?',
      outcome: WORD_OR_NULL(OUTCOMES),
      detail: 'text?',
      fence: 'integer',
      created_ms: 'integer',
      settled_ms: 'integer?',
    },
    unchained: [],
  },
} as const satisfies Record<string, TableShape>;

export type ControlTable = keyof typeof CONTROL_TABLES;

type CellOf<T> = T extends 'text'
  ? string
  : T extends 'text?'
    ? string | null
    : T extends 'integer'
      ? number
      : T extends 'integer?'
        ? number | null
        : T extends readonly (infer W)[]
          ? 'null' extends W
            ? Exclude<W, 'null'> | null
            : W
          : never;

type ColumnsOf<T extends ControlTable> = (typeof CONTROL_TABLES)[T]['columns'];

/** A row as it is stored. */
export type ControlRow<T extends ControlTable> = { readonly [C in keyof ColumnsOf<T>]: CellOf<ColumnsOf<T>[C]> };

export const CONTROL_TABLE_NAMES = Object.keys(CONTROL_TABLES) as readonly ControlTable[];
/** Tables whose rows belong to one run by `run_id`. */
export type ControlPart = Exclude<ControlTable, 'control_runs'>;

function columnSql(name: string, type: ColumnType): string {
  if (typeof type !== 'string') {
    const words = type.filter((word) => word !== 'null').map((word) => `'${word}'`);
    return `${name} TEXT ${type.includes('null') ? '' : 'NOT NULL '}CHECK (${name} IN (${words.join(', ')}))`;
  }
  const sql = type.startsWith('text') ? 'TEXT' : 'INTEGER';
  const references = name === 'run_id' ? ' REFERENCES control_runs (id) ON DELETE CASCADE' : '';
  return `${name} ${sql}${type.endsWith('?') ? '' : ' NOT NULL'}${references}`;
}

function tableSql(name: ControlTable): string {
  const { key, columns }: TableShape = CONTROL_TABLES[name];
  const lines = Object.entries(columns).map(([column, type]) => `  ${columnSql(column, type)}`);
  return `CREATE TABLE ${name} (\n${lines.join(',\n')},\n  PRIMARY KEY (${key.join(', ')})\n) STRICT`;
}

const EVENTS = `CREATE TABLE control_events (
  run_id TEXT NOT NULL REFERENCES control_runs (id) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  time_ms INTEGER NOT NULL,
  kind TEXT NOT NULL,
  data TEXT NOT NULL,
  row_sha256 TEXT NOT NULL,
  rows TEXT NOT NULL,
  hash TEXT NOT NULL,
  PRIMARY KEY (run_id, seq)
) STRICT, WITHOUT ROWID`;

const SPECS = `CREATE TABLE control_specs (
  sha256 TEXT NOT NULL PRIMARY KEY,
  spec TEXT NOT NULL
) STRICT`;

/** Objects of the control runtime by name. */
export const CONTROL_SCHEMA: ReadonlyMap<string, string> = new Map([
  ...CONTROL_TABLE_NAMES.map((name) => [name, tableSql(name)] as const),
  ['control_events', EVENTS],
  ['control_specs', SPECS],
  ['control_runs_by_workspace', 'CREATE INDEX control_runs_by_workspace ON control_runs (workspace, created_ms, id)'],
  ['control_runs_by_time', 'CREATE INDEX control_runs_by_time ON control_runs (created_ms, id)'],
  ['control_runs_by_name', 'CREATE INDEX control_runs_by_name ON control_runs (name) WHERE name IS NOT NULL'],
  ['control_runs_leased', 'CREATE INDEX control_runs_leased ON control_runs (lease_id) WHERE lease_id IS NOT NULL'],
  ['control_runs_due', "CREATE INDEX control_runs_due ON control_runs (deadline_ms) WHERE deadline_ms IS NOT NULL AND state IN ('running', 'waiting')"],
  ['control_approvals_by_step', 'CREATE INDEX control_approvals_by_step ON control_approvals (run_id, step)'],
  ['control_approvals_open', "CREATE INDEX control_approvals_open ON control_approvals (state) WHERE state IN ('pending', 'approved')"],
]);
