import { closeSync, constants, fstatSync, lstatSync, openSync, readSync } from 'node:fs';
import { errnoOf } from '../core/errors.ts';

export type LayerFile =
  /** The layer has nothing there: the job left what it was given. */
  | { readonly kind: 'absent' }
  | { readonly kind: 'deleted' }
  | { readonly kind: 'file'; readonly bytes: Buffer }
  /** Something that nobody should copy from; `reason` completes "it is ...". */
  | { readonly kind: 'refused'; readonly reason: string };

/**
 * Reads a file out of a layer that a job wrote. Each step is opened in the one before it (/proc/self/fd, as openat(2)), never through a link, never waiting
 * on a FIFO; the file must be regular, have one name, and at most `maxBytes`. Total, but for a failing disk.
 */
export function readLayerFile(layer: string, names: readonly string[], maxBytes: number): LayerFile {
  const open: number[] = [];
  try {
    let at = openSync(layer, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
    open.push(at);
    for (const [index, name] of names.entries()) {
      const path = `/proc/self/fd/${at}/${name}`;
      const facts = lstatSync(path, { throwIfNoEntry: false });
      if (facts === undefined) return { kind: 'absent' };
      // overlayfs: a character device with number 0/0 is a whiteout.
      if (facts.isCharacterDevice() && facts.rdev === 0) return { kind: 'deleted' };
      const last = index === names.length - 1;
      if (facts.isSymbolicLink()) return { kind: 'refused', reason: 'a symbolic link' };
      if (last ? !facts.isFile() : !facts.isDirectory()) {
        return {
          kind: 'refused',
          reason: last ? (facts.isDirectory() ? 'a directory' : facts.isFIFO() ? 'a FIFO' : 'no regular file') : 'below something that is no directory',
        };
      }
      at = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | (last ? 0 : constants.O_DIRECTORY));
      open.push(at);
    }
    const facts = fstatSync(at);
    if (!facts.isFile()) return { kind: 'refused', reason: 'no regular file' };
    if (facts.nlink !== 1) return { kind: 'refused', reason: `a file with ${facts.nlink} names` };
    if (facts.size > maxBytes) return { kind: 'refused', reason: `a file of ${facts.size} bytes, at most ${maxBytes} are taken` };
    const buffer = Buffer.alloc(maxBytes + 1);
    let length = 0;
    for (;;) {
      const got = readSync(at, buffer, length, buffer.length - length, length);
      length += got;
      if (got === 0 || length > maxBytes) break;
    }
    return length > maxBytes ? { kind: 'refused', reason: `a file of more than ${maxBytes} bytes` } : { kind: 'file', bytes: buffer.subarray(0, length) };
  } catch (error) {
    const errno = errnoOf(error);
    // Removed or exchanged in between, or without rights: nothing that could be taken.
    if (errno === 'ENOENT' || errno === 'ELOOP' || errno === 'ENOTDIR' || errno === 'EACCES' || errno === 'ENXIO') {
      return { kind: 'refused', reason: `not readable (${errno})` };
    }
    throw error;
  } finally {
    for (const descriptor of open.reverse()) closeSync(descriptor);
  }
}
