import { ProofrunError } from '../core/errors.ts';
import { bytePath, bytesOf, type BytePath } from './byte-path.ts';
import { entryTypeOf, type LayerFacts, type Moment, type Xattr } from './entry-facts.ts';

/** What a plan has to know of one side of an operation. */
export type PlanState = Pick<LayerFacts, 'type' | 'mode' | 'uid' | 'gid' | 'dev' | 'ino' | 'size' | 'mtime' | 'ctime' | 'sha256' | 'target' | 'xattrs'>;

export type OperationKind = 'add' | 'replace' | 'delete' | 'attributes';

/**
 * Where a new entry comes from: nowhere (it has no content), the layer, the tree, another name of what operation `index` makes,
 * another name of a file of the tree, the very file that an earlier apply kept, content that was written for this apply.
 */
export type PlanSource =
  | { readonly kind: 'nowhere' }
  | { readonly kind: 'link'; readonly index: number }
  | { readonly kind: 'layer' | 'tree' | 'tree_link' | 'kept' | 'given'; readonly path: BytePath };

/** The directory of an operation: one that an earlier operation makes, or one of the tree with that identity. */
export type PlanParent = { readonly kind: 'made'; readonly index: number } | { readonly kind: 'known'; readonly dev: bigint; readonly ino: bigint };

/** One step of an apply (executors/shim/apply.c). */
export interface PlanOperation {
  readonly kind: OperationKind;
  readonly root: number;
  readonly path: BytePath;
  readonly parent: PlanParent;
  /** Undefined for `add`. */
  readonly before: PlanState | undefined;
  /** Undefined for `delete`. */
  readonly after: PlanState | undefined;
  readonly source: PlanSource;
  /** Give what is made the owner of `after` (the caller is root). */
  readonly setOwner: boolean;
  /** `before` is what an apply of ours left: told by its content, not by its ctime. */
  readonly byContent: boolean;
  /** The answer has to tell identity and ctime of what was brought. */
  readonly tell: boolean;
}

export interface PlanRoot {
  readonly path: string;
  /** Empty: nothing comes from a layer. */
  readonly upper: string;
  /** Directory for staging when it lies on the same mount as the root; empty: always inside the root. */
  readonly stagingParent: string;
  /** Directory that `kept` and `given` name files of; empty: none. */
  readonly kept: string;
  readonly dev: bigint;
  readonly ino: bigint;
}

export interface PlanContent {
  /** Unique; becomes part of the name of the staging directory. */
  readonly id: string;
  readonly roots: readonly PlanRoot[];
  readonly operations: readonly PlanOperation[];
}

const MAGIC = 'PRPLAN2\0';
const END = 'END!';
const KINDS: readonly OperationKind[] = ['add', 'replace', 'delete', 'attributes'];
const TYPES = { fifo: 1, char: 2, directory: 4, block: 6, file: 8, symlink: 10, socket: 12 } as const;
const SOURCES: readonly PlanSource['kind'][] = ['nowhere', 'layer', 'tree', 'link', 'tree_link', 'kept', 'given'];
const NO_OPERATION = 0xffffffff;
const OWNER = 1;
const BY_CONTENT = 2;
const TELL = 4;

class Writer {
  private buffer = Buffer.alloc(1 << 16);
  private used = 0;

  /** Where the next `length` bytes go. */
  private room(length: number): number {
    if (this.used + length > this.buffer.length) {
      const larger = Buffer.alloc(Math.max(this.buffer.length * 2, this.used + length));
      this.buffer.copy(larger, 0, 0, this.used);
      this.buffer = larger;
    }
    const at = this.used;
    this.used += length;
    return at;
  }

  u8(value: number): void {
    const at = this.room(1);
    this.buffer.writeUInt8(value, at);
  }

  u16(value: number): void {
    const at = this.room(2);
    this.buffer.writeUInt16LE(value, at);
  }

