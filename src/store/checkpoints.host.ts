import { ProofrunError } from '../core/errors.ts';
import { parseCheckpointId, parseRunId, type CheckpointId, type RunId } from '../core/ids.ts';
import { safeLine } from '../core/text-safety.ts';
import type { Connection } from './connection.host.ts';
import { livenessOf, type Owner } from './owner.host.ts';
import { checkRunName } from './selector.ts';
import { unreadableStore } from './sqlite-errors.ts';

/** making: its files are being written; going: they are being removed. Only a whole one can be used. */
export type CheckpointState = 'making' | 'whole' | 'going';

export interface StoredCheckpoint {
  readonly id: CheckpointId;
  /** The run whose staged files it holds; the run itself may be gone. */
  readonly runId: RunId;
  readonly workspace: string;
  readonly name: string | null;
  readonly state: CheckpointState;
  /** live: taken while the run went on, at a point that its program named as quiet. */
  readonly source: 'stopped' | 'live';
  readonly createdMs: number;
  /** null unless whole. */
  readonly entries: number | null;
  readonly bytes: number | null;
  /** SHA-256 of its manifest. */
  readonly manifestSha256: string | null;
  /** Who makes or removes it. */
  readonly owner: Owner;
}

export type NewCheckpoint = Pick<StoredCheckpoint, 'id' | 'runId' | 'workspace' | 'name' | 'source' | 'owner'>;

export interface WholeCheckpoint {
  readonly entries: number;
  readonly bytes: number;
  readonly manifestSha256: string;
}

export interface CheckpointFilter {
  readonly workspace?: string;
  readonly runId?: RunId;
}

const SELECT =
  'SELECT id, run_id, workspace, name, state, source, created_ms, entries, bytes, manifest_sha256, owner_pid, owner_start_ticks, owner_boot_id, owner_pid_namespace FROM checkpoints';

/** Before its first file: what a crash leaves is found by this row. */
export function beginCheckpoint(connection: Connection, { id, runId, workspace, name, source, owner }: NewCheckpoint): void {
  connection.write(() =>
    connection.run(
      "INSERT INTO checkpoints (id, run_id, workspace, name, state, source, created_ms, owner_pid, owner_start_ticks, owner_boot_id, owner_pid_namespace) VALUES (?, ?, ?, ?, 'making', ?, ?, ?, ?, ?, ?)",
      id,
      runId,
      workspace,
      name === null ? null : checkRunName(name),
      source,
      connection.clock(),
      owner.pid,
      owner.startTicks,
      owner.bootId,
      owner.pidNamespace,
    ),
  );
}

/** After its files are on disk. ERR_STORE_STALE when another process took it for abandoned. */
export function finishCheckpoint(connection: Connection, id: CheckpointId, whole: WholeCheckpoint): StoredCheckpoint {
  const changed = connection.write(() =>
    connection.run(
      "UPDATE checkpoints SET state = 'whole', entries = ?, bytes = ?, manifest_sha256 = ? WHERE id = ? AND state = 'making'",
      whole.entries,
      whole.bytes,
      whole.manifestSha256,
      id,
    ),
  );
  const found = readCheckpoint(connection, id);
  if (changed !== 1 || found === undefined) {
    throw new ProofrunError('ERR_STORE_STALE', { message: `${id}: is no longer being made`, hint: 'job checkpoint list' });
  }
  return found;
}

/** From now on it can't be used, and `owner` removes its files. Repeating it is no error. */
export function beginCheckpointRemoval(connection: Connection, id: CheckpointId, owner: Owner): StoredCheckpoint {
  connection.write(() =>
    connection.run(
      "UPDATE checkpoints SET state = 'going', owner_pid = ?, owner_start_ticks = ?, owner_boot_id = ?, owner_pid_namespace = ? WHERE id = ?",
      owner.pid,
      owner.startTicks,
      owner.bootId,
      owner.pidNamespace,
      id,
    ),
  );
  const found = readCheckpoint(connection, id);
  if (found === undefined) throw notFound(id);
  return found;
}

/** After its files are gone. */
export function forgetCheckpoint(connection: Connection, id: CheckpointId): void {
  connection.write(() => connection.run('DELETE FROM checkpoints WHERE id = ?', id));
}

