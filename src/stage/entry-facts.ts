import type { EntryType } from '../core/change.ts';
import type { BytePath } from './byte-path.ts';

/** A moment of a filesystem: seconds since 1970 and nanoseconds below one second. */
export interface Moment {
  readonly seconds: number;
  readonly nanoseconds: number;
}

export interface Xattr {
  readonly name: string;
  readonly value: Buffer;
}

/** Everything that one look at an entry gave (executors/shim/scan.c). */
export interface LayerFacts {
  readonly type: EntryType;
  /** Permission bits with setuid, setgid and sticky. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly nlink: number;
  readonly rdev: { readonly major: number; readonly minor: number };
  /** major << 32 | minor. */
  readonly dev: bigint;
  readonly ino: bigint;
  /** Apparent size in bytes. */
  readonly size: number;
  /** Units of 512 bytes. */
  readonly blocks: number;
  readonly mtime: Moment;
  readonly ctime: Moment;
  /** Newline bytes; meaningful when `sha256` is there. */
  readonly lines: number;
  /** Lower-case hex; only of a regular file that was read whole. */
  readonly sha256: string | undefined;
  /** A NUL among the first 8000 bytes. */
  readonly hasNul: boolean;
  /** Not empty, and the last line has no newline. */
  readonly endsOpen: boolean;
  /** It changed while it was read. */
  readonly unstable: boolean;
  readonly tooLarge: boolean;
  readonly unreadable: boolean;
  /** A directory whose content was not read because it lies too deep. */
  readonly tooDeep: boolean;
  /** Another filesystem is mounted here. */
  readonly mount: boolean;
  /** Target bytes of a symlink. */
  readonly target: BytePath | undefined;
  /** Sorted by name. */
  readonly xattrs: readonly Xattr[];
  /** The file of the tree that this is, or was before it was copied into the layer, as hex of its handle; absent: nobody recorded it. */
  readonly identity?: string;
}

/** One path of the merged view: the tree as it is, and what the layer would make of it. */
export interface MergedEntry {
  readonly path: BytePath;
  /** Undefined: the tree has nothing here. */
  readonly before: LayerFacts | undefined;
  /** Undefined: the layer takes it away. */
  readonly after: LayerFacts | undefined;
  /** The content of `after` lies in the tree, at this path (a redirected directory, or a file whose attributes alone were copied up). */
  readonly source: BytePath | undefined;
}

export function compareMoments(a: Moment, b: Moment): number {
  return a.seconds !== b.seconds ? a.seconds - b.seconds : a.nanoseconds - b.nanoseconds;
}

/** Milliseconds since 1970, rounded down. */
export function momentMs(moment: Moment): number {
  return moment.seconds * 1000 + Math.floor(moment.nanoseconds / 1_000_000);
}

/** The d_type numbers of directory entries (readdir(3)). */
const TYPES: Readonly<Record<number, EntryType>> = { 1: 'fifo', 2: 'char', 4: 'directory', 6: 'block', 8: 'file', 10: 'symlink', 12: 'socket' };

export function entryTypeOf(dType: number): EntryType | undefined {
  return TYPES[dType];
}
