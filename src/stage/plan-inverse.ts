import { parentOf, type BytePath } from './byte-path.ts';
import type { PlanContent, PlanOperation, PlanParent, PlanSource, PlanState } from './plan-bytes.ts';
import { compareOperations } from './plan-order.ts';

export interface InverseInput {
  readonly plan: PlanContent;
  /** Inode that each operation of `plan` brought, as the shim told it. */
  readonly inodes: readonly bigint[];
  /** Unique, of the undo itself. */
  readonly id: string;
  /** Directory of each root that holds what was there before. */
  readonly kept: readonly string[];
  readonly stagingParent: string | undefined;
  /** The caller's; a directory of its own that it may not write is opened first. */
  readonly uid: number;
}

type Step = Omit<PlanOperation, 'parent'>;

function key(root: number, path: BytePath): string {
  return `${root}/${path}`;
}

/** Where the shim kept the old side of an operation (executors/shim/apply-keep.c). */
function keptName(kind: 'delete' | 'replace', index: number): BytePath {
  return `${kind === 'delete' ? 'd' : 'n'}${index}` as BytePath;
}

function keptSource(before: PlanState | undefined, kind: 'delete' | 'replace', index: number): PlanSource {
  return before === undefined || before.type === 'directory' ? { kind: 'nowhere' } : { kind: 'kept', path: keptName(kind, index) };
}

/**
 * The plan that takes an apply back: what came goes, what went comes back as the very file, and all of it only while everything is as
 * the apply left it. Pure.
 */
export function invertPlan(input: InverseInput): PlanContent {
  const { plan, inodes } = input;
  const deleted = new Set(
    plan.operations
      .filter(({ kind, before }) => kind === 'delete' || (kind === 'replace' && before?.type === 'directory'))
      .map(({ root, path }) => key(root, path)),
  );
  const brought = (operation: PlanOperation, index: number): PlanState | undefined =>
    operation.after === undefined ? undefined : { ...operation.after, dev: plan.roots[operation.root]?.dev ?? 0n, ino: inodes[index] ?? 0n };
  const steps = plan.operations.flatMap((operation, index): Step[] => {
    const { kind, root, path, before, setOwner } = operation;
    const base = { root, path, setOwner, byContent: true, tell: true };
    switch (kind) {
      case 'add':
        return [{ ...base, kind: 'delete', before: brought(operation, index), after: undefined, source: { kind: 'nowhere' } }];
      case 'delete':
        return [{ ...base, kind: 'add', before: undefined, after: before, source: keptSource(before, kind, index) }];
      case 'replace':
        return [{ ...base, kind: 'replace', before: brought(operation, index), after: before, source: keptSource(before, kind, index) }];
      case 'attributes':
        // A directory that was opened to be deleted comes back with the mode that it had.
        if (deleted.has(key(root, path))) return [];
        return [{ ...base, kind: 'attributes', before: brought({ ...operation }, index), after: before, source: { kind: 'nowhere' } }];
    }
  });
  // Directories of the tree as the apply left them: made by it, or known to it.
  const known = new Map<string, { readonly dev: bigint; readonly ino: bigint }>();
  plan.operations.forEach((operation) => {
    const { parent, root } = operation;
    const identity = parent.kind === 'made' ? { dev: plan.roots[root]?.dev ?? 0n, ino: inodes[parent.index] ?? 0n } : { dev: parent.dev, ino: parent.ino };
    known.set(key(root, parentOf(operation.path)), identity);
  });
  const ordered = [...steps, ...openings(steps, input.uid)].sort(compareOperations);
  const makes = new Map<string, number>();
  ordered.forEach((step, index) => {
    if (step.after?.type === 'directory' && (step.kind === 'add' || step.kind === 'replace')) makes.set(key(step.root, step.path), index);
  });
  const first = new Map<string, number>();
  const linked = (step: Step, index: number): PlanSource => {
    // Two names of one file were kept as one file.
    if (step.source.kind !== 'kept' || step.after?.type !== 'file') return step.source;
    const at = key(step.root, `${step.after.dev}:${step.after.ino}` as BytePath);
    const earlier = first.get(at);
    if (earlier !== undefined) return { kind: 'link', index: earlier };
    first.set(at, index);
    return step.source;
  };
  return {
    id: input.id,
    roots: plan.roots.map((root, index) => ({ ...root, upper: '', stagingParent: input.stagingParent ?? '', kept: input.kept[index] ?? '' })),
    operations: ordered.map((step, index): PlanOperation => {
      const at = key(step.root, parentOf(step.path));
      const maker = step.kind === 'add' || step.kind === 'replace' ? makes.get(at) : undefined;
      const identity = known.get(at) ?? { dev: 0n, ino: 0n };
      const parent: PlanParent = maker === undefined ? { kind: 'known', ...identity } : { kind: 'made', index: maker };
      return { ...step, source: linked(step, index), parent };
    }),
  };
}

/** A directory that came with a mode that keeps its owner out has to be opened before what lies in it can go. */
function openings(steps: readonly Step[], uid: number): Step[] {
  if (uid === 0) return [];
  return steps.flatMap((step): Step[] => {
    const { before } = step;
    if ((step.kind !== 'delete' && step.kind !== 'replace') || before?.type !== 'directory' || (before.mode & 0o700) === 0o700) return [];
    return [{ ...step, kind: 'attributes', before, after: { ...before, mode: before.mode | 0o700 }, source: { kind: 'nowhere' }, tell: false }];
  });
}
