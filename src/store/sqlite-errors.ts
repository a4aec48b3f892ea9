import { ProofrunError, messageOf } from '../core/errors.ts';

/** Code of a better-sqlite3 error (`SQLITE_BUSY`), else undefined. */
export function sqliteCodeOf(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null || !('code' in error)) return undefined;
  return typeof error.code === 'string' && error.code.startsWith('SQLITE_') ? error.code : undefined;
}

/** What an error of SQLite means for the person. Errors of ours, and faults of our SQL, pass through. */
export function explainSqliteError(error: unknown, file: string): unknown {
  const code = sqliteCodeOf(error);
  if (code === undefined) return error;
  // Growing the WAL's index failed: out of space, says sqlite.org/rescode.html.
  const primary = code === 'SQLITE_IOERR_SHMSIZE' ? 'SQLITE_FULL' : code.split('_', 2).join('_');
  switch (primary) {
    case 'SQLITE_BUSY':
    case 'SQLITE_LOCKED':
      return new ProofrunError('ERR_STORE_STALE', { message: `${file}: another process holds the store`, hint: 'run the command again', cause: error });
    case 'SQLITE_FULL':
      return new ProofrunError('ERR_DISK_FULL', { message: `${file}: no space is left to record the run`, hint: 'job prune', cause: error });
    case 'SQLITE_CORRUPT':
    case 'SQLITE_NOTADB':
      return unreadableStore(file, `damaged (${messageOf(error)})`, `mv ${file} ${file}.damaged`, error);
    case 'SQLITE_CANTOPEN':
    case 'SQLITE_IOERR':
    case 'SQLITE_PERM':
    case 'SQLITE_READONLY':
    case 'SQLITE_AUTH':
    case 'SQLITE_NOLFS':
      return unreadableStore(file, `${messageOf(error)} (${code})`, `ls -ld ${file} ${file}-wal ${file}-shm`, error);
    default:
      return error;
  }
}

/** ERR_STORE_UNREADABLE; `next` is one command. */
export function unreadableStore(file: string, fact: string, next: string, cause?: unknown): ProofrunError {
  return new ProofrunError('ERR_STORE_UNREADABLE', { message: `${file}: ${fact}`, hint: next, ...(cause === undefined ? {} : { cause }) });
}
