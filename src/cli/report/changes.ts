import type { Change, ChangeKind, EntryFacts } from '../../core/change.ts';
import type { BundleChanges } from '../../core/bundle.ts';
import { displayPath, safeLine } from '../../core/text-safety.ts';
import { reviewRank } from '../../stage/review-order.ts';
import { clockWords, friendlyPath, plural, sizeWords } from './words.ts';

/** A directory shows at most this many rows; one with more becomes a single row. */
const MOST_ROWS = 20;
/** Rows of one group at most; what is left out is counted. */
const MOST_OF_GROUP = 200;

/** One line of the list of changes, before layout. `path` has passed the sanitiser. */
export interface ChangeRow {
  /** `!` the host would run it, `C` conflict, `>` a link that leaves the workspace, `x` it can never be applied. */
  readonly mark: ' ' | '!' | 'C' | '>' | 'x';
  /** A added, M modified, D deleted, T type changed, R renamed, P permissions or owner, * several kinds. */
  readonly letter: string;
  readonly path: string;
  readonly added: number | null;
  readonly removed: number | null;
  readonly note: string;
}

export interface ChangeGroupRows {
  readonly rows: readonly ChangeRow[];
  /** Changes that no row stands for. */
  readonly leftOut: number;
}

/** Numbers of a change set. Directories that only hold other changes are not counted. */
export interface Tally {
  readonly files: number;
  readonly directories: number;
  readonly added: number;
  readonly modified: number;
  readonly deleted: number;
  readonly other: number;
  readonly addedLines: number;
  readonly removedLines: number;
  readonly conflicts: number;
}

const LETTERS: Readonly<Record<ChangeKind, string>> = { added: 'A', modified: 'M', deleted: 'D', type_changed: 'T', renamed: 'R', attributes: 'P' };

/** Changes that are worth a line: a directory that comes or goes only with its entries is left to them. */
export function listedChanges(changes: BundleChanges): readonly Change[] {
  return changes.changes.filter((change) => change.implied !== true);
}

export function tallyOf(changes: BundleChanges): Tally {
  const counts = { files: 0, directories: 0, added: 0, modified: 0, deleted: 0, other: 0, addedLines: 0, removedLines: 0, conflicts: 0 };
  for (const change of listedChanges(changes)) {
    if (change.conflict !== undefined) counts.conflicts += 1;
    if ((change.after ?? change.before)?.type === 'directory') {
      counts.directories += 1;
      continue;
    }
    counts.files += 1;
    if (change.kind === 'added' || change.kind === 'modified' || change.kind === 'deleted') counts[change.kind] += 1;
    else counts.other += 1;
    counts.addedLines += change.addedLines ?? 0;
    counts.removedLines += change.removedLines ?? 0;
  }
  return counts;
}

/** `7 files: 4 added, 2 modified, 1 deleted`; `nothing` when there is none. */
export function tallyWords(tally: Tally): string {
  const kinds = (
    [
      ['added', tally.added],
      ['modified', tally.modified],
      ['deleted', tally.deleted],
      ['changed otherwise', tally.other],
    ] as const
  )
    .filter(([, count]) => count > 0)
    .map(([word, count]) => `${count} ${word}`);
  const files = tally.files === 0 ? [] : [`${plural(tally.files, 'file')}: ${kinds.join(', ')}`];
  const directories = tally.directories === 0 ? [] : [plural(tally.directories, 'directory', 'directories')];
  return [...files, ...directories].join('; ') || 'nothing';
}

/** `7 files, +118 -37`. */
export function tallyNumbers(tally: Tally): string {
  const parts = [
    plural(tally.files, 'file'),
    ...(tally.directories === 0 ? [] : [plural(tally.directories, 'directory', 'directories')]),
    `+${tally.addedLines} -${tally.removedLines}`,
  ];
  return parts.join(', ');
}

/** The list of changes in review order; large directories collapse and long groups are cut, unless every single change is wanted. */
export function changeRows(
  changes: BundleChanges,
  workspace: string,
  home: string | undefined,
  options: { readonly collapse: boolean } = { collapse: true },
): ChangeGroupRows {
  const groups = new Map<number, Leaf[]>();
  for (const change of listedChanges(changes)) {
    const rank = reviewRank(change);
    const leaf: Leaf = { kind: 'leaf', path: shownPath(change, changes, workspace, home), change };
    const group = groups.get(rank);
    if (group === undefined) groups.set(rank, [leaf]);
    else group.push(leaf);
  }
  const rows: ChangeRow[] = [];
  let leftOut = 0;
  for (const [, group] of [...groups].sort(([a], [b]) => a - b)) {
    if (!options.collapse) {
      rows.push(...group.sort(byPath).map(rowOf));
      continue;
    }
    const items = collapse(group.sort(byPath));
    // What stands for many comes first when not everything can be shown.
    const collapsed =
      items.length > MOST_OF_GROUP ? [...items.filter(({ kind }) => kind === 'collapsed'), ...items.filter(({ kind }) => kind === 'leaf')] : items;
    rows.push(...collapsed.slice(0, MOST_OF_GROUP).map(rowOf));
    leftOut += collapsed.slice(MOST_OF_GROUP).reduce((sum, item) => sum + (item.kind === 'leaf' ? 1 : item.count), 0);
  }
  return { rows, leftOut };
}

/** The path of a change for a person: relative to the workspace, or below the name of another staged root. */
export function shownPath(change: Change, changes: BundleChanges, workspace: string, home: string | undefined): string {
  const path = displayPath(change.path, change.encoding);
  if (change.root === 0) return path;
  return `${displayPath(friendlyPath(changes.roots[change.root] ?? '?', workspace, home))}/${path}`;
}

