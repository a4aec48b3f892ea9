import { closeSync, constants, fchmodSync, openSync } from 'node:fs';
import Database from 'better-sqlite3';
import { explainSqliteError } from './sqlite-errors.ts';

/** How long a command waits for another one that holds the lock, in milliseconds: what is done under it takes milliseconds. */
const PATIENCE_MS = 30_000;

/**
 * Runs `body` while no other process does the same with this file. The kernel's lock of an empty database: it is gone with its process, whatever ends it.
 * `body` must not wait. Throws ERR_STORE_STALE or ERR_STORE_UNREADABLE when the lock can't be had.
 */
export function withFileLock<T>(path: string, body: () => T): T {
  const descriptor = openSync(path, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW, 0o600);
  try {
    fchmodSync(descriptor, 0o600);
  } finally {
    closeSync(descriptor);
  }
  const lock = new Database(path, { timeout: PATIENCE_MS });
  try {
    try {
      lock.exec('BEGIN EXCLUSIVE');
    } catch (error) {
      throw explainSqliteError(error, path);
    }
    return body();
  } finally {
    if (lock.inTransaction) lock.exec('ROLLBACK');
    lock.close();
  }
}
