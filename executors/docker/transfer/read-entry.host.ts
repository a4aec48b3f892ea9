import { close, constants, fstat, lstat, open, read, readlink, type BigIntStats } from 'node:fs';
import { promisify } from 'node:util';
import { errnoOf } from '../../../src/core/errors.ts';
import { bytePath, type BytePath } from '../../../src/stage/byte-path.ts';
import { insideOf, type WalkedItem } from './tree-walk.host.ts';

// The callback forms: a handle object for each of ten thousand files costs more than the reading.
const opened = promisify(open);
const closed = promisify(close);
const readlinked = promisify(readlink);
const stat = promisify(fstat) as unknown as (fd: number, options: { bigint: true }) => Promise<BigIntStats>;
const linkStat = promisify(lstat) as unknown as (path: Buffer, options: { bigint: true }) => Promise<BigIntStats>;

const CONTENT = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY;

/** Files up to this size are read whole, ahead of their turn. */
export const SMALL_FILE = 1 << 20;
const CHANGED_TRIES = 3;

export type ReadItem =
  | { readonly kind: 'directory'; readonly path: BytePath; readonly facts: BigIntStats }
  | { readonly kind: 'file'; readonly path: BytePath; readonly facts: BigIntStats; readonly content: Buffer }
  /** The receiver closes `fd`. */
  | { readonly kind: 'large'; readonly path: BytePath; readonly facts: BigIntStats; readonly fd: number }
  | { readonly kind: 'symlink'; readonly path: BytePath; readonly facts: BigIntStats; readonly target: BytePath }
  | { readonly kind: 'fifo'; readonly path: BytePath; readonly facts: BigIntStats }
  | { readonly kind: 'left-out'; readonly path: BytePath; readonly why: string }
  | { readonly kind: 'gone' };

/** Reads into a buffer from a position until it is full or the file ends; resolves to the number of bytes. */
export async function readFully(fd: number, into: Buffer, position: number): Promise<number> {
  let done = 0;
  while (done < into.length) {
    const got = await new Promise<number>((resolve, reject) => {
      read(fd, into, done, into.length - done, position + done, (error, bytes) => (error === null ? resolve(bytes) : reject(error)));
    });
    if (got === 0) break;
    done += got;
  }
  return done;
}

export function closeFile(fd: number): Promise<void> {
  return closed(fd);
}

/**
 * Looks at one item of a walk and reads it as far as it is small. Releases its directory. Expected failures are items; rejects for those of
 * the disk.
 */
export async function readEntry(item: WalkedItem): Promise<ReadItem> {
  if (item.kind !== 'entry') return item;
  const { path, type } = item;
  try {
    switch (type) {
      case 'socket':
        return { kind: 'left-out', path, why: 'a socket' };
      case 'device':
        return { kind: 'left-out', path, why: 'a device' };
      case 'symlink': {
        const name = insideOf(item.directory, item.name);
        const facts = await linkStat(name, { bigint: true });
        return { kind: 'symlink', path, facts, target: bytePath(await readlinked(name, { encoding: 'buffer' })) };
      }
      case 'fifo': {
        const facts = await linkStat(insideOf(item.directory, item.name), { bigint: true });
        return facts.isFIFO() ? { kind: 'fifo', path, facts } : { kind: 'left-out', path, why: CHANGED };
      }
      case 'file':
        return await readFile(path, insideOf(item.directory, item.name));
    }
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === 'ENOENT') return { kind: 'gone' };
    if (errno === 'EACCES' || errno === 'EPERM') return { kind: 'left-out', path, why: "a file that can't be read" };
    if (errno === 'ELOOP' || errno === 'EINVAL' || errno === 'ENXIO' || errno === 'ENOTDIR' || errno === 'EISDIR') {
      return { kind: 'left-out', path, why: CHANGED };
    }
    throw error;
  } finally {
    item.directory.release();
  }
}

const CHANGED = 'it changed while it was read';

async function readFile(path: BytePath, name: Buffer): Promise<ReadItem> {
  const fd = await opened(name, CONTENT);
  let handedOver = false;
  try {
    for (let tries = 0; tries < CHANGED_TRIES; tries += 1) {
      const facts = await stat(fd, { bigint: true });
      if (!facts.isFile()) return { kind: 'left-out', path, why: CHANGED };
      if (facts.size > SMALL_FILE) {
        handedOver = true;
        return { kind: 'large', path, facts, fd };
      }
      // One byte more than it has: a file that grew shows.
      const content = Buffer.allocUnsafe(Number(facts.size) + 1);
      const got = await readFully(fd, content, 0);
      if (BigInt(got) === facts.size) return { kind: 'file', path, facts, content: content.subarray(0, got) };
    }
    return { kind: 'left-out', path, why: CHANGED };
  } finally {
    if (!handedOver) await closed(fd);
  }
}
