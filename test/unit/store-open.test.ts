import Database from 'better-sqlite3';
import { chmodSync, chownSync, existsSync, lstatSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../src/store/database.host.ts';
import { judgeFilesystem } from '../../src/store/filesystem.ts';
import { openStore } from '../../src/store/index.ts';
import { explainSqliteError } from '../../src/store/sqlite-errors.ts';
import { containing, matching } from '../support/matching.ts';
import { record } from '../support/store-run.ts';
import { APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION } from '../../src/store/schema.ts';
import { temporaryDirectories } from '../support/temporary.ts';

const directory = temporaryDirectories();
const clock = (): number => 1_000;
const mode = (path: string): number => lstatSync(path).mode & 0o7777;

/** A store with one run in it, closed; returns the state directory. */
function filled(): string {
  const state = join(directory(), 'state');
  const store = openStore(state, clock);
  record(store);
  store.close();
  return state;
}

function refusal(state: string): { readonly message: string; readonly hint: string } {
  try {
    openStore(state, clock).close();
  } catch (error) {
    expect(error).toMatchObject({ code: 'ERR_STORE_UNREADABLE' });
    if (error instanceof Error && 'hint' in error) return { message: error.message, hint: String(error.hint) };
    throw error;
  }
  throw new Error('the store was opened');
}

/** Changes the database as another program could. */
function tamper(state: string, sql: string): void {
  const db = new Database(join(state, 'proofrun.db'));
  db.unsafeMode(true);
  db.exec(sql);
  db.close();
}

describe('files of the store', () => {
  const umask = process.umask(0o022);
  process.umask(umask);
  afterEach(() => {
    process.umask(umask);
  });

  it.each([0o000, 0o022, 0o777])('are 0600 in a 0700 directory under umask %o', (value) => {
    const state = join(directory(), 'state');
    process.umask(value);
    const store = openStore(state, clock);
    record(store);
    expect(mode(state)).toBe(0o700);
    for (const name of ['proofrun.db', 'proofrun.db-wal', 'proofrun.db-shm']) expect([name, mode(join(state, name)).toString(8)]).toEqual([name, '600']);
    store.close();
  });

  it('are found again', () => {
    const store = openStore(filled(), clock);
    expect(store.listRuns()).toHaveLength(1);
    expect(store.warnings).toEqual([]);
    store.close();
  });

  it('are refused when the directory is open to others', () => {
    const state = filled();
    chmodSync(state, 0o755);
    expect(refusal(state)).toEqual({ message: containing('mode 755, open to others; expected 700'), hint: `chmod 700 ${state}` });
  });

  it.each([0o640, 0o604, 0o666])('are refused when the database has mode %o', (value) => {
    const state = filled();
    chmodSync(join(state, 'proofrun.db'), value);
    expect(refusal(state).hint).toBe(`chmod 600 ${join(state, 'proofrun.db')}`);
  });

  it('are refused when the directory is a symlink', () => {
    const state = filled();
    const link = join(directory(), 'link');
    symlinkSync(state, link);
    expect(refusal(link).message).toMatch(/link: is a symlink/);
  });

  it.each(['proofrun.db', 'proofrun.db-wal', 'proofrun.db-shm'])('are refused when %s is a symlink', (name) => {
    const state = filled();
    const target = join(directory(), 'target');
    writeFileSync(target, '', { mode: 0o600 });
    if (existsSync(join(state, name))) renameSync(join(state, name), target);
    symlinkSync(target, join(state, name));
    expect(refusal(state).message).toMatch(/is a symlink/);
  });

  it('are never created through a dangling symlink', () => {
    const state = join(directory(), 'state');
    mkdirSync(state, { mode: 0o700 });
    const target = join(directory(), 'target');
    symlinkSync(target, join(state, 'proofrun.db'));
    expect(refusal(state).message).toMatch(/is a symlink/);
    expect(existsSync(target)).toBe(false);
  });

  it('are refused when something else is in their place', () => {
    const state = join(directory(), 'state');
    mkdirSync(join(state, 'proofrun.db'), { recursive: true, mode: 0o700 });
    expect(refusal(state).message).toMatch(/is not a regular file/);
    const file = join(directory(), 'file');
    writeFileSync(file, '', { mode: 0o600 });
    expect(refusal(file).message).toMatch(/is not a directory/);
  });

  it.runIf(process.geteuid?.() === 0)('are refused when they belong to somebody else', () => {
    const state = filled();
    chownSync(state, 1500, 1500);
    expect(refusal(state).message).toMatch(/belongs to user 1500, this is user 0/);
    chownSync(state, 0, 0);
    chownSync(join(state, 'proofrun.db'), 1500, 1500);
    expect(refusal(state).message).toMatch(/belongs to user 1500/);
  });
});

describe('the database', () => {
  it('runs with the settings that the design asks for', () => {
    const { db } = openDatabase(filled());
    const pragma = (name: string): unknown => db.pragma(name, { simple: true });
    expect({
      journal: pragma('journal_mode'),
      synchronous: pragma('synchronous'),
      foreign: pragma('foreign_keys'),
      trusted: pragma('trusted_schema'),
      version: pragma('user_version'),
    }).toEqual({
      journal: 'wal',
      synchronous: 2,
      foreign: 1,
      trusted: 0,
      version: SCHEMA_VERSION,
    });
    db.close();
  });

  it('is defensive: the schema can not be written to', () => {
    const { db } = openDatabase(filled());
    db.pragma('writable_schema = ON');
    expect(() => db.exec("UPDATE sqlite_schema SET sql = 'CREATE TABLE runs (x)' WHERE name = 'runs'")).toThrow(/may not be modified/);
    db.close();
  });

  it.each([
    ['a trigger', 'CREATE TRIGGER evil AFTER INSERT ON events BEGIN DELETE FROM runs; END', /trigger "evil"/],
    ['a view', 'CREATE VIEW evil AS SELECT 1', /view "evil"/],
    ['another table', 'CREATE TABLE evil (x)', /table "evil"/],
    ['another index', 'CREATE INDEX evil ON runs (mode)', /index "evil"/],
    ['a changed table', 'ALTER TABLE runs ADD COLUMN evil TEXT', /table "runs"/],
    ['a missing index', 'DROP INDEX runs_by_name', /lacks runs_by_name/],
    ['a missing table', 'DROP TABLE applied_paths', /lacks applied_paths/],
    [
      'a hidden trigger',
      "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES ('trigger', 'sqlite_autoindex_x', 'runs', 0, 'CREATE TRIGGER sqlite_autoindex_x AFTER INSERT ON runs BEGIN SELECT 1; END')",
      /sqlite_autoindex_x|malformed/,
    ],
  ])('is refused with %s', (_reason, sql, message) => {
    const state = filled();
    tamper(state, sql);
    expect(refusal(state).message).toMatch(message);
  });

  it('of another program is refused and left alone', () => {
    const state = join(directory(), 'state');
    mkdirSync(state, { mode: 0o700 });
    const db = new Database(join(state, 'proofrun.db'));
    db.exec('CREATE TABLE theirs (x)');
    db.close();
    chmodSync(join(state, 'proofrun.db'), 0o600);
    expect(refusal(state).message).toMatch(/database of another program/);
  });

  it('of a newer version is refused with the way out', () => {
    const state = filled();
    tamper(state, 'PRAGMA user_version = 99');
    expect(refusal(state)).toEqual({ message: containing('has version 99, this Proofrun reads 1'), hint: 'npm install --global proofrun@latest' });
  });

  it.each([
    ['text', (file: string) => writeFileSync(file, 'not a database at all, but long enough to be read as one '.repeat(40))],
    ['a damaged header', (file: string) => writeFileSync(file, Buffer.concat([Buffer.alloc(100, 0xff), readFileSync(file).subarray(100)]))],
    ['a cut end', (file: string) => truncateSync(file, 4096 + 512)],
    [
      'a damaged schema page',
      (file: string) => writeFileSync(file, Buffer.concat([readFileSync(file).subarray(0, 108), Buffer.alloc(3000, 0xee), readFileSync(file).subarray(3108)])),
    ],
  ])('that is %s is refused with the way out', (_reason, damage) => {
    const state = filled();
    const file = join(state, 'proofrun.db');
    for (const companion of ['-wal', '-shm']) rmSync(file + companion, { force: true });
    damage(file);
    const { message, hint } = refusal(state);
    expect(message).toMatch(/damaged|lacks|not Proofrun's|another program/);
    expect(hint).toMatch(/^mv /);
  });

  it('that is damaged behind its first pages is refused when it is read', () => {
    const state = filled();
    const first = openStore(state, clock);
    for (let count = 0; count < 80; count += 1) record(first, { argv: ['x'.repeat(2_000)] });
    first.close();
    const file = join(state, 'proofrun.db');
    const bytes = readFileSync(file);
    writeFileSync(file, Buffer.concat([bytes.subarray(0, 40 * 4096), Buffer.alloc(bytes.length - 40 * 4096, 0xee)]));
    const store = openStore(state, clock);
    expect(() => store.listRuns()).toThrow(expect.objectContaining({ code: 'ERR_STORE_UNREADABLE', hint: `mv ${file} ${file}.damaged` }));
    store.close();
  });

  it('of the first version gets the tables that came later, and keeps its runs', () => {
    const state = join(directory(), 'state');
    mkdirSync(state, { mode: 0o700 });
    const db = new Database(join(state, 'proofrun.db'));
    for (const statement of MIGRATIONS[0] ?? []) db.exec(statement);
    db.pragma(`application_id = ${APPLICATION_ID}`);
    db.pragma('user_version = 1');
    db.close();
    chmodSync(join(state, 'proofrun.db'), 0o600);
    const store = openStore(state, clock);
    const { id } = record(store);
    expect([store.listRuns().map((run) => run.id), store.control.list()]).toEqual([[id], []]);
    store.close();
  });

  it('is made of an empty file', () => {
    const state = join(directory(), 'state');
    mkdirSync(state, { mode: 0o700 });
    writeFileSync(join(state, 'proofrun.db'), '', { mode: 0o600 });
    const store = openStore(state, clock);
    expect(store.listRuns()).toEqual([]);
    store.close();
  });

  it.runIf(process.geteuid?.() !== 0)('can not be created where nothing may be written', () => {
    const parent = directory();
    chmodSync(parent, 0o500);
    expect(refusal(join(parent, 'state')).message).toMatch(/EACCES|permission denied/);
    chmodSync(parent, 0o700);
  });
});

describe('filesystems', () => {
  it.each([
    [0x6969, 'network', 'NFS'],
    [0xff534d42, 'network', 'CIFS'],
    [0xff534d42 - 2 ** 32, 'network', 'CIFS'],
    [0x65735546, 'doubtful', 'FUSE'],
  ])('%i is %s', (type, kind, name) => {
    expect(judgeFilesystem(type)).toEqual({ kind, name });
  });

  it.each([0xef53, 0x01021994, 0x58465342, 0x9123683e - 2 ** 32, 0x794c7630])('%i is local', (type) => {
    expect(judgeFilesystem(type)).toEqual({ kind: 'local' });
  });
});

describe('errors of SQLite', () => {
  it.each([
    ['SQLITE_BUSY', 'ERR_STORE_STALE'],
    ['SQLITE_BUSY_SNAPSHOT', 'ERR_STORE_STALE'],
    ['SQLITE_FULL', 'ERR_DISK_FULL'],
    ['SQLITE_CORRUPT_VTAB', 'ERR_STORE_UNREADABLE'],
    ['SQLITE_NOTADB', 'ERR_STORE_UNREADABLE'],
    ['SQLITE_IOERR_READ', 'ERR_STORE_UNREADABLE'],
    ['SQLITE_READONLY_DBMOVED', 'ERR_STORE_UNREADABLE'],
  ])('%s becomes %s', (code, ours) => {
    expect(explainSqliteError(Object.assign(new Error('x'), { code }), '/s/proofrun.db')).toMatchObject({ code: ours, hint: matching(/./) });
  });

  it('passes on what is a fault of ours', () => {
    const fault = Object.assign(new Error('x'), { code: 'SQLITE_CONSTRAINT_CHECK' });
    expect(explainSqliteError(fault, '/s')).toBe(fault);
  });
});