  u32(value: number): void {
    const at = this.room(4);
    this.buffer.writeUInt32LE(value, at);
  }

  u64(value: bigint): void {
    const at = this.room(8);
    this.buffer.writeBigUInt64LE(BigInt.asUintN(64, value), at);
  }

  raw(bytes: Buffer): void {
    const at = this.room(bytes.length);
    bytes.copy(this.buffer, at);
  }

  string(bytes: Buffer): void {
    this.u32(bytes.length);
    this.raw(bytes);
    this.u8(0);
  }

  text(text: string): void {
    this.string(Buffer.from(text, 'utf8'));
  }

  moment(moment: Moment): void {
    this.u64(BigInt(moment.seconds));
    this.u32(moment.nanoseconds);
  }

  state(facts: PlanState | undefined): void {
    this.u8(facts === undefined ? 0 : TYPES[facts.type]);
    this.u8(facts?.sha256 === undefined ? 0 : 1);
    this.u32(facts?.mode ?? 0);
    this.u32(facts?.uid ?? 0);
    this.u32(facts?.gid ?? 0);
    this.u64(facts?.dev ?? 0n);
    this.u64(facts?.ino ?? 0n);
    this.u64(BigInt(facts?.size ?? 0));
    this.moment(facts?.mtime ?? { seconds: 0, nanoseconds: 0 });
    this.moment(facts?.ctime ?? { seconds: 0, nanoseconds: 0 });
    this.raw(facts?.sha256 === undefined ? Buffer.alloc(32) : Buffer.from(facts.sha256, 'hex'));
    this.string(facts?.target === undefined ? Buffer.alloc(0) : bytesOf(facts.target));
    const xattrs = facts?.xattrs ?? [];
    this.u16(xattrs.length);
    for (const xattr of xattrs) {
      this.string(Buffer.from(xattr.name, 'latin1'));
      this.string(xattr.value);
    }
  }

  bytes(): Buffer {
    return this.buffer.subarray(0, this.used);
  }
}

/** The bytes that `shim apply` reads. Pure. */
export function formatPlan(plan: PlanContent): Buffer {
  const writer = new Writer();
  writer.raw(Buffer.from(MAGIC, 'latin1'));
  writer.text(plan.id);
  writer.u32(plan.roots.length);
  for (const root of plan.roots) {
    writer.text(root.path);
    writer.text(root.upper);
    writer.text(root.stagingParent);
    writer.text(root.kept);
    writer.u64(root.dev);
    writer.u64(root.ino);
  }
  writer.u32(plan.operations.length);
  for (const operation of plan.operations) {
    const { parent, source } = operation;
    writer.u8(KINDS.indexOf(operation.kind) + 1);
    writer.u8((operation.setOwner ? OWNER : 0) | (operation.byContent ? BY_CONTENT : 0) | (operation.tell ? TELL : 0));
    writer.u16(operation.root);
    writer.string(bytesOf(operation.path));
    writer.u32(parent.kind === 'made' ? parent.index : NO_OPERATION);
    writer.u64(parent.kind === 'known' ? parent.dev : 0n);
    writer.u64(parent.kind === 'known' ? parent.ino : 0n);
    writer.state(operation.before);
    writer.state(operation.after);
    writer.u8(SOURCES.indexOf(source.kind));
    writer.u32(source.kind === 'link' ? source.index : 0);
    writer.string('path' in source ? bytesOf(source.path) : Buffer.alloc(0));
  }
  writer.raw(Buffer.from(END, 'latin1'));
  return writer.bytes();
}

function broken(at: number): ProofrunError {
  return new ProofrunError('ERR_APPLY_INTERRUPTED', { message: `the plan of an apply is damaged at byte ${at}` });
}

