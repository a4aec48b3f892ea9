import { ulid } from 'ulid';
import { canonicalJson, canonicalSha256 } from '../core/canonical-json.ts';
import { ProofrunError } from '../core/errors.ts';
import type { RunId } from '../core/ids.ts';
import type { JsonValue } from '../core/json.ts';
import { parseStrictJson } from '../core/strict-json.ts';
import type { Connection } from './connection.host.ts';
import { livenessOf, type Owner } from './owner.host.ts';
import { changeRun, refuseDamaged, restagedRow, type StageChange } from './runs.host.ts';
import { unreadableStore } from './sqlite-errors.ts';
import type { StoredRun } from './stored-run.ts';

export type ApplyState = 'open' | 'done' | 'rolled_back' | 'failed';
export type AppliedPathState = 'planned' | 'applied' | 'rolled_back' | 'failed';

/** One path of a batch, relative to the staged root number `root`. */
export interface AppliedPath {
  readonly root: number;
  readonly path: string;
  readonly encoding: 'utf8' | 'base64';
  readonly kind: string;
  /** Facts of the entry before and after, as the stage writes them; null: absent. */
  readonly before: JsonValue;
  readonly after: JsonValue;
  /** Where the old entry is kept, relative to the state directory or the workspace as the stage says. */
  readonly backup: string | null;
  readonly state: AppliedPathState;
}

/** A batch of an apply: one transaction before anything is touched, one after. */
export interface StoredApply {
  readonly id: string;
  readonly runId: RunId;
  readonly workspace: string;
  readonly state: ApplyState;
  readonly startedMs: number;
  readonly endedMs: number | null;
  readonly selection: JsonValue;
  readonly result: JsonValue;
  readonly owner: Owner;
}

export interface NewApply {
  readonly runId: RunId;
  readonly workspace: string;
  readonly owner: Owner;
  /** What the person selected, for the record. */
  readonly selection: JsonValue;
  readonly paths: readonly Omit<AppliedPath, 'state'>[];
}

export interface ApplyEnd {
  readonly state: Exclude<ApplyState, 'open'>;
  readonly result: JsonValue;
  /**
   * How each path ended, where its backup lies, and what it is now. Paths that are left out become `applied` when the batch is done,
   * else `rolled_back`.
   */
  readonly paths?: readonly (Pick<AppliedPath, 'root' | 'path' | 'encoding' | 'state' | 'backup'> & Partial<Pick<AppliedPath, 'kind' | 'after'>>)[];
  /** Only with state `done`. */
  readonly stage?: StageChange;
}

const SELECT_APPLY =
  'SELECT id, run_id, workspace, state, started_ms, ended_ms, selection, result, owner_pid, owner_start_ticks, owner_boot_id, owner_pid_namespace FROM applies';

/**
 * Records a batch before anything is touched; one open batch a workspace. ERR_APPLY_LOCKED while another process applies there,
 * ERR_APPLY_INTERRUPTED when the process of an open batch is dead: then that batch is to be recovered first (`openApplies`).
 */
export function beginApply(connection: Connection, apply: NewApply): string {
  const id = `apply-${ulid(connection.clock())}`;
  const planned = apply.paths.map((path): AppliedPath => ({ ...path, state: 'planned' }));
  changeRun(
    connection,
    apply.runId,
    [{ kind: 'apply.started', data: { apply: id, paths: planned.length, paths_sha256: pathsDigest(planned) } }],
    (row, damage) => {
      refuseDamaged(apply.runId, damage);
      const open = openApplies(connection, apply.workspace)[0];
      if (open !== undefined) throw lockedBy(open);
      connection.run(
        `INSERT INTO applies (id, run_id, workspace, state, started_ms, selection, owner_pid, owner_start_ticks, owner_boot_id, owner_pid_namespace) VALUES (?, ?, ?, 'open', ?, ?, ?, ?, ?, ?)`,
        id,
        apply.runId,
        apply.workspace,
        connection.clock(),
        canonicalJson(apply.selection),
        apply.owner.pid,
        apply.owner.startTicks,
        apply.owner.bootId,
        apply.owner.pidNamespace,
      );
      for (const path of planned) insertPath(connection, id, path);
      return row;
    },
  );
  return id;
}

