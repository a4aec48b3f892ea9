import Database from 'better-sqlite3';
import { chmodSync, closeSync, constants, existsSync, fchmodSync, lstatSync, mkdirSync, openSync, statfsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { errnoOf, messageOf, ProofrunError } from '../core/errors.ts';
import { judgeFilesystem } from './filesystem.ts';
import { APPLICATION_ID, MIGRATIONS, SCHEMA, SCHEMA_VERSION } from './schema.ts';
import { explainSqliteError, sqliteCodeOf, unreadableStore } from './sqlite-errors.ts';

export const STORE_FILE = 'proofrun.db';

/** How long a statement waits for another process, in milliseconds. */
const BUSY_TIMEOUT_MS = 10_000;

export interface OpenedDatabase {
  readonly db: Database.Database;
  readonly file: string;
  readonly warnings: readonly string[];
}

/**
 * Opens `proofrun.db` in the state directory, creating both when they are missing (0700, 0600, whatever the umask). Refuses a directory or
 * file that is a symlink, has another owner or is open to others, a network filesystem, a schema that isn't exactly ours (triggers and
 * views included) and a newer version: ERR_STORE_UNREADABLE with the next command. The connection runs with trusted_schema off, defensive
 * on, foreign keys on, WAL and synchronous FULL. The caller closes it.
 */
export function openDatabase(stateDirectory: string, onWaiting: () => void = () => undefined): OpenedDatabase {
  const file = join(stateDirectory, STORE_FILE);
  try {
    prepareDirectory(stateDirectory);
    const warnings = checkFilesystem(stateDirectory);
    prepareFile(file);
    for (const companion of [`${file}-wal`, `${file}-shm`]) checkOwned(companion, 'file');
    return { db: connect(file, onWaiting), file, warnings };
  } catch (error) {
    if (error instanceof ProofrunError) throw error;
    const explained = explainSqliteError(error, file);
    if (explained !== error) throw explained;
    const errno = errnoOf(error);
    if (errno === 'ERR_DLOPEN_FAILED' || errno === 'MODULE_NOT_FOUND' || messageOf(error).includes('bindings file')) {
      throw unreadableStore(file, `better-sqlite3 is not built for this Node: ${messageOf(error)}`, 'npm rebuild better-sqlite3', error);
    }
    if (errno === 'ENOSPC' || errno === 'EDQUOT') {
      throw new ProofrunError('ERR_DISK_FULL', { message: `${stateDirectory}: ${messageOf(error)}`, hint: 'job prune', cause: error });
    }
    throw unreadableStore(file, messageOf(error), `ls -ld ${stateDirectory} ${file}`, error);
  }
}

function prepareDirectory(directory: string): void {
  if (checkOwned(directory, 'directory')) return;
  const created = mkdirSync(directory, { recursive: true, mode: 0o700 });
  // The umask may have taken bits that we need.
  if (created !== undefined) chmodSync(directory, 0o700);
  checkOwned(directory, 'directory');
}

function prepareFile(file: string): void {
  if (checkOwned(file, 'file')) return;
  try {
    const descriptor = openSync(file, constants.O_CREAT | constants.O_EXCL | constants.O_RDWR | constants.O_NOFOLLOW, 0o600);
    try {
      fchmodSync(descriptor, 0o600);
    } finally {
      closeSync(descriptor);
    }
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST') throw error;
    checkOwned(file, 'file');
  }
}

/** False when nothing is there; throws when something is there that we don't trust. */
function checkOwned(path: string, kind: 'file' | 'directory'): boolean {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return false;
  const next = `ls -ld ${path}`;
  if (stat.isSymbolicLink()) throw unreadableStore(path, 'is a symlink; the store is never reached through one', next);
  if (kind === 'directory' ? !stat.isDirectory() : !stat.isFile()) {
    throw unreadableStore(path, `is not a ${kind === 'file' ? 'regular file' : 'directory'}`, next);
  }
  const user = process.geteuid?.();
  if (user !== undefined && stat.uid !== user) throw unreadableStore(path, `belongs to user ${stat.uid}, this is user ${user}`, next);
  if ((stat.mode & 0o077) !== 0) {
    const wanted = kind === 'file' ? '600' : '700';
    throw unreadableStore(path, `has mode ${(stat.mode & 0o7777).toString(8)}, open to others; expected ${wanted}`, `chmod ${wanted} ${path}`);
  }
  return true;
}

function checkFilesystem(directory: string): readonly string[] {
  const verdict = judgeFilesystem(statfsSync(directory).type);
  switch (verdict.kind) {
    case 'local':
      return [];
    case 'doubtful':
      return [`the state directory ${directory} lies on ${verdict.name}; a store shared between machines is not protected`];
    case 'network':
      throw unreadableStore(directory, `lies on ${verdict.name}; the store needs a local filesystem`, 'export XDG_STATE_HOME=/a/local/directory');
  }
}

function connect(file: string, onWaiting: () => void): Database.Database {
  const addon = addonPath();
  const db = new Database(file, { fileMustExist: true, timeout: BUSY_TIMEOUT_MS, ...(addon === undefined ? {} : { nativeBinding: addon }) });
  try {
    // Before anything reads the schema: a planted expression must not reach functions with side effects.
    db.exec('PRAGMA trusted_schema = OFF; PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL; PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0;');
    db.unsafeMode(false);
    if (db.pragma('journal_mode', { simple: true }) !== 'wal') switchToWal(db, onWaiting);
    migrate(db, file);
    checkSchema(db, file);
    return db;
  } catch (error) {
    db.close();
    throw error;
  }
}

/** The addon's usual place. Asking `bindings` to search for it costs some 2 ms; undefined lets it search. */
function addonPath(): string | undefined {
  try {
    const path = createRequire(import.meta.url).resolve('better-sqlite3/build/Release/better_sqlite3.node');
    return existsSync(path) ? path : undefined;
  } catch {
    return undefined;
  }
}

/** SQLite doesn't wait when two processes switch an empty database at once, so this does. */
function switchToWal(db: Database.Database, onWaiting: () => void): void {
  const pause = new Int32Array(new SharedArrayBuffer(4));
  for (let attempt = 0; ; attempt += 1) {
    try {
      db.pragma('journal_mode = WAL');
      return;
    } catch (error) {
      if (sqliteCodeOf(error)?.startsWith('SQLITE_BUSY') !== true || attempt >= BUSY_TIMEOUT_MS / 5) throw error;
      if (attempt === 0) onWaiting();
      Atomics.wait(pause, 0, 0, 5);
    }
  }
}

function migrate(db: Database.Database, file: string): void {
  // In one snapshot: what another process commits between two reads would look like a damaged store.
  if (db.transaction(() => readVersion(db, file)).deferred() === SCHEMA_VERSION) return;
  db.transaction(() => {
    // Again, under the lock: another process may have migrated meanwhile.
    const version = readVersion(db, file);
    for (const step of MIGRATIONS.slice(version)) for (const statement of step) db.exec(statement);
    db.pragma(`application_id = ${APPLICATION_ID}`);
    db.pragma(`user_version = ${SCHEMA_VERSION}`);
  }).immediate();
}

function readVersion(db: Database.Database, file: string): number {
  const version = db.pragma('user_version', { simple: true });
  const application = db.pragma('application_id', { simple: true });
  if (version === 0 && application === 0 && db.prepare('SELECT count(*) FROM sqlite_schema').pluck().get() === 0) return 0;
  if (application !== APPLICATION_ID) throw unreadableStore(file, 'is a database of another program', `mv ${file} ${file}.other`);
  if (typeof version !== 'number' || version < 1 || version > SCHEMA_VERSION) {
    throw unreadableStore(file, `has version ${String(version)}, this Proofrun reads 1 to ${SCHEMA_VERSION}`, 'npm install --global proofrun@latest');
  }
  return version;
}

function checkSchema(db: Database.Database, file: string): void {
  const seen = new Set<string>();
  for (const row of db.prepare('SELECT type, name, sql FROM sqlite_schema').raw().iterate()) {
    const cells: readonly unknown[] = Array.isArray(row) ? row : [];
    const [type, name, sql] = cells;
    if (type === 'index' && sql === null && typeof name === 'string' && name.startsWith('sqlite_autoindex_')) continue;
    if (typeof name !== 'string' || (type !== 'table' && type !== 'index') || SCHEMA.get(name) !== sql) {
      throw unreadableStore(file, `holds a ${String(type)} ${JSON.stringify(name)} that is not Proofrun's`, `mv ${file} ${file}.damaged`);
    }
    seen.add(name);
  }
  for (const name of SCHEMA.keys()) {
    if (!seen.has(name)) throw unreadableStore(file, `lacks ${name}`, `mv ${file} ${file}.damaged`);
  }
}
