import { randomBytes } from 'node:crypto';
import { closeSync, constants, fchmodSync, fstatSync, fsyncSync, openSync, readdirSync, readSync, renameSync, rmSync, writeSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { errnoOf, messageOf, ProofrunError } from '../core/errors.ts';

/** Moments of a durable write at which a process may be killed; fault tests are told of each. */
export type FilePoint = 'created' | 'written' | 'synced' | 'renamed' | 'durable';

export interface DurableWriteOptions {
  /** false: whole or not at all for other processes and after the death of this one, but not on disk when this returns. Default true. */
  readonly sync?: boolean;
  readonly announce?: (point: FilePoint) => void;
}

/**
 * Writes a file as a whole or not at all: a temporary file beside it (0600 whatever the umask, never through a symlink), fsync, rename,
 * fsync of the directory. A reader sees the old content or the new. Rejects nothing silently: ERR_DISK_FULL, else the system's error.
 */
export function writeDurably(path: string, content: string | Uint8Array, options: DurableWriteOptions = {}): void {
  const announce = options.announce ?? (() => undefined);
  const sync = options.sync ?? true;
  const temporary = join(dirname(path), `.${basename(path)}.${process.pid}.${randomBytes(6).toString('hex')}`);
  try {
    writeNew(temporary, typeof content === 'string' ? Buffer.from(content, 'utf8') : content, announce, sync);
    renameSync(temporary, path);
    announce('renamed');
    if (sync) syncDirectory(dirname(path));
    announce('durable');
  } catch (error) {
    rmSync(temporary, { force: true });
    const errno = errnoOf(error);
    if (errno === 'ENOSPC' || errno === 'EDQUOT') {
      throw new ProofrunError('ERR_DISK_FULL', { message: `${path}: ${messageOf(error)}`, hint: 'job prune', cause: error });
    }
    throw error;
  }
}

/** Removes the temporary files that killed writers of `path` left. Only for the one owner of the file: it would take a living writer's too. */
export function sweepTemporaries(path: string): void {
  const prefix = `.${basename(path)}.`;
  for (const name of readdirSync(dirname(path))) {
    if (name.startsWith(prefix) && /^\d+\.[0-9a-f]{12}$/.test(name.slice(prefix.length))) rmSync(join(dirname(path), name), { force: true });
  }
}

/** Makes the names in a directory durable. */
export function syncDirectory(directory: string): void {
  const descriptor = openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/**
 * Reads a regular file of at most `maxBytes`, never through a symlink at its end, never blocking on a FIFO. Throws an Error that says why
 * not, with the errno as `code` where there is one.
 */
export function readRegularFile(path: string, maxBytes: number): Buffer {
  const descriptor = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const stat = fstatSync(descriptor);
    if (!stat.isFile()) throw new Error('is not a regular file');
    if (stat.size > maxBytes) throw new Error(`has ${stat.size} bytes, at most ${maxBytes} are read`);
    const buffer = Buffer.alloc(stat.size);
    let length = 0;
    while (length < buffer.length) {
      const got = readSync(descriptor, buffer, length, buffer.length - length, length);
      if (got === 0) break;
      length += got;
    }
    return buffer.subarray(0, length);
  } finally {
    closeSync(descriptor);
  }
}

function writeNew(path: string, content: Uint8Array, announce: (point: FilePoint) => void, sync: boolean): void {
  const descriptor = openSync(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW, 0o600);
  try {
    fchmodSync(descriptor, 0o600);
    announce('created');
    for (let at = 0; at < content.length;) at += writeSync(descriptor, content, at);
    announce('written');
    if (sync) fsyncSync(descriptor);
    announce('synced');
  } finally {
    closeSync(descriptor);
  }
}
