import fc from 'fast-check';

/** One operation of test/fixtures/tree-ops.py. */
export type TreeOperation = readonly [string, ...(string | number | boolean)[]];

export interface TreeSequence {
  /** Makes the tree that the job finds. */
  readonly before: readonly TreeOperation[];
  readonly job: readonly TreeOperation[];
}

/** Names as bytes in latin-1: plain, with a newline, a leading dash, no UTF-8, as long as a name can be. */
const name = fc.oneof(
  { weight: 12, arbitrary: fc.constantFrom('a', 'b', 'c') },
  { weight: 1, arbitrary: fc.constantFrom('-n', 'new\nline', 'bad\xff', 'l'.repeat(255), ' ', '\\') },
);
const path = fc.array(name, { minLength: 1, maxLength: 3 }).map((parts) => parts.join('/'));
const text = fc.constantFrom('one\n', 'two\n', 'three\nlines\nof it', '', 'nul\0nul', 'one\n');
const mode = fc.constantFrom(0o755, 0o700, 0o644, 0o600, 0o750, 0o555, 0o000, 0o1777, 0o400);
const moment = fc.constantFrom(1_000_000_000_123_456_000, 1_234_567_890_000_000_000, 1_400_000_000_000_001_000);

/**
 * Operations that any user may do. `links`: also hard links. `marks`: also attributes that look like an overlay's own.
 * `closed`: also directories that their owner can't go through.
 */
function operation({ links, marks, closed }: { readonly links: boolean; readonly marks: boolean; readonly closed: boolean }): fc.Arbitrary<TreeOperation> {
  const list: { readonly weight: number; readonly arbitrary: fc.Arbitrary<TreeOperation> }[] = [
    { weight: 6, arbitrary: fc.tuple(fc.constant('write'), path, text) },
    { weight: 2, arbitrary: fc.tuple(fc.constant('append'), path, text) },
    { weight: 1, arbitrary: fc.tuple(fc.constant('hole'), path, fc.constantFrom(1, 4096, 3 << 20)) },
    { weight: 3, arbitrary: fc.tuple(fc.constant('mkdir'), path) },
    { weight: 2, arbitrary: fc.tuple(fc.constant('makedirs'), path) },
    { weight: 3, arbitrary: fc.tuple(fc.constant('remove'), path) },
    { weight: 1, arbitrary: fc.tuple(fc.constant('rmdir'), path) },
    { weight: 4, arbitrary: fc.tuple(fc.constant('rename'), path, path) },
    { weight: 2, arbitrary: fc.tuple(fc.constant('copy'), path, path) },
    { weight: 2, arbitrary: fc.tuple(fc.constant('symlink'), path, path) },
    { weight: 1, arbitrary: fc.tuple(fc.constant('fifo'), path) },
    { weight: 3, arbitrary: fc.tuple(fc.constant('chmod'), path, mode, closed ? fc.constantFrom(0, 0o300) : fc.constantFrom(0o500, 0o700)) },
    {
      weight: 1,
      arbitrary: fc.tuple(fc.constant('xattr'), path, fc.constantFrom('colour', ...(marks ? ['overlay.opaque'] : [])), fc.constantFrom('red', 'y', '')),
    },
    { weight: 1, arbitrary: fc.tuple(fc.constant('unxattr'), path, fc.constantFrom('colour')) },
    { weight: 1, arbitrary: fc.tuple(fc.constant('acl'), path, fc.constantFrom(0o644, 0o755, 0o600)) },
    { weight: 2, arbitrary: fc.tuple(fc.constant('time'), path, moment) },
  ];
  if (links) list.push({ weight: 2, arbitrary: fc.tuple(fc.constant('link'), path, path) });
  return fc.oneof(...list);
}

/**
 * `lowerLinks`, `lowerMarks`, `lowerClosed`: whether the tree that the job finds may have hard links, attributes under the overlay's own
 * prefix, and closed directories (for an ordinary user a change below one is a conflict, as the run's warning says).
 */
export function treeSequence(limits: {
  readonly lowerLinks: boolean;
  readonly lowerMarks: boolean;
  readonly lowerClosed: boolean;
}): fc.Arbitrary<TreeSequence> {
  return fc.record({
    before: fc.array(operation({ links: limits.lowerLinks, marks: limits.lowerMarks, closed: limits.lowerClosed }), { maxLength: 12 }),
    job: fc.array(operation({ links: true, marks: true, closed: true }), { minLength: 1, maxLength: 12 }),
  });
}

/** One entry as tree-ops.py shows it. */
export interface TreeRow {
  readonly type: number;
  readonly owner: string;
  readonly mode?: string;
  readonly xattrs?: Readonly<Record<string, string>>;
  readonly content?: string;
  readonly size?: number;
  readonly sparse?: boolean;
  readonly target?: string;
  /** First of the names that are the same file. */
  readonly with?: string;
  readonly ino?: number;
  /** Nanoseconds; `now` for a time of this century's later half, which no two runs share. */
  readonly time: number | 'now';
}
export type Tree = Readonly<Record<string, TreeRow>>;

const DIRECTORY = 0o040000;

function withoutTime(row: TreeRow): string {
  return JSON.stringify({ ...row, time: undefined, ino: undefined, with: undefined });
}

/**
 * The tree that an apply has to give, from the one before and the one that the same operations gave directly: the latter, but that time
 * alone is no change (also of a file that got another name), and that the time of a directory moves with its entries.
 */
export function expectedTree(before: Tree, direct: Tree): Record<string, unknown> {
  const kept = new Map<string, number | 'now'>();
  for (const [path, row] of Object.entries(direct)) {
    const old = before[path];
    if (old !== undefined && withoutTime(old) === withoutTime(row)) kept.set(row.with ?? path, old.time);
  }
  return shapeOf(
    direct,
    Object.fromEntries(
      Object.entries(direct).map(([path, row]) => {
        return [path, kept.get(row.with ?? path) ?? row.time];
      }),
    ),
    before,
  );
}

/** A tree in the form that is compared. */
export function actualTree(before: Tree, tree: Tree): Record<string, unknown> {
  return shapeOf(tree, Object.fromEntries(Object.entries(tree).map(([path, { time }]) => [path, time])), before);
}

function shapeOf(tree: Tree, times: Readonly<Record<string, number | 'now' | undefined>>, before: Tree): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(tree).map(([path, row]) => {
      const was = before[path];
      const oldDirectory = row.type === DIRECTORY && was?.type === DIRECTORY;
      return [path, { ...row, ino: undefined, time: oldDirectory ? 'moves' : times[path] }];
    }),
  );
}

/** A tree as exactly as it can be told: the same files, not equal ones. Directories that came back are new ones. */
export function exactTree(tree: Tree): Record<string, unknown> {
  return Object.fromEntries(Object.entries(tree).map(([path, row]) => [path, row.type === DIRECTORY ? { ...row, time: 'moves' } : row]));
}
