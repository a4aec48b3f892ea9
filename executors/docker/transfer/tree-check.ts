import { ProofrunError } from '../../../src/core/errors.ts';
import { safeLine } from '../../../src/core/text-safety.ts';
import { bytesOf, parentOf, type BytePath } from '../../../src/stage/byte-path.ts';
import type { Moment } from '../../../src/stage/entry-facts.ts';
import { beyondLimit, type TransferLimits } from './limits.ts';
import type { TarEntry } from './tar-reader.ts';

/** One entry that came back, at its place in the tree. */
export interface ReturnedEntry {
  readonly type: 'file' | 'directory' | 'symlink' | 'fifo' | 'device';
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
  readonly mtime: Moment;
  /** Of a symlink. */
  readonly target: BytePath;
  /** Another name of the file at this path, which came before; then mode, owner and size are that one's. */
  readonly linkOf: BytePath | undefined;
  readonly xattrs: readonly string[];
}

export interface PlacedEntry {
  /** Beneath the root; the root itself has the empty path. */
  readonly path: BytePath;
  readonly entry: ReturnedEntry;
}

/** Name of something in an archive, for a message. */
export function nameForMessage(name: BytePath): string {
  return name === '' ? 'its root' : safeLine(bytesOf(name), 200);
}

/** The error of a stream that no engine sends. */
export function strangeStream(what: string, name?: BytePath): ProofrunError {
  return new ProofrunError('ERR_TRANSFER_STREAM', {
    message: `the tree that came back from the engine is not one that an engine sends: ${what}${name === undefined ? '' : ` (at ${nameForMessage(name)})`}; nothing of it was staged`,
    hint: 'is the engine, or something between it and here, the one that you mean? job doctor',
  });
}

/**
 * Puts the entries of a stream at their places, one after another, and refuses what no engine sends: names that aren't plain paths beneath
 * one root, a name twice, an entry whose directory didn't come before it or isn't one, hard links to anything but a file that came before.
 * So no name of the stream is ever looked up anywhere but in this map. Pure. Throws ERR_TRANSFER_STREAM, ERR_TRANSFER_LIMIT.
 */
export interface TreeCheck {
  place(entry: TarEntry): PlacedEntry;
  readonly placed: ReadonlyMap<BytePath, ReturnedEntry>;
}

export function createTreeCheck(limits: TransferLimits): TreeCheck {
  const placed = new Map<BytePath, ReturnedEntry>();
  let root: string | undefined;
  let bytes = 0;
  let pathBytes = 0;

  const relative = (name: BytePath, type: TarEntry['type']): BytePath => {
    if (name.includes('\0')) throw strangeStream('NUL in a name', name);
    // Directories end with a slash; nothing else may.
    const plain = type === 'directory' && name.endsWith('/') ? name.slice(0, -1) : name;
    const parts = plain.split('/');
    for (const part of parts) {
      if (part === '..') throw strangeStream('a name with ..', name);
      if (part === '') throw strangeStream(plain.startsWith('/') ? 'an absolute name' : 'a name with an empty part', name);
      if (part === '.' && !(parts.length === 1 && root === undefined)) throw strangeStream('a name with the part .', name);
      if (part.length > limits.nameBytes) throw beyondLimit('nameBytes', limits, nameForMessage(name), 'down');
    }
    const [top = '', ...rest] = parts;
    if (root === undefined) {
      if (rest.length > 0 || type !== 'directory') throw strangeStream('it does not begin with its root directory', name);
      root = top;
      return '' as BytePath;
    }
    if (top !== root) throw strangeStream('a name outside of the root directory', name);
    return rest.join('/') as BytePath;
  };

  return {
    placed,
    place: (entry) => {
      const { name, type } = entry;
      const path = relative(name, type);
      if (placed.size >= limits.entries) throw beyondLimit('entries', limits, nameForMessage(path), 'down');
      if (path.length > limits.pathBytes || entry.link.length > limits.pathBytes) throw beyondLimit('pathBytes', limits, nameForMessage(path), 'down');
      pathBytes += path.length + entry.link.length;
      if (pathBytes > limits.allPathBytes) throw beyondLimit('allPathBytes', limits, nameForMessage(path), 'down');
      if (placed.has(path)) throw strangeStream('a name twice', path);
      if (path !== '') {
        const above = placed.get(parentOf(path));
        if (above === undefined) throw strangeStream('an entry before its directory', path);
        if (above.type !== 'directory') throw strangeStream(`an entry beneath a ${above.type}`, path);
        if (depthOf(path) > limits.depth) throw beyondLimit('depth', limits, nameForMessage(path), 'down');
      }
      const { mode, uid, gid, size, mtime, xattrs } = entry;
      const facts = { mode, uid, gid, size, mtime, xattrs, target: '' as BytePath, linkOf: undefined };
      const keep = (returned: ReturnedEntry): PlacedEntry => {
        placed.set(path, returned);
        return { path, entry: returned };
      };
      switch (type) {
        case 'file':
          if (size > limits.fileBytes) throw beyondLimit('fileBytes', limits, nameForMessage(path), 'down');
          bytes += size;
          if (bytes > limits.bytes) throw beyondLimit('bytes', limits, nameForMessage(path), 'down');
          return keep({ ...facts, type });
        case 'directory':
        case 'fifo':
          return keep({ ...facts, type });
        case 'char':
        case 'block':
          return keep({ ...facts, type: 'device' });
        case 'symlink':
          if (entry.link === '' || entry.link.includes('\0')) throw strangeStream('a symlink without a target', path);
          return keep({ ...facts, type, target: entry.link });
        case 'link': {
          const first = relative(entry.link, 'link');
          const target = placed.get(first);
          if (target?.type !== 'file') throw strangeStream(`a hard link to what is not a file that came before: ${nameForMessage(entry.link)}`, path);
          return keep({ ...target, linkOf: target.linkOf ?? first });
        }
      }
    },
  };
}

/** Directories above a path. */
export function depthOf(path: BytePath): number {
  let depth = 0;
  for (let slash = path.indexOf('/'); slash >= 0; slash = path.indexOf('/', slash + 1)) depth += 1;
  return depth;
}
