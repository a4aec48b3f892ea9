import type { AppliedPath, StagedRoot } from '../core/change.ts';
import { ProofrunError } from '../core/errors.ts';
import { safeText } from '../core/text-safety.ts';
import { bytesOf, compareBytes, encodePath, encodingOf, parentOf, type BytePath } from './byte-path.ts';
import type { StagedEntry } from './change-set.ts';
import type { LayerFacts, Moment } from './entry-facts.ts';

export type OperationKind = 'add' | 'replace' | 'delete' | 'attributes';

/** One step of an apply (executors/shim/apply.c). */
export interface Operation {
  readonly kind: OperationKind;
  readonly root: number;
  readonly path: BytePath;
  readonly before: LayerFacts | undefined;
  readonly after: LayerFacts | undefined;
  readonly source: BytePath | undefined;
}

export interface PlanInput {
  /** Unique; becomes part of the name of the staging directory. */
  readonly id: string;
  readonly roots: readonly StagedRoot[];
  readonly directories: readonly ReadonlyMap<BytePath, { readonly dev: bigint; readonly ino: bigint }>[];
  readonly entries: readonly StagedEntry[];
  /** Absolute directory for staging when it lies on the same mount as a root; undefined: always inside the root. */
  readonly stagingParent: string | undefined;
  /** Give what is made the owner that it has in the stage (the caller is root). */
  readonly setOwner: boolean;
}

export interface ApplyPlan {
  readonly bytes: Buffer;
  readonly operations: readonly Operation[];
}