/** Closes an open batch and, when it is done, changes the run's stage state in the same transaction. ERR_STORE_STALE when it isn't open. */
export function finishApply(connection: Connection, applyId: string, end: ApplyEnd): StoredRun {
  const apply = readApply(connection, applyId);
  const ended = endedPaths(appliedPaths(connection, applyId), end);
  const event = { kind: 'apply.finished', data: { apply: applyId, state: end.state, paths_sha256: pathsDigest(ended) } };
  return changeRun(connection, apply.runId, [event], (row, damage) => {
    const closed = connection.run(
      `UPDATE applies SET state = ?, ended_ms = ?, result = ? WHERE id = ? AND state = 'open'`,
      end.state,
      connection.clock(),
      canonicalJson(end.result),
      applyId,
    );
    if (closed !== 1) throw new ProofrunError('ERR_STORE_STALE', { message: `${applyId}: is no longer open`, hint: `job status ${apply.runId}` });
    for (const path of ended) {
      connection.run(
        'UPDATE applied_paths SET state = ?, backup = ?, kind = ?, after = ? WHERE apply_id = ? AND root = ? AND encoding = ? AND path = ?',
        path.state,
        path.backup,
        path.kind,
        path.after === null ? null : canonicalJson(path.after),
        applyId,
        path.root,
        path.encoding,
        path.path,
      );
    }
    return end.stage === undefined ? row : restagedRow(row, end.stage, damage);
  });
}

/** Batches that were begun and not closed, of one workspace or of all. */
export function openApplies(connection: Connection, workspace?: string): readonly StoredApply[] {
  const rows =
    workspace === undefined
      ? connection.all(`${SELECT_APPLY} WHERE state = 'open' ORDER BY id`)
      : connection.all(`${SELECT_APPLY} WHERE state = 'open' AND workspace = ?`, workspace);
  return rows.map((row) => parseApply(row, connection.file));
}

/** Batches of a run, oldest first. */
export function appliesOfRun(connection: Connection, runId: RunId): readonly StoredApply[] {
  return connection.all(`${SELECT_APPLY} WHERE run_id = ? ORDER BY id`, runId).map((row) => parseApply(row, connection.file));
}

export function readApply(connection: Connection, applyId: string): StoredApply {
  const row = connection.get(`${SELECT_APPLY} WHERE id = ?`, applyId);
  if (row === undefined) throw new ProofrunError('ERR_RUN_NOT_FOUND', { message: `no batch ${applyId}`, hint: 'job ls' });
  return parseApply(row, connection.file);
}

/** Paths of a batch, in the order of root, encoding and path. */
export function appliedPaths(connection: Connection, applyId: string): readonly AppliedPath[] {
  const rows = connection.all(
    'SELECT root, path, encoding, kind, before, after, backup, state FROM applied_paths WHERE apply_id = ? ORDER BY root, encoding, path',
    applyId,
  );
  return rows.map((row) => parsePath(row, connection.file));
}

/** Digest of a batch's paths, which the events `apply.started` and `apply.finished` carry. */
export function pathsDigest(paths: readonly AppliedPath[]): string {
  const key = (path: AppliedPath): string => `${path.root}\0${path.encoding}\0${path.path}`;
  return canonicalSha256([...paths].sort((a, b) => (key(a) < key(b) ? -1 : 1)));
}

function insertPath(connection: Connection, applyId: string, path: AppliedPath): void {
  connection.run(
    'INSERT INTO applied_paths (apply_id, root, path, encoding, kind, before, after, backup, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
    applyId,
    path.root,
    path.path,
    path.encoding,
    path.kind,
    path.before === null ? null : canonicalJson(path.before),
    path.after === null ? null : canonicalJson(path.after),
    path.backup,
    path.state,
  );
}

