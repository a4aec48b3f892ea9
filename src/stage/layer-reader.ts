import { ProofrunError } from '../core/errors.ts';
import { bytePath, joinBytes, type BytePath } from './byte-path.ts';
import { entryTypeOf, type LayerFacts, type MergedEntry, type Moment, type Xattr } from './entry-facts.ts';

const MAGIC = 'PRSCAN2\0';
/** All paths of one layer together; a layer that needs more is hostile or broken. */
const MAX_PATH_BYTES = 1 << 30;

const BEFORE = 1;
const AFTER = 2;
const SOURCE = 4;

const HASHED = 1;
const NUL = 2;
const OPEN_END = 4;
const UNSTABLE = 8;
const TOO_LARGE = 16;
const UNREADABLE = 32;
const TOO_DEEP = 64;
const MOUNT = 128;

export interface LayerListing {
  /** The roots themselves come first, with an empty path. */
  readonly entries: readonly MergedEntry[];
  readonly hashedBytes: number;
  /** Read when everything else was: see ClockReading. */
  readonly clock: { readonly realMinusBootNs: bigint; readonly bootId: string };
}

function broken(what: string, at: number): ProofrunError {
  return new ProofrunError('ERR_STAGE_LAYER', { message: `the listing of the stage is damaged: ${what} at byte ${at}` });
}

class Cursor {
  private at = 0;
  private readonly bytes: Buffer;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }

  get position(): number {
    return this.at;
  }

  get ended(): boolean {
    return this.at === this.bytes.length;
  }

  private step(length: number): number {
    const from = this.at;
    if (length > this.bytes.length - from) {
      throw broken('it ends too early', from);
    }
    this.at = from + length;
    return from;
  }

  u8(): number {
    return this.bytes.readUInt8(this.step(1));
  }

  u16(): number {
    return this.bytes.readUInt16LE(this.step(2));
  }

  u32(): number {
    return this.bytes.readUInt32LE(this.step(4));
  }

  u64(): bigint {
    return this.bytes.readBigUInt64LE(this.step(8));
  }

  /** A u64 that has to fit a double exactly. */
  count(): number {
    const value = Number(this.u64());
    if (!Number.isSafeInteger(value)) {
      throw broken('a number out of range', this.at - 8);
    }
    return value;
  }

  i64(): bigint {
    return this.bytes.readBigInt64LE(this.step(8));
  }

  take(length: number): Buffer {
    const from = this.step(length);
    return this.bytes.subarray(from, from + length);
  }
}

function readMoment(cursor: Cursor): Moment {
  return { seconds: Number(cursor.i64()), nanoseconds: cursor.u32() };
}

function readXattrs(cursor: Cursor): Xattr[] {
  const count = cursor.u16();
  const found: Xattr[] = [];
  for (let i = 0; i < count; i++) {
    const name = cursor.take(cursor.u16()).toString('latin1');
    found.push({ name, value: Buffer.from(cursor.take(cursor.u32())) });
  }
  return found.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
}

function readFacts(cursor: Cursor): LayerFacts {
  const start = cursor.position;
  const type = entryTypeOf(cursor.u8());
  if (type === undefined) {
    throw broken('an unknown type of entry', start);
  }
  const flags = cursor.u8();
  const mode = cursor.u32();
  const uid = cursor.u32();
  const gid = cursor.u32();
  const nlink = cursor.u32();
  const rdev = { major: cursor.u32(), minor: cursor.u32() };
  const dev = cursor.u64();
  const ino = cursor.u64();
  const size = cursor.count();
  const blocks = cursor.count();
  const mtime = readMoment(cursor);
  const ctime = readMoment(cursor);
  const lines = cursor.count();
  const hash = cursor.take(32);
  const target = cursor.take(cursor.u32());
  const xattrs = readXattrs(cursor);
  const identity = cursor.take(cursor.u8());
  return {
    type,
    mode,
    uid,
    gid,
    nlink,
    rdev,
    dev,
    ino,
    size,
    blocks,
    mtime,
    ctime,
    lines,
    sha256: (flags & HASHED) !== 0 ? hash.toString('hex') : undefined,
    hasNul: (flags & NUL) !== 0,
    endsOpen: (flags & OPEN_END) !== 0,
    unstable: (flags & UNSTABLE) !== 0,
    tooLarge: (flags & TOO_LARGE) !== 0,
    unreadable: (flags & UNREADABLE) !== 0,
    tooDeep: (flags & TOO_DEEP) !== 0,
    mount: (flags & MOUNT) !== 0,
    target: type === 'symlink' ? bytePath(target) : undefined,
    xattrs,
    ...(identity.length === 0 ? {} : { identity: identity.toString('hex') }),
  };
}

function readName(cursor: Cursor): BytePath {
  const start = cursor.position;
  const name = bytePath(cursor.take(cursor.u16()));
  if (name.includes('/') || name.includes('\0') || name === '.' || name === '..' || name.length > 255) {
    throw broken('a name that no directory can hold', start);
  }
  return name;
}

/**
 * Parses what `proofrun-shim scan` wrote. Pure. Throws ERR_STAGE_LAYER for anything that is not a whole, well-formed
 * listing: a scan that died half way is never taken for a small one.
 */
export function parseLayerListing(bytes: Buffer): LayerListing {
  const cursor = new Cursor(bytes);
  if (cursor.take(Math.min(8, bytes.length)).toString('latin1') !== MAGIC) {
    throw broken('it does not begin as one', 0);
  }
  const entries: MergedEntry[] = [];
  const above: BytePath[] = [];
  let here = '' as BytePath;
  let pathBytes = 0;
  for (;;) {
    const at = cursor.position;
    const tag = String.fromCharCode(cursor.u8());
    if (tag === 'D') {
      const name = readName(cursor);
      if (name === '') {
        throw broken('a directory without a name', at);
      }
      above.push(here);
      here = joinBytes(here, name);
    } else if (tag === 'U') {
      const parent = above.pop();
      if (parent === undefined) {
        throw broken('a step above the root', at);
      }
      here = parent;
    } else if (tag === 'E') {
      const name = readName(cursor);
      if ((name === '') !== (entries.length === 0)) {
        throw broken('an entry without a name', at);
      }
      const bits = cursor.u8();
      const source = (bits & SOURCE) !== 0 ? bytePath(cursor.take(cursor.u32())) : undefined;
      const before = (bits & BEFORE) !== 0 ? readFacts(cursor) : undefined;
      const after = (bits & AFTER) !== 0 ? readFacts(cursor) : undefined;
      const path = joinBytes(here, name);
      pathBytes += path.length;
      if (pathBytes > MAX_PATH_BYTES) {
        throw new ProofrunError('ERR_STAGE_LAYER', { message: `the paths of the stage take more than ${MAX_PATH_BYTES} bytes` });
      }
      entries.push({ path, before, after, source });
    } else if (tag === 'Z') {
      const count = cursor.count();
      const hashedBytes = cursor.count();
      const realMinusBootNs = cursor.i64();
      const bootId = cursor.take(40).toString('latin1').replace(/\0+$/, '');
      if (count !== entries.length || above.length > 0 || !cursor.ended) {
        throw broken('its end does not agree with what came before', at);
      }
      return { entries, hashedBytes, clock: { realMinusBootNs, bootId } };
    } else {
      throw broken('an unknown record', at);
    }
  }
}