const KINDS: Readonly<Record<OperationKind, number>> = { add: 1, replace: 2, delete: 3, attributes: 4 };
const TYPES = { fifo: 1, char: 2, directory: 4, block: 6, file: 8, symlink: 10, socket: 12 } as const;
const NO_OPERATION = 0xffffffff;
const FROM_NOWHERE = 0;
const FROM_LAYER = 1;
const FROM_TREE = 2;
const FROM_LINK = 3;

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

  moment(moment: Moment): void {
    this.u64(BigInt(moment.seconds));
    this.u32(moment.nanoseconds);
  }

  state(facts: LayerFacts | undefined): void {
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

function operationsOf(entry: StagedEntry): Operation[] {
  const root = entry.change.root;
  const base = { root, path: entry.path, before: entry.before, after: entry.after, source: entry.source };
  switch (entry.change.kind) {
    case 'added':
      return [{ ...base, kind: 'add' }];
    case 'deleted':
      return [{ ...base, kind: 'delete' }];
    case 'renamed':
      return [
        { ...base, kind: 'delete', path: entry.from ?? entry.path, after: undefined, source: undefined },
        { ...base, kind: 'add', before: undefined },
      ];
    case 'modified':
    case 'type_changed':
      return [{ ...base, kind: 'replace' }];
    case 'attributes':
      return [{ ...base, kind: 'attributes' }];
  }
}

/** A directory that its owner gets rights back on has to be changed before its entries; any other after them. */
function opensDirectory(operation: Operation): boolean {
  const gained = (operation.after?.mode ?? 0) & ~(operation.before?.mode ?? 0) & 0o700;
  return operation.kind === 'attributes' && operation.before?.type === 'directory' && gained !== 0;
}

function phase(operation: Operation): number {
  if (operation.kind === 'attributes') return opensDirectory(operation) ? 0 : 3;
  return operation.kind === 'delete' ? 1 : 2;
}

/** Deletions from the deepest up, then everything new from the top down. */
function compareOperations(a: Operation, b: Operation): number {
  const order = phase(a) - phase(b) || a.root - b.root || compareBytes(a.path, b.path);
  return phase(a) === 1 && phase(b) === 1 ? -(a.root - b.root || compareBytes(a.path, b.path)) : order;
}

/**
 * Turns selected changes into the plan that `shim apply` reads. Pure. Throws ERR_STAGE_REFUSED when a parent is neither
 * in the tree nor in the selection.
 */
export function buildApplyPlan(input: PlanInput): ApplyPlan {
  const operations = input.entries.flatMap(operationsOf).sort(compareOperations);
  const makes = new Map<string, number>();
  operations.forEach((operation, index) => {
    if (operation.after?.type === 'directory' && (operation.kind === 'add' || operation.kind === 'replace')) {
      makes.set(`${operation.root}/${operation.path}`, index);
    }
  });
  const writer = new Writer();
  writer.raw(Buffer.from('PRPLAN1\0', 'latin1'));
  writer.string(Buffer.from(input.id, 'utf8'));
  writer.u32(input.roots.length);
  input.roots.forEach((root, index) => {
    const identity = input.directories[index]?.get('' as BytePath);
    if (identity === undefined) {
      throw new ProofrunError('ERR_INTERNAL', { message: `no identity for the root ${root.root}` });
    }
    writer.string(Buffer.from(root.root, 'utf8'));
    writer.string(Buffer.from(root.upper, 'utf8'));
    writer.string(Buffer.from(input.stagingParent ?? '', 'utf8'));
    writer.u64(identity.dev);
    writer.u64(identity.ino);
  });
  writer.u32(operations.length);
  const linked = new Map<string, number>();
  operations.forEach((operation, index) => {
    const parent = parentOf(operation.path);
    const maker = operation.kind === 'add' || operation.kind === 'replace' ? makes.get(`${operation.root}/${parent}`) : undefined;
    const identity = maker === undefined ? input.directories[operation.root]?.get(parent) : undefined;
    if (maker === undefined && identity === undefined) {
      throw new ProofrunError('ERR_STAGE_REFUSED', {
        message: `${safeText(bytesOf(operation.path))} can't be applied: the directory ${safeText(bytesOf(parent))} is neither in the workspace nor in the selection`,
      });
    }
    writer.u8(KINDS[operation.kind]);
    writer.u8(input.setOwner ? 1 : 0);
    writer.u16(operation.root);
    writer.string(bytesOf(operation.path));
    writer.u32(maker ?? NO_OPERATION);
    writer.u64(identity?.dev ?? 0n);
    writer.u64(identity?.ino ?? 0n);
    writer.state(operation.kind === 'add' ? undefined : operation.before);
    writer.state(operation.kind === 'delete' ? undefined : operation.after);
    const copies = (operation.kind === 'add' || operation.kind === 'replace') && operation.after?.type === 'file';
    let first: number | undefined;
    if (copies && operation.source === undefined && operation.after.nlink > 1) {
      const key = `${operation.root}:${operation.after.dev}:${operation.after.ino}`;
      first = linked.get(key);
      if (first === undefined) linked.set(key, index);
    }
    writer.u8(!copies ? FROM_NOWHERE : first !== undefined ? FROM_LINK : operation.source === undefined ? FROM_LAYER : FROM_TREE);
    writer.u32(first ?? 0);
    writer.string(copies ? bytesOf(operation.source ?? operation.path) : Buffer.alloc(0));
  });
  writer.raw(Buffer.from('END!', 'latin1'));
  return { bytes: writer.bytes(), operations };
}

/** What is to be remembered of a plan that was carried out; `inodes` are the shim's, one for each operation. */
export function appliedPaths(plan: readonly Operation[], directories: PlanInput['directories'], inodes: readonly string[]): AppliedPath[] {
  return plan.map((operation, index) => {
    const encoding = encodingOf([operation.path]);
    const present = operation.kind !== 'delete';
    const dev = directories[operation.root]?.get('' as BytePath)?.dev ?? 0n;
    return {
      root: operation.root,
      path: encodePath(operation.path, encoding),
      encoding,
      state: present ? 'present' : 'absent',
      dev: present ? String(dev) : '0',
      ino: present ? (inodes[index] ?? '0') : '0',
    };
  });
}