/** Newest first. */
export function listCheckpoints(connection: Connection, filter: CheckpointFilter): readonly StoredCheckpoint[] {
  const wanted = [
    ...(filter.workspace === undefined ? [] : [['workspace = ?', filter.workspace] as const]),
    ...(filter.runId === undefined ? [] : [['run_id = ?', filter.runId] as const]),
  ];
  const where = wanted.length === 0 ? '' : ` WHERE ${wanted.map(([condition]) => condition).join(' AND ')}`;
  return connection.all(`${SELECT}${where} ORDER BY id DESC`, ...wanted.map(([, value]) => value)).map((row) => parseRow(row, connection.file));
}

/** An id, a unique beginning of one, a name (the newest of that name in the workspace, else in all), or `last` (the newest of the workspace). */
export function findCheckpoint(connection: Connection, text: string, workspace: string): StoredCheckpoint {
  const all = listCheckpoints(connection, {}).filter((one) => one.state === 'whole');
  const here = all.filter((one) => one.workspace === workspace);
  if (text === 'last') {
    const [newest] = here;
    if (newest === undefined) {
      throw new ProofrunError('ERR_CHECKPOINT_NOT_FOUND', { message: 'this workspace has no checkpoint', hint: 'job checkpoint create last' });
    }
    return newest;
  }
  const named = here.find((one) => one.name === text) ?? all.find((one) => one.name === text);
  const begins = /^(?:cp-)?([0-9A-HJKMNP-TV-Z]{4,26})$/i.exec(text)?.[1]?.toUpperCase();
  const matching = [
    ...(named === undefined ? [] : [named]),
    ...(begins === undefined ? [] : all.filter((one) => one !== named && one.id.startsWith(`cp-${begins}`))),
  ];
  const [only, second] = matching;
  if (only === undefined) throw notFound(text);
  if (second !== undefined) {
    throw new ProofrunError('ERR_CHECKPOINT_NOT_FOUND', {
      message: `'${safeLine(text, 80)}' matches ${matching
        .slice(0, 5)
        .map((one) => one.id)
        .join(', ')}`,
      hint: 'give a longer part of the id; job checkpoint list',
    });
  }
  return only;
}

export function abandonedCheckpoints(connection: Connection): readonly StoredCheckpoint[] {
  return connection
    .all(`${SELECT} WHERE state <> 'whole'`)
    .map((row) => parseRow(row, connection.file))
    .filter((one) => livenessOf(one.owner) === 'dead');
}

function readCheckpoint(connection: Connection, id: CheckpointId): StoredCheckpoint | undefined {
  const row = connection.get(`${SELECT} WHERE id = ?`, id);
  return row === undefined ? undefined : parseRow(row, connection.file);
}

function notFound(text: string): ProofrunError {
  return new ProofrunError('ERR_CHECKPOINT_NOT_FOUND', { message: `no checkpoint matches '${safeLine(text, 80)}'`, hint: 'job checkpoint list --all' });
}

function parseRow(value: unknown, file: string): StoredCheckpoint {
  const row: Readonly<Record<string, unknown>> = typeof value === 'object' && value !== null ? { ...value } : {};
  const damaged = (column: string): never => {
    throw unreadableStore(file, `column ${column} of a checkpoint is damaged`, 'job checkpoint list');
  };
  const text = (column: string): string => {
    const cell = row[column];
    return typeof cell === 'string' ? cell : damaged(column);
  };
  const integer = (column: string): number => {
    const cell = row[column];
    return typeof cell === 'number' ? cell : damaged(column);
  };
  const orNull = <T>(column: string, read: (column: string) => T): T | null => (row[column] === null ? null : read(column));
  const state = text('state');
  const source = text('source');
  return {
    id: parseCheckpointId(text('id')) ?? damaged('id'),
    runId: parseRunId(text('run_id')) ?? damaged('run_id'),
    workspace: text('workspace'),
    name: orNull('name', text),
    state: state === 'making' || state === 'whole' || state === 'going' ? state : damaged('state'),
    source: source === 'stopped' || source === 'live' ? source : damaged('source'),
    createdMs: integer('created_ms'),
    entries: orNull('entries', integer),
    bytes: orNull('bytes', integer),
    manifestSha256: orNull('manifest_sha256', text),
    owner: {
      pid: integer('owner_pid'),
      startTicks: integer('owner_start_ticks'),
      bootId: text('owner_boot_id'),
      pidNamespace: text('owner_pid_namespace'),
    },
  };
}
