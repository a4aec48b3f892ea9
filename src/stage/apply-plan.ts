import type { AppliedPath, StagedRoot } from '../core/change.ts';
import { ProofrunError } from '../core/errors.ts';
import { safeText } from '../core/text-safety.ts';
import { ancestorsOf, bytesOf, encodePath, encodingOf, parentOf, type BytePath } from './byte-path.ts';
import type { StagedEntry } from './change-set.ts';
import type { LayerFacts } from './entry-facts.ts';
import type { OperationKind, PlanContent, PlanOperation, PlanSource } from './plan-bytes.ts';
import { compareOperations } from './plan-order.ts';

/** Identity of every directory that a change lies in, by path beneath one root. */
export type DirectoryMap = ReadonlyMap<BytePath, Pick<LayerFacts, 'dev' | 'ino'> & Partial<LayerFacts>>;

export interface PlanInput {
  /** Unique; becomes part of the name of the staging directory. */
  readonly id: string;
  readonly roots: readonly StagedRoot[];
  readonly directories: readonly DirectoryMap[];
  readonly entries: readonly StagedEntry[];
  /** Absolute directory for staging when it lies on the same mount as a root; undefined: always inside the root. */
  readonly stagingParent: string | undefined;
  /** The caller is root: owners are set, and no mode keeps it out. Else the caller's uid. */
  readonly uid: number;
  /** Directory that holds `given` content; undefined: there is none. */
  readonly given?: string;
}

type Step = Omit<PlanOperation, 'parent'>;

function sourceOf(entry: StagedEntry, kind: OperationKind): PlanSource {
  if ((kind !== 'add' && kind !== 'replace') || entry.after?.type !== 'file') return { kind: 'nowhere' };
  if (entry.given !== undefined) return { kind: 'given', path: entry.given };
  if (entry.linkTo !== undefined) return { kind: 'tree_link', path: entry.linkTo };
  return entry.source === undefined ? { kind: 'layer', path: entry.path } : { kind: 'tree', path: entry.source };
}

/** The file of the layer that an entry is a name of; undefined when it has one name only. */
function fileOf(entry: StagedEntry): string | undefined {
  const { after, change } = entry;
  if (after?.type !== 'file' || after.nlink < 2 || entry.source !== undefined || entry.given !== undefined) return undefined;
  return `${change.root}:${after.dev}:${after.ino}`;
}

function stepsOf(entry: StagedEntry, setOwner: boolean, names: ReadonlyMap<string, number>): Step[] {
  const base = { root: entry.change.root, setOwner, byContent: false, tell: entry.given !== undefined };
  const step = (kind: OperationKind, path = entry.path): Step => ({
    ...base,
    kind,
    path,
    before: kind === 'add' ? undefined : entry.before,
    after: kind === 'delete' ? undefined : entry.after,
    source: sourceOf(entry, kind),
  });
  switch (entry.change.kind) {
    case 'added':
      return [step('add')];
    case 'deleted':
      return [step('delete')];
    case 'renamed':
      return [step('delete', entry.from ?? entry.path), step('add')];
    case 'modified':
    case 'type_changed':
      return [step('replace')];
    case 'attributes':
      // Where other names of the same file come, this one has to become the same file too.
      return [step(entry.linkTo !== undefined || (names.get(fileOf(entry) ?? '') ?? 0) > 1 ? 'replace' : 'attributes')];
  }
}

function key(root: number, path: BytePath): string {
  return `${root}/${path}`;
}

/**
 * A directory whose owner may not write it is opened for the time of the apply, as the job did it: entries of it come and go, or it
 * moves itself. The steps are part of the plan, so that a crash leaves no other mode behind. Root needs none of it.
 */