interface Leaf {
  readonly kind: 'leaf';
  readonly path: string;
  readonly change: Change;
}
interface Collapsed {
  readonly kind: 'collapsed';
  readonly path: string;
  readonly count: number;
  readonly first: Change;
  readonly letter: string;
  readonly added: number;
  readonly removed: number;
}
type Item = Leaf | Collapsed;

interface Folder {
  readonly folders: Map<string, Folder>;
  readonly leaves: Leaf[];
}

/** Bottom up: a directory whose rows, after its own directories were collapsed, are still too many becomes one row. The top never does. */
function collapse(sorted: readonly Leaf[]): readonly Item[] {
  if (sorted.length <= MOST_ROWS) return sorted;
  const top: Folder = { folders: new Map(), leaves: [] };
  for (const leaf of sorted) {
    let folder = top;
    for (const part of leaf.path.split('/').slice(0, -1)) {
      const next: Folder = folder.folders.get(part) ?? { folders: new Map(), leaves: [] };
      folder.folders.set(part, next);
      folder = next;
    }
    folder.leaves.push(leaf);
  }
  const items = [...[...top.folders].flatMap(([name, folder]) => collapseFolder(name, folder)), ...top.leaves];
  return items.sort(byPath);
}

function byPath(a: Item, b: Item): number {
  return a.path < b.path ? -1 : a.path > b.path ? 1 : 0;
}

function collapseFolder(path: string, folder: Folder): readonly Item[] {
  const items = [...[...folder.folders].flatMap(([name, inner]) => collapseFolder(`${path}/${name}`, inner)), ...folder.leaves];
  if (items.length <= MOST_ROWS) return items;
  const first = items[0];
  if (first === undefined) return items;
  const letters = new Set(items.map((item) => (item.kind === 'leaf' ? LETTERS[item.change.kind] : item.letter)));
  const [letter] = letters;
  return [
    {
      kind: 'collapsed',
      path: `${path}/`,
      count: items.reduce((sum, item) => sum + (item.kind === 'leaf' ? 1 : item.count), 0),
      first: first.kind === 'leaf' ? first.change : first.first,
      letter: letters.size === 1 ? (letter ?? '*') : '*',
      added: items.reduce((sum, item) => sum + (item.kind === 'leaf' ? (item.change.addedLines ?? 0) : item.added), 0),
      removed: items.reduce((sum, item) => sum + (item.kind === 'leaf' ? (item.change.removedLines ?? 0) : item.removed), 0),
    },
  ];
}

function rowOf(item: Item): ChangeRow {
  if (item.kind === 'collapsed') {
    const { first } = item;
    const reason = first.executes ?? first.unappliable;
    const note = [plural(item.count, 'entry', 'entries'), ...(reason === undefined ? [] : [safeLine(reason, 200)])].join('; ');
    return { mark: markOf(first), letter: item.letter, path: item.path, added: item.added, removed: item.removed, note };
  }
  const { change, path } = item;
  const directory = (change.after ?? change.before)?.type === 'directory';
  const counted = !change.binary && change.kind !== 'attributes';
  return {
    mark: markOf(change),
    letter: LETTERS[change.kind],
    path: directory ? `${path}/` : path,
    added: counted ? change.addedLines : null,
    removed: counted ? change.removedLines : null,
    note: noteOf(change),
  };
}

function markOf(change: Change): ChangeRow['mark'] {
  if (change.executes !== undefined) return '!';
  if (change.conflict !== undefined) return 'C';
  if (change.leavesRoot === true) return '>';
  return change.unappliable === undefined ? ' ' : 'x';
}

/** What a person has to know beyond the numbers, most important first. */
function noteOf(change: Change): string {
  const { before, after } = change;
  const notes: string[] = [];
  if (change.applied === true) notes.push('applied');
  if (change.executes !== undefined) notes.push(safeLine(change.executes, 200));
  if (change.conflict !== undefined) notes.push(`conflict: ${safeLine(change.conflict.reason, 200)}`);
  if (change.unappliable !== undefined) notes.push(`not applicable: ${safeLine(change.unappliable, 200)}`);
  if (after?.type === 'symlink' && after.target !== undefined) {
    notes.push(`link to ${displayPath(after.target, change.encoding)}${change.leavesRoot === true ? ', outside the workspace' : ''}`);
  }
  if (change.from !== undefined) notes.push(`from ${displayPath(change.from, change.encoding)}`);
  if (change.kind === 'type_changed' && before !== undefined && after !== undefined) notes.push(`${before.type} -> ${after.type}`);
  if (change.binary) notes.push(`binary, ${sizeWords((after ?? before)?.size ?? 0)}`);
  if (before !== undefined && after !== undefined) notes.push(...attributeNotes(before, after));
  return notes.join('; ');
}

function attributeNotes(before: EntryFacts, after: EntryFacts): readonly string[] {
  const notes: string[] = [];
  if (before.type === after.type && before.mode !== after.mode) notes.push(`mode ${octal(before.mode)} -> ${octal(after.mode)}`);
  if (before.uid !== after.uid || before.gid !== after.gid) notes.push(`owner ${before.uid}:${before.gid} -> ${after.uid}:${after.gid}`);
  return notes;
}

function octal(mode: number): string {
  return mode.toString(8).padStart(3, '0');
}

/** `staged 4e1f.. 09:41:12`, `here 77b0.. 09:44:50`: one side of a conflict. */
export function conflictSide(word: string, sha256: string | null, timeMs: number | null): string {
  return [word, sha256 === null ? 'absent' : `${sha256.slice(0, 4)}..`, ...(timeMs === null ? [] : [clockWords(timeMs)])].join(' ');
}
