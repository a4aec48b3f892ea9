const LINEAGE = `CREATE TABLE lineage (
  run_id TEXT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  parent TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('on', 'fork')),
  checkpoint TEXT
) STRICT, WITHOUT ROWID`;

const CHECKPOINTS = `CREATE TABLE checkpoints (
  id TEXT NOT NULL PRIMARY KEY,
  run_id TEXT NOT NULL,
  workspace TEXT NOT NULL,
  name TEXT,
  state TEXT NOT NULL CHECK (state IN ('making', 'whole', 'going')),
  source TEXT NOT NULL CHECK (source IN ('stopped', 'live')),
  created_ms INTEGER NOT NULL,
  entries INTEGER,
  bytes INTEGER,
  manifest_sha256 TEXT,
  owner_pid INTEGER NOT NULL,
  owner_start_ticks INTEGER NOT NULL,
  owner_boot_id TEXT NOT NULL,
  owner_pid_namespace TEXT NOT NULL
) STRICT, WITHOUT ROWID`;

/** Version 2: what a run started from, and checkpoints. A parent may be gone: its id still says where a run came from. */
export const LINEAGE_SCHEMA: ReadonlyMap<string, string> = new Map([
  ['lineage', LINEAGE],
  ['checkpoints', CHECKPOINTS],
  ['lineage_by_parent', 'CREATE INDEX lineage_by_parent ON lineage (parent)'],
  ['checkpoints_by_run', 'CREATE INDEX checkpoints_by_run ON checkpoints (run_id)'],
]);