function endedPaths(planned: readonly AppliedPath[], end: ApplyEnd): readonly AppliedPath[] {
  const rest: AppliedPathState = end.state === 'done' ? 'applied' : 'rolled_back';
  const key = (path: Pick<AppliedPath, 'root' | 'path' | 'encoding'>): string => `${path.root}\0${path.encoding}\0${path.path}`;
  const told = new Map(end.paths?.map((path) => [key(path), path]));
  return planned.map((path) => {
    const one = told.get(key(path));
    return one === undefined
      ? { ...path, state: rest }
      : { ...path, state: one.state, backup: one.backup, kind: one.kind ?? path.kind, after: one.after ?? path.after };
  });
}

function lockedBy(open: StoredApply): ProofrunError {
  if (livenessOf(open.owner) === 'dead') {
    return new ProofrunError('ERR_APPLY_INTERRUPTED', {
      message: `${open.workspace}: an apply of ${open.runId} (${open.id}) ended half way`,
      hint: `job status ${open.runId}`,
      data: { apply: open.id },
    });
  }
  return new ProofrunError('ERR_APPLY_LOCKED', {
    message: `${open.workspace}: process ${open.owner.pid} is applying ${open.runId} there`,
    hint: 'run the command again when it is done',
  });
}

function parseApply(row: unknown, file: string): StoredApply {
  const cells = new Cells(row, file);
  return {
    id: cells.text('id'),
    runId: cells.text('run_id') as RunId,
    workspace: cells.text('workspace'),
    state: cells.oneOf('state', ['open', 'done', 'rolled_back', 'failed']),
    startedMs: cells.integer('started_ms'),
    endedMs: cells.isNull('ended_ms') ? null : cells.integer('ended_ms'),
    selection: cells.json('selection'),
    result: cells.json('result'),
    owner: {
      pid: cells.integer('owner_pid'),
      startTicks: cells.integer('owner_start_ticks'),
      bootId: cells.text('owner_boot_id'),
      pidNamespace: cells.text('owner_pid_namespace'),
    },
  };
}

function parsePath(row: unknown, file: string): AppliedPath {
  const cells = new Cells(row, file);
  return {
    root: cells.integer('root'),
    path: cells.text('path'),
    encoding: cells.oneOf('encoding', ['utf8', 'base64']),
    kind: cells.text('kind'),
    before: cells.json('before'),
    after: cells.json('after'),
    backup: cells.isNull('backup') ? null : cells.text('backup'),
    state: cells.oneOf('state', ['planned', 'applied', 'rolled_back', 'failed']),
  };
}

/** Checked access to the columns of a row. */
class Cells {
  readonly #row: Readonly<Record<string, unknown>>;
  readonly #file: string;

  constructor(row: unknown, file: string) {
    this.#row = typeof row === 'object' && row !== null ? { ...row } : {};
    this.#file = file;
  }

  isNull(column: string): boolean {
    return this.#row[column] === null;
  }

  text(column: string): string {
    const cell = this.#row[column];
    if (typeof cell !== 'string') throw this.#fault(column);
    return cell;
  }

  integer(column: string): number {
    const cell = this.#row[column];
    if (typeof cell !== 'number') throw this.#fault(column);
    return cell;
  }

  oneOf<W extends string>(column: string, words: readonly W[]): W {
    const cell = this.text(column);
    const word = words.find((one) => one === cell);
    if (word === undefined) throw this.#fault(column);
    return word;
  }

  json(column: string): JsonValue {
    return this.isNull(column) ? null : parseStrictJson(this.text(column), { source: `${this.#file}: ${column}` });
  }

  #fault(column: string): ProofrunError {
    return unreadableStore(this.#file, `column ${column} of an apply is damaged`, 'job ls');
  }
}
