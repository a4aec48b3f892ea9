import { RUN_STATES, STAGE_STATES } from '../core/run.ts';
import { MODES } from '../core/dimension.ts';
import { CONTROL_SCHEMA } from './control-schema.ts';
import { LINEAGE_SCHEMA } from './lineage-schema.ts';

/** `PRAGMA application_id`: "PrfR". A database with another one isn't ours. */
export const APPLICATION_ID = 0x50726652;

function oneOf(column: string, words: readonly string[]): string {
  return `CHECK (${column} IN (${words.map((word) => `'${word}'`).join(', ')}))`;
}

const RUNS = `CREATE TABLE runs (
  id TEXT NOT NULL PRIMARY KEY,
  name TEXT,
  workspace TEXT NOT NULL,
  state TEXT NOT NULL ${oneOf('state', RUN_STATES)},
  stage_state TEXT NOT NULL ${oneOf('stage_state', STAGE_STATES)},
  mode TEXT NOT NULL ${oneOf('mode', MODES)},
  executor TEXT,
  argv TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  started_ms INTEGER,
  ended_ms INTEGER,
  ending TEXT,
  plan TEXT,
  bundle_path TEXT,
  bundle_sha256 TEXT,
  staged_summary TEXT,
  last_seq INTEGER NOT NULL,
  chain TEXT NOT NULL,
  owner_pid INTEGER,
  owner_start_ticks INTEGER,
  owner_boot_id TEXT,
  owner_pid_namespace TEXT,
  expires_ms INTEGER,
  fence INTEGER NOT NULL
) STRICT`;

const EVENTS = `CREATE TABLE events (
  run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  time_ms INTEGER NOT NULL,
  kind TEXT NOT NULL,
  data TEXT NOT NULL,
  row_sha256 TEXT NOT NULL,
  hash TEXT NOT NULL,
  PRIMARY KEY (run_id, seq)
) STRICT, WITHOUT ROWID`;

const APPLIES = `CREATE TABLE applies (
  id TEXT NOT NULL PRIMARY KEY,
  run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  workspace TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('open', 'done', 'rolled_back', 'failed')),
  started_ms INTEGER NOT NULL,
  ended_ms INTEGER,
  selection TEXT NOT NULL,
  result TEXT,
  owner_pid INTEGER NOT NULL,
  owner_start_ticks INTEGER NOT NULL,
  owner_boot_id TEXT NOT NULL,
  owner_pid_namespace TEXT NOT NULL
) STRICT`;

const APPLIED_PATHS = `CREATE TABLE applied_paths (
  apply_id TEXT NOT NULL REFERENCES applies (id) ON DELETE CASCADE,
  root INTEGER NOT NULL,
  path TEXT NOT NULL,
  encoding TEXT NOT NULL CHECK (encoding IN ('utf8', 'base64')),
  kind TEXT NOT NULL,
  before TEXT,
  after TEXT,
  backup TEXT,
  state TEXT NOT NULL CHECK (state IN ('planned', 'applied', 'rolled_back', 'failed')),
  PRIMARY KEY (apply_id, root, encoding, path)
) STRICT, WITHOUT ROWID`;

const RUN_SCHEMA: ReadonlyMap<string, string> = new Map([
  ['runs', RUNS],
  ['events', EVENTS],
  ['applies', APPLIES],
  ['applied_paths', APPLIED_PATHS],
  ['runs_by_workspace', 'CREATE INDEX runs_by_workspace ON runs (workspace, created_ms)'],
  ['runs_by_name', 'CREATE INDEX runs_by_name ON runs (name) WHERE name IS NOT NULL'],
  ['runs_owned', 'CREATE INDEX runs_owned ON runs (owner_pid) WHERE owner_pid IS NOT NULL'],
  ['applies_by_run', 'CREATE INDEX applies_by_run ON applies (run_id)'],
  ['one_open_apply', "CREATE UNIQUE INDEX one_open_apply ON applies (workspace) WHERE state = 'open'"],
]);

/** Every object of the schema, as SQLite keeps its text. There is no trigger and no view, and none is accepted. */
export const SCHEMA: ReadonlyMap<string, string> = new Map([...RUN_SCHEMA, ...LINEAGE_SCHEMA, ...CONTROL_SCHEMA]);

export const MIGRATIONS: readonly (readonly string[])[] = [[...RUN_SCHEMA.values()], [...LINEAGE_SCHEMA.values()], [...CONTROL_SCHEMA.values()]];

/** `PRAGMA user_version`: how many of the migrations a store has had. */
export const SCHEMA_VERSION = MIGRATIONS.length;
