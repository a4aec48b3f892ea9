import { closeSync, constants, fstatSync, openSync, readdirSync, type BigIntStats } from 'node:fs';
import { errnoOf } from '../../../src/core/errors.ts';
import { bytePath, bytesOf, compareBytes, joinBytes, type BytePath } from '../../../src/stage/byte-path.ts';

const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/** A directory of the tree, held open while entries of it are read: each is reached through its parent's descriptor, never through a link. */
export interface OpenDirectory {
  readonly fd: number;
  /** Who takes an entry holds the directory until it is read. */
  hold(): void;
  release(): void;
}

function openDirectory(path: string | Buffer): OpenDirectory {
  const fd = openSync(path, DIRECTORY);
  let holders = 1;
  return {
    fd,
    hold: () => {
      holders += 1;
    },
    release: () => {
      holders -= 1;
      if (holders === 0) closeSync(fd);
    },
  };
}

/** Name of an entry of an open directory, for calls that take only a path. */
export function insideOf(directory: OpenDirectory, name: BytePath): Buffer {
  return Buffer.concat([Buffer.from(`/proc/self/fd/${directory.fd}/`), bytesOf(name)]);
}

export type WalkedItem =
  | { readonly kind: 'directory'; readonly path: BytePath; readonly facts: BigIntStats }
  /** `type`: as the directory names it. `directory` is held for the receiver, who releases it. */
  | {
      readonly kind: 'entry';
      readonly path: BytePath;
      readonly name: BytePath;
      readonly directory: OpenDirectory;
      readonly type: 'file' | 'symlink' | 'fifo' | 'socket' | 'device';
    }
  | { readonly kind: 'left-out'; readonly path: BytePath; readonly why: string };

export interface WalkInput {
  /** Absolute. */
  readonly root: string;
  readonly hidden: ReadonlySet<BytePath>;
  /** Mount points beneath the root: named, not entered. */
  readonly mounts: ReadonlySet<BytePath>;
  /** Called with the path of a directory that lies too deep. */
  readonly tooDeep: (path: BytePath) => Error;
  readonly maxDepth: number;
}

/**
 * Everything beneath a root, a directory before its entries, in the order of the bytes of names. Directories are opened here, one at a time;
 * what lies in them is left to the receiver. Holds one descriptor a level. Throws the system's error when the root itself can't be read.
 */
export function* walkTree(input: WalkInput): Generator<WalkedItem, void, undefined> {
  const root = openDirectory(input.root);
  const device = fstatSync(root.fd, { bigint: true }).dev;

  function* inside(directory: OpenDirectory, path: BytePath, depth: number): Generator<WalkedItem, void, undefined> {
    const facts = fstatSync(directory.fd, { bigint: true });
    yield { kind: 'directory', path, facts };
    if (facts.dev !== device || (path !== '' && input.mounts.has(path))) {
      yield { kind: 'left-out', path, why: 'another filesystem is mounted here' };
      return;
    }
    const entries = readdirSync(`/proc/self/fd/${directory.fd}`, { withFileTypes: true, encoding: 'buffer' }).map((entry) => ({
      name: bytePath(entry.name),
      type: entry.isDirectory()
        ? ('directory' as const)
        : entry.isFile()
          ? ('file' as const)
          : entry.isSymbolicLink()
            ? ('symlink' as const)
            : entry.isFIFO()
              ? ('fifo' as const)
              : entry.isSocket()
                ? ('socket' as const)
                : ('device' as const),
    }));
    for (const { name, type } of entries.sort((a, b) => compareBytes(a.name, b.name))) {
      const below = joinBytes(path, name);
      if (input.hidden.has(below)) continue;
      if (type !== 'directory') {
        directory.hold();
        yield { kind: 'entry', path: below, name, directory, type };
        continue;
      }
      if (depth >= input.maxDepth) throw input.tooDeep(below);
      let child: OpenDirectory;
      try {
        child = openDirectory(insideOf(directory, name));
      } catch (error) {
        const errno = errnoOf(error);
        if (errno === 'ENOENT') continue;
        if (errno !== 'EACCES' && errno !== 'EPERM' && errno !== 'ENOTDIR' && errno !== 'ELOOP') throw error;
        yield { kind: 'left-out', path: below, why: errno === 'EACCES' || errno === 'EPERM' ? "a directory that can't be read" : 'it changed meanwhile' };
        continue;
      }
      try {
        yield* inside(child, below, depth + 1);
      } finally {
        child.release();
      }
    }
  }

  try {
    yield* inside(root, '' as BytePath, 0);
  } finally {
    root.release();
  }
}
