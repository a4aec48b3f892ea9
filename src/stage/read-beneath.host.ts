import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { errnoOf } from '../core/errors.ts';
import { bytesOf, type BytePath } from './byte-path.ts';

const O_PATH = 0o10000000;
const DIRECTORY = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;
const CONTENT = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY;

function inside(fd: number, name: string): Buffer {
  return Buffer.concat([Buffer.from(`/proc/self/fd/${fd}/`), bytesOf(name as BytePath)]);
}

/**
 * Opens a path beneath a directory one component at a time, each reached through its parent's descriptor and never
 * through a link. Returns the parent's descriptor and the last name; the caller closes it.
 */
function openParent(root: string, path: BytePath): { readonly fd: number; readonly name: string } {
  const names = path.split('/');
  const last = names.pop() ?? '';
  let fd = openSync(root, DIRECTORY);
  try {
    for (const name of names) {
      const next = openSync(inside(fd, name), DIRECTORY);
      closeSync(fd);
      fd = next;
    }
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  return { fd, name: last };
}

/** Identity that a content must have to be the one that was looked at. */
export interface ExpectedFile {
  /** Undefined: any regular file of that size. */
  readonly ino: bigint | undefined;
  readonly size: number;
}

/**
 * The bytes of a regular file beneath `root`. Undefined when it is no longer the regular file that `expected` names, or
 * can't be read. No component is followed when it is a link.
 */
export function readFileBeneath(root: string, path: BytePath, expected: ExpectedFile): Buffer | undefined {
  let parent: { readonly fd: number; readonly name: string } | undefined;
  let fd: number | undefined;
  try {
    parent = openParent(root, path);
    fd = openSync(inside(parent.fd, parent.name), CONTENT);
    const facts = fstatSync(fd, { bigint: true });
    if (!facts.isFile() || (expected.ino !== undefined && facts.ino !== expected.ino) || facts.size !== BigInt(expected.size)) {
      return undefined;
    }
    const bytes = Buffer.allocUnsafe(expected.size);
    let done = 0;
    while (done < bytes.length) {
      const got = readSync(fd, bytes, done, bytes.length - done, done);
      if (got === 0) return undefined;
      done += got;
    }
    return bytes;
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
    return undefined;
  } finally {
    if (fd !== undefined) closeSync(fd);
    if (parent !== undefined) closeSync(parent.fd);
  }
}