class Reader {
  private at = 0;
  private readonly bytes: Buffer;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }

  take(length: number): Buffer {
    const from = this.at;
    if (length > this.bytes.length - from) throw broken(from);
    this.at = from + length;
    return this.bytes.subarray(from, this.at);
  }

  u8(): number {
    return this.take(1).readUInt8();
  }

  u16(): number {
    return this.take(2).readUInt16LE();
  }

  u32(): number {
    return this.take(4).readUInt32LE();
  }

  u64(): bigint {
    return this.take(8).readBigUInt64LE();
  }

  string(): Buffer {
    const bytes = Buffer.from(this.take(this.u32()));
    if (this.u8() !== 0) throw broken(this.at);
    return bytes;
  }

  text(): string {
    return this.string().toString('utf8');
  }

  path(): BytePath {
    return bytePath(this.string());
  }

  moment(): Moment {
    return { seconds: Number(this.take(8).readBigInt64LE()), nanoseconds: this.u32() };
  }

  one<T>(list: readonly T[], index: number): T {
    const item = list[index];
    if (item === undefined) throw broken(this.at);
    return item;
  }

  state(): PlanState | undefined {
    const dType = this.u8();
    const hashed = this.u8() === 1;
    const [mode, uid, gid] = [this.u32(), this.u32(), this.u32()];
    const [dev, ino, size] = [this.u64(), this.u64(), Number(this.u64())];
    const [mtime, ctime] = [this.moment(), this.moment()];
    const hash = this.take(32).toString('hex');
    const target = this.path();
    const xattrs = Array.from({ length: this.u16() }, (): Xattr => ({ name: this.string().toString('latin1'), value: this.string() }));
    if (dType === 0) return undefined;
    const type = entryTypeOf(dType);
    if (type === undefined) throw broken(this.at);
    return { type, mode, uid, gid, dev, ino, size, mtime, ctime, sha256: hashed ? hash : undefined, target: type === 'symlink' ? target : undefined, xattrs };
  }

  end(): void {
    if (this.take(4).toString('latin1') !== END || this.at !== this.bytes.length) throw broken(this.at);
  }
}

function readSource(reader: Reader): PlanSource {
  const kind = reader.one(SOURCES, reader.u8());
  const index = reader.u32();
  const path = reader.path();
  return kind === 'nowhere' ? { kind } : kind === 'link' ? { kind, index } : { kind, path };
}

/** The inverse of formatPlan. Pure. Throws ERR_APPLY_INTERRUPTED for anything that is not a whole plan. */
export function parsePlan(bytes: Buffer): PlanContent {
  const reader = new Reader(bytes);
  if (reader.take(8).toString('latin1') !== MAGIC) throw broken(0);
  const id = reader.text();
  const roots = Array.from({ length: Math.min(reader.u32(), 16) }, (): PlanRoot => {
    const [path, upper, stagingParent, kept] = [reader.text(), reader.text(), reader.text(), reader.text()];
    return { path, upper, stagingParent, kept, dev: reader.u64(), ino: reader.u64() };
  });
  const count = reader.u32();
  if (count > bytes.length / 64) throw broken(0);
  const operations = Array.from({ length: count }, (): PlanOperation => {
    const kind = reader.one(KINDS, reader.u8() - 1);
    const flags = reader.u8();
    const root = reader.u16();
    reader.one(roots, root);
    const path = reader.path();
    const made = reader.u32();
    const [dev, ino] = [reader.u64(), reader.u64()];
    const parent: PlanParent = made === NO_OPERATION ? { kind: 'known', dev, ino } : { kind: 'made', index: made };
    const [before, after] = [reader.state(), reader.state()];
    if ((before === undefined) !== (kind === 'add') || (after === undefined) !== (kind === 'delete')) throw broken(0);
    const source = readSource(reader);
    return {
      kind,
      root,
      path,
      parent,
      before,
      after,
      source,
      setOwner: (flags & OWNER) !== 0,
      byContent: (flags & BY_CONTENT) !== 0,
      tell: (flags & TELL) !== 0,
    };
  });
  reader.end();
  return { id, roots, operations };
}
