import type { EntryType } from '../core/change.ts';
import { ProofrunError } from '../core/errors.ts';
import { bytePath, nameOf, parentOf, type BytePath } from './byte-path.ts';
import { entryTypeOf, type Moment } from './entry-facts.ts';

const HEADER_BYTES = 128;
const MAGIC = 'PRWALK1\0';
const INODES_DIFFER = 1;
const DT_DIR = 4;

/** What the walk saw of a directory. */
export interface PreimageDirectory {
  readonly dev: bigint;
  readonly ino: bigint;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** False: it could not be read, or was gone again; nothing is known of its entries. */
  readonly readable: boolean;
  /** A mount point that was not entered. */
  readonly mount: boolean;
}

export interface PreimageEntry {
  readonly type: EntryType | undefined;
  /** As the directory itself named it (d_ino). */
  readonly ino: bigint;
}

/** The tree as it was before the job, by identity (executors/shim/walk.c). */
export interface Preimage {
  /** ctime of a file made on that filesystem before the walk. */
  readonly t0: Moment;
  /** CLOCK_REALTIME less CLOCK_BOOTTIME at T0; moves only when somebody sets the clock. */
  readonly realMinusBootNs: bigint;
  /** Empty when it could not be read. */
  readonly bootId: string;
  /** False on filesystems whose directories name other numbers than stat does: then only presence counts. */
  readonly inodesComparable: boolean;
  readonly entries: number;
  /** Undefined: there was no directory at that path. The root is the empty path. */
  directory(path: BytePath): PreimageDirectory | undefined;
  /** Undefined: nothing was there. */
  entry(path: BytePath): PreimageEntry | undefined;
}

interface DirectoryRecord {
  readonly facts: PreimageDirectory;
  /** Where its entries begin. */
  readonly offset: number;
  /** Child directories in the order of their entries, by name. */
  readonly children: Map<string, DirectoryRecord>;
  names: Map<string, PreimageEntry> | undefined;
}

function broken(what: string, at: number): ProofrunError {
  return new ProofrunError('ERR_STAGE_LAYER', { message: `the record of the workspace before the run is damaged: ${what} at byte ${at}` });
}

/** Reads the fixed part of one directory record; returns the record and where its entries begin. */
function readDirectory(bytes: Buffer, at: number): DirectoryRecord {
  if (at + 28 > bytes.length || bytes[at] !== 0x44) {
    throw broken('a directory is missing', at);
  }
  const flags = bytes.readUInt8(at + 1);
  return {
    facts: {
      mode: bytes.readUInt16LE(at + 2),
      uid: bytes.readUInt32LE(at + 4),
      gid: bytes.readUInt32LE(at + 8),
      dev: bytes.readBigUInt64LE(at + 12),
      ino: bytes.readBigUInt64LE(at + 20),
      readable: (flags & 1) === 0,
      mount: (flags & 2) !== 0,
    },
    offset: at + 28,
    children: new Map(),
    names: undefined,
  };
}

/** Visits the entries of a directory record; returns where the next record begins. */
function visitEntries(bytes: Buffer, offset: number, visit: (nameAt: number, length: number, dType: number) => void): number {
  let at = offset;
  for (;;) {
    const length = bytes[at];
    if (length === undefined) {
      throw broken('it ends too early', at);
    }
    if (length === 0) {
      return at + 1;
    }
    const dType = bytes[at + 1];
    if (dType === undefined || at + 10 + length > bytes.length) {
      throw broken('it ends too early', at);
    }
    visit(at + 10, length, dType);
    at += 10 + length;
  }
}

/**
 * Parses what `proofrun-shim walk` wrote. Pure; entries of a directory are decoded when one of them is asked for.
 * Throws ERR_STAGE_LAYER for a walk that did not end, or a damaged file.
 */
export function parsePreimage(bytes: Buffer): Preimage {
  if (bytes.length < HEADER_BYTES || bytes.toString('latin1', 0, 8) !== MAGIC) {
    throw broken('it is not a finished walk', 0);
  }
  const directoryCount = Number(bytes.readBigUInt64LE(72));
  const entryCount = Number(bytes.readBigUInt64LE(80));
  const boot = bytes.toString('latin1', 32, 72);
  const root = readDirectory(bytes, HEADER_BYTES);

  // Pre-order without recursion: the directories of a record are waiting, the first of them comes next.
  let directories = 0;
  let entries = 0;
  let at = HEADER_BYTES;
  const waiting: { parent: DirectoryRecord | undefined; name: string }[] = [{ parent: undefined, name: '' }];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const record = next.parent === undefined ? root : readDirectory(bytes, at);
    next.parent?.children.set(next.name, record);
    directories++;
    const found: { parent: DirectoryRecord; name: string }[] = [];
    at = visitEntries(bytes, record.offset, (nameAt, length, dType) => {
      entries++;
      if (dType === DT_DIR) {
        found.push({ parent: record, name: bytes.toString('latin1', nameAt, nameAt + length) });
      }
    });
    for (const child of found.reverse()) {
      waiting.push(child);
    }
  }
  if (at !== bytes.length || directories !== directoryCount || entries !== entryCount) {
    throw broken('its counts do not agree', at);
  }

  const find = (path: BytePath): DirectoryRecord | undefined => {
    let record: DirectoryRecord | undefined = root;
    if (path !== '') {
      for (const name of path.split('/')) {
        record = record?.children.get(name);
      }
    }
    return record;
  };
  const namesOf = (record: DirectoryRecord): Map<string, PreimageEntry> => {
    if (record.names === undefined) {
      const names = new Map<string, PreimageEntry>();
      visitEntries(bytes, record.offset, (nameAt, length, dType) => {
        names.set(bytePath(bytes.subarray(nameAt, nameAt + length)), { type: entryTypeOf(dType), ino: bytes.readBigUInt64LE(nameAt - 8) });
      });
      record.names = names;
    }
    return record.names;
  };
  return {
    t0: { seconds: Number(bytes.readBigInt64LE(8)), nanoseconds: bytes.readUInt32LE(16) },
    realMinusBootNs: bytes.readBigInt64LE(24),
    bootId: boot.slice(0, Math.max(0, boot.indexOf('\0'))),
    inodesComparable: (bytes.readUInt32LE(20) & INODES_DIFFER) === 0,
    entries,
    directory: (path) => find(path)?.facts,
    entry: (path) => {
      const record = find(parentOf(path));
      return record === undefined ? undefined : namesOf(record).get(nameOf(path));
    },
  };
}