function openingSteps(steps: readonly Step[], input: PlanInput): Step[] {
  if (input.uid === 0) return [...steps];
  const byPath = new Map(steps.filter((step) => step.kind !== 'add').map((step) => [key(step.root, step.path), step]));
  const opened = new Map<string, Step>();
  const open = (root: number, path: BytePath, needed = 0o300): void => {
    const at = key(root, path === '' ? ('.' as BytePath) : path);
    const facts = input.directories[root]?.get(path);
    if (facts?.type !== 'directory' || facts.mode === undefined || facts.uid !== input.uid) return;
    if (opened.has(at) || (facts.mode & needed) === needed) return;
    const before = facts as LayerFacts;
    const wide = { ...before, mode: before.mode | 0o700 };
    opened.set(at, {
      kind: 'attributes',
      root,
      path: path === '' ? ('.' as BytePath) : path,
      before,
      after: wide,
      source: { kind: 'nowhere' },
      setOwner: false,
      byContent: false,
      tell: false,
    });
  };
  for (const step of steps) {
    if (step.kind === 'attributes') continue;
    const parent = parentOf(step.path);
    // A way through is enough above it.
    for (const above of ['' as BytePath, ...ancestorsOf(parent)]) open(step.root, above, 0o100);
    open(step.root, parent);
    // Whether it is empty has to be seen.
    if (step.before?.type === 'directory') open(step.root, step.path, 0o700);
  }
  if (opened.size === 0) return [...steps];
  const rest = steps.map((step): Step => {
    const opening = opened.get(key(step.root, step.path));
    return step.kind === 'attributes' && opening?.after !== undefined ? { ...step, before: opening.after } : step;
  });
  // What was opened and stays gets its mode back; what the job itself gave another mode gets that one.
  const closing = [...opened].flatMap(([at, opening]): Step[] =>
    byPath.has(at) || opening.before === undefined ? [] : [{ ...opening, before: opening.after, after: opening.before }],
  );
  return [...rest, ...opened.values(), ...closing];
}

/**
 * Turns selected changes into the plan that `shim apply` carries out. Pure. Throws ERR_STAGE_REFUSED when a parent is neither
 * in the tree nor in the selection.
 */
export function buildApplyPlan(input: PlanInput): PlanContent {
  const names = new Map<string, number>();
  for (const entry of input.entries) {
    const file = fileOf(entry);
    if (file !== undefined) names.set(file, (names.get(file) ?? 0) + 1);
  }
  const steps = openingSteps(
    input.entries.flatMap((entry) => stepsOf(entry, input.uid === 0, names)),
    input,
  ).sort(compareOperations);
  const makes = new Map<string, number>();
  steps.forEach((step, index) => {
    if (step.after?.type === 'directory' && (step.kind === 'add' || step.kind === 'replace')) makes.set(key(step.root, step.path), index);
  });
  const linked = new Map<string, number>();
  const operations = steps.map((step, index): PlanOperation => {
    const parent = parentOf(step.path);
    const maker = step.kind === 'add' || step.kind === 'replace' ? makes.get(key(step.root, parent)) : undefined;
    const identity = maker === undefined ? input.directories[step.root]?.get(parent) : undefined;
    if (maker === undefined && identity === undefined) {
      throw new ProofrunError('ERR_STAGE_REFUSED', {
        message: `${safeText(bytesOf(step.path))} can't be applied: the directory ${safeText(bytesOf(parent))} is neither in the workspace nor in the selection`,
      });
    }
    return {
      ...step,
      source: linkedSource(step, index, linked),
      parent: maker === undefined ? { kind: 'known', dev: identity?.dev ?? 0n, ino: identity?.ino ?? 0n } : { kind: 'made', index: maker },
    };
  });
  return {
    id: input.id,
    roots: input.roots.map((root, index) => {
      const identity = input.directories[index]?.get('' as BytePath);
      if (identity === undefined) throw new ProofrunError('ERR_INTERNAL', { message: `no identity for the root ${root.root}` });
      return {
        path: root.root,
        upper: root.upper,
        stagingParent: input.stagingParent ?? '',
        kept: input.given ?? '',
        dev: identity.dev,
        ino: identity.ino,
      };
    }),
    operations,
  };
}

/** Names of one file of the layer become names of one file of the tree. */
function linkedSource(step: Step, index: number, linked: Map<string, number>): PlanSource {
  const { source, after } = step;
  if (source.kind !== 'layer' || after === undefined || !('nlink' in after) || (after as LayerFacts).nlink < 2) return source;
  const at = `${step.root}:${after.dev}:${after.ino}`;
  const first = linked.get(at);
  if (first !== undefined) return { kind: 'link', index: first };
  linked.set(at, index);
  return source;
}

/** What is to be remembered of a plan that was carried out; `inodes` are the shim's, one for each operation. */
export function appliedPaths(plan: Pick<PlanContent, 'roots' | 'operations'>, inodes: readonly string[]): AppliedPath[] {
  return plan.operations.map((operation, index) => {
    const encoding = encodingOf([operation.path]);
    const present = operation.kind !== 'delete';
    const dev = plan.roots[operation.root]?.dev ?? 0n;
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
