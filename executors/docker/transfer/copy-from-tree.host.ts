import { createHash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import { errnoOf } from '../../../src/core/errors.ts';
import { bytesOf, type BytePath } from '../../../src/stage/byte-path.ts';
import { readFully, SMALL_FILE } from './read-entry.host.ts';

const O_PATH = 0o10000000;
const DIRECTORY = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;
const CONTENT = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY;

export interface CopyFromTreeInput {
  readonly root: string;
  readonly path: BytePath;
  readonly size: number;
  /** Lower-case hex. */
  readonly sha256: string;
  readonly into: (bytes: Buffer) => Promise<void>;
}

/** Opens a regular file beneath a root, one component at a time, none of them through a link. */
function openBeneath(root: string, path: BytePath): number {
  const names = path.split('/');
  let fd = openSync(root, DIRECTORY);
  for (const [index, name] of names.entries()) {
    const inside = Buffer.concat([Buffer.from(`/proc/self/fd/${fd}/`), bytesOf(name as BytePath)]);
    try {
      const next = openSync(inside, index === names.length - 1 ? CONTENT : DIRECTORY);
      closeSync(fd);
      fd = next;
    } catch (error) {
      closeSync(fd);
      throw error;
    }
  }
  return fd;
}

/** Copies a file of the tree that must have this size and hash. False: it hasn't (any more), and what was copied counts for nothing. */
export async function copyFromTree({ root, path, size, sha256, into }: CopyFromTreeInput): Promise<boolean> {
  let fd: number;
  try {
    fd = openBeneath(root, path);
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
    return false;
  }
  try {
    const facts = fstatSync(fd);
    if (!facts.isFile() || facts.size !== size) return false;
    const hash = createHash('sha256');
    for (let at = 0; at < size;) {
      const chunk = Buffer.allocUnsafe(Math.min(SMALL_FILE, size - at));
      if ((await readFully(fd, chunk, at)) < chunk.length) return false;
      hash.update(chunk);
      await into(chunk);
      at += chunk.length;
    }
    return hash.digest('hex') === sha256;
  } finally {
    closeSync(fd);
  }
}
