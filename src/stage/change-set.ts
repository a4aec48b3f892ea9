import type { Change, ChangeKind, EntryFacts } from '../core/change.ts';
import { safeText } from '../core/text-safety.ts';
import { bytesOf, encodePath, encodingOf, lossyTextOf, nameOf, parentOf, textOf, type BytePath } from './byte-path.ts';
import { momentMs, type LayerFacts, type MergedEntry } from './entry-facts.ts';
import { checkGenerations, type Generation } from './generations.ts';
import type { LayerIndex } from './layer-index.ts';
import type { AppliedState, RestoredState } from './preimage-check.ts';
import type { Preimage } from './preimage.ts';
import { leavesRoot } from './symlink-target.ts';

/** The staged root itself, in which only attributes can change. */
const ROOT_PATH = '.' as BytePath;

/** A change with everything that a diff or an apply needs and that no record has to keep. */
export interface StagedEntry {
  readonly change: Change;
  readonly path: BytePath;
  /** Old path of a rename. */
  readonly from: BytePath | undefined;
  /** What the tree has now: at `from` for a rename, else at `path`. */
  readonly before: LayerFacts | undefined;
  readonly after: LayerFacts | undefined;
  /** Where in the tree the content of `after` lies when the layer doesn't hold it. */
  readonly source: BytePath | undefined;
  /** Another name of this file of the tree, which stays as it is. */
  readonly linkTo?: BytePath;
  /** Content that was made for this apply (chosen hunks, a merge): its name in the directory of such content. */
  readonly given?: BytePath;
}

export interface ChangeSetInput {
  /** Index of the staged root. */
  readonly root: number;
  /** Absolute path of the staged root. */
  readonly rootPath: string;
  readonly entries: readonly MergedEntry[];
  readonly preimage: Preimage;
  /** Paths beneath the root that the job could not see. */
  readonly hidden: readonly BytePath[];
  readonly applied: ReadonlyMap<BytePath, AppliedState>;
  readonly restored: ReadonlyMap<BytePath, RestoredState>;
  readonly clockFellBack: boolean;
  /** What the run itself touched, when it started from another result; undefined: everything. */
  readonly index?: LayerIndex;
  /** The results that it started from, the latest first. */
  readonly earlier?: readonly Generation[];
  /** ignore: the job had a single-id map, so owners could not change, only look different. */
  readonly ownership: 'compare' | 'ignore';
  /** Why the host would run what lies at a path beneath the root. */
  readonly executes: (relativePath: string) => string | undefined;
  /** How a path is judged instead of by the preimage: the tree is another directory than the one that the run saw. */
  readonly judge?: (path: BytePath, before: LayerFacts | undefined, attributesOnly: boolean) => string | undefined;
}

function sameXattrs(a: LayerFacts, b: LayerFacts): boolean {
  return a.xattrs.length === b.xattrs.length && a.xattrs.every((x, i) => x.name === b.xattrs[i]?.name && x.value.equals(b.xattrs[i].value));
}

function sameContent(before: LayerFacts, after: LayerFacts): boolean {
  switch (after.type) {
    case 'file':
      return before.sha256 !== undefined && before.sha256 === after.sha256;
    case 'symlink':
      return before.target === after.target;
    case 'block':
    case 'char':
      return before.rdev.major === after.rdev.major && before.rdev.minor === after.rdev.minor;
    case 'directory':
    case 'fifo':
    case 'socket':
      return true;
  }
}

function sameAttributes(before: LayerFacts, after: LayerFacts, ownership: 'compare' | 'ignore'): boolean {
  if (ownership === 'compare' && (before.uid !== after.uid || before.gid !== after.gid)) {
    return false;
  }
  return after.type === 'symlink' || (before.mode === after.mode && sameXattrs(before, after));
}

/** Whether both sides have the same type and content; of two absences, yes. */
export function isSameThing(a: LayerFacts | undefined, b: LayerFacts | undefined): boolean {
  return a === undefined || b === undefined ? a === b : a.type === b.type && sameContent(a, b);
}

/** The kind of a change, or undefined when both sides are alike. mtime alone is no change. */
export function kindOf(before: LayerFacts | undefined, after: LayerFacts | undefined, ownership: 'compare' | 'ignore'): ChangeKind | undefined {
  if (after === undefined) {
    return before === undefined ? undefined : 'deleted';
  }
  if (before === undefined) {
    return 'added';
  }
  if (before.type !== after.type) {
    return 'type_changed';
  }
  if (!sameContent(before, after)) {
    return 'modified';
  }
  return sameAttributes(before, after, ownership) ? undefined : 'attributes';
}

/** Why an entry of the layer can't be carried over, in words. */
export function unappliableReason(before: LayerFacts | undefined, after: LayerFacts | undefined): string | undefined {
  if (after?.tooDeep === true || before?.tooDeep === true) return 'what lies below is too deep and was not read';
  if (after === undefined) return undefined;
  if (after.type === 'block' || after.type === 'char') return 'device node';
  if (after.type === 'socket') return 'socket';
  if (after.type === 'file' && (after.mode & 0o6000) !== 0) return (after.mode & 0o4000) !== 0 ? 'setuid bit' : 'setgid bit';
  const capability = (facts: LayerFacts | undefined) => facts?.xattrs.find((x) => x.name === 'security.capability')?.value.toString('hex');
  if (capability(after) !== undefined && capability(after) !== capability(before)) return 'file capabilities';
  if (after.tooLarge) return 'larger than the limit for a staged file';
  if (after.unreadable) return 'not readable in the stage';
  if (after.unstable) return 'its content changed while it was read, or is no longer there';
  return undefined;
}

function publicFacts(facts: LayerFacts): EntryFacts {
  const target = facts.target === undefined ? undefined : textOf(facts.target);
  return {
    type: facts.type,
    size: facts.size,
    mode: facts.mode,
    uid: facts.uid,
    gid: facts.gid,
    ...(facts.sha256 === undefined ? {} : { sha256: facts.sha256 }),
    ...(facts.target === undefined
      ? {}
      : target === undefined
        ? { target: encodePath(facts.target, 'base64'), targetEncoding: 'base64' as const }
        : { target }),
  };
}

function linesOf(facts: LayerFacts | undefined): number {
  return facts?.sha256 === undefined ? 0 : facts.lines + (facts.endsOpen ? 1 : 0);
}

/** Line counts as far as they follow from one side alone; a modified text is left for the diff. */
function countLines(kind: ChangeKind, before: LayerFacts | undefined, after: LayerFacts | undefined): { added: number | null; removed: number | null } {
  if (before?.type !== 'file' && after?.type !== 'file') return { added: null, removed: null };
  if (before?.hasNul === true || after?.hasNul === true) return { added: null, removed: null };
  if (kind === 'attributes' || (before?.sha256 !== undefined && before.sha256 === after?.sha256)) return { added: 0, removed: 0 };
  if (before?.type === 'file' && after?.type === 'file') return { added: null, removed: null };
  return { added: linesOf(after), removed: linesOf(before) };
}

/** Where the job has a single id, an owner that differs comes from the layer and not from the job: the file's own stays. */
function ownerOf(before: LayerFacts | undefined, after: LayerFacts, ownership: 'compare' | 'ignore'): { readonly uid: number; readonly gid: number } {
  return ownership === 'ignore' && before !== undefined ? { uid: before.uid, gid: before.gid } : { uid: after.uid, gid: after.gid };
}

interface Draft {
  readonly path: BytePath;
  readonly from: BytePath | undefined;
  readonly kind: ChangeKind;
  readonly before: LayerFacts | undefined;
  readonly after: LayerFacts | undefined;
  readonly source: BytePath | undefined;
  readonly conflict: string | undefined;
}

/** Deleted files that are alike, to be taken once each. */
interface Vanished {
  readonly byName: Map<string, Draft[]>;
  readonly inOrder: Draft[];
  next: number;
}

/** What makes a file of the tree and one of the layer the same: its identity where the overlay recorded it, else its content. */
const SAME_FILE: readonly ((facts: LayerFacts) => string | undefined)[] = [(facts) => facts.identity, (facts) => (facts.size > 0 ? facts.sha256 : undefined)];

/** Pairs each added file with a deleted one that is the same: by identity, then by content; the same name first, else the first in order. */
function joinRenames(drafts: readonly Draft[]): Draft[] {
  return SAME_FILE.reduce<Draft[]>(pairRenames, [...drafts]);
}

function pairRenames(drafts: Draft[], keyOf: (facts: LayerFacts) => string | undefined): Draft[] {
  const gone = new Map<string, Vanished>();
  for (const draft of drafts) {
    const key = draft.kind === 'deleted' && draft.before?.type === 'file' ? keyOf(draft.before) : undefined;
    if (key === undefined) continue;
    const vanished = gone.get(key) ?? { byName: new Map<string, Draft[]>(), inOrder: [], next: 0 };
    gone.set(key, vanished);
    vanished.inOrder.push(draft);
    const name = nameOf(draft.path);
    const sameName = vanished.byName.get(name);
    if (sameName === undefined) vanished.byName.set(name, [draft]);
    else sameName.push(draft);
  }
  if (gone.size === 0) return drafts;
  const taken = new Set<Draft>();
  const renamed = new Map<Draft, Draft>();
  const join = (draft: Draft, old: Draft): void => {
    taken.add(old);
    renamed.set(draft, { ...draft, kind: 'renamed', from: old.path, before: old.before, conflict: draft.conflict ?? old.conflict });
  };
  const arrived = drafts.flatMap((draft) => {
    const key = draft.kind === 'added' && draft.after?.type === 'file' ? keyOf(draft.after) : undefined;
    const vanished = key === undefined ? undefined : gone.get(key);
    return vanished === undefined ? [] : [{ draft, vanished }];
  });
  // Two passes, so that a file of another name never takes the one that only moved to another directory.
  for (const { draft, vanished } of arrived) {
    const old = vanished.byName.get(nameOf(draft.path))?.shift();
    if (old !== undefined) join(draft, old);
  }
  for (const { draft, vanished } of arrived) {
    if (renamed.has(draft)) continue;
    let old = vanished.inOrder[vanished.next];
    while (old !== undefined && taken.has(old)) old = vanished.inOrder[++vanished.next];
    if (old !== undefined) join(draft, old);
  }
  return drafts.filter((draft) => !taken.has(draft)).map((draft) => renamed.get(draft) ?? draft);
}

/** A directory that goes away can't go while something below it is in conflict. */
function spreadConflicts(drafts: readonly Draft[]): Draft[] {
  const below = new Map<BytePath, BytePath>();
  for (const draft of drafts) {
    if (draft.conflict === undefined) continue;
    for (const path of draft.from === undefined ? [draft.path] : [draft.path, draft.from]) {
      // Who has a reason already has given it to all above.
      for (let above = parentOf(path); above !== '' && !below.has(above); above = parentOf(above)) below.set(above, path);
    }
  }
  return drafts.map((draft) => {
    const reason = draft.before?.type === 'directory' && draft.after?.type !== 'directory' ? below.get(draft.path) : undefined;
    return draft.conflict === undefined && reason !== undefined ? { ...draft, conflict: `${safeText(bytesOf(reason))} below it is in conflict` } : draft;
  });
}

function layerFile(facts: LayerFacts): string {
  return `${facts.dev}:${facts.ino}`;
}

/** Files of the tree that have other names in the layer and no change of their own, by the layer's file: what the job linked to. */
function unchangedNames(
  entries: readonly MergedEntry[],
  drafts: readonly Draft[],
  ownership: 'compare' | 'ignore',
): Map<string, { readonly path: BytePath; readonly facts: LayerFacts }> {
  const found = new Map<string, { readonly path: BytePath; readonly facts: LayerFacts }>();
  const changed = new Set(drafts.flatMap((draft) => (draft.from === undefined ? [draft.path] : [draft.path, draft.from])));
  for (const { path, before, after, source } of entries) {
    if (source !== undefined || after?.type !== 'file' || after.nlink < 2 || before?.type !== 'file' || changed.has(path)) continue;
    // One that was applied before may have been changed here since.
    if (kindOf(before, after, ownership) !== undefined) continue;
    if (!found.has(layerFile(after))) found.set(layerFile(after), { path, facts: before });
  }
  return found;
}

/** Whether two files that are alike became one: the first name of it that is met stays as it is. */
function isRelinked(anchors: Map<string, LayerFacts>, before: LayerFacts | undefined, after: LayerFacts | undefined): boolean {
  if (before?.type !== 'file' || after?.type !== 'file' || after.nlink < 2) return false;
  const anchor = anchors.get(layerFile(after));
  if (anchor === undefined) anchors.set(layerFile(after), before);
  return anchor !== undefined && layerFile(anchor) !== layerFile(before);
}

/** Directories with a change directly in them. */
function impliedDirectories(drafts: readonly Draft[]): Set<BytePath> {
  const implied = new Set<BytePath>();
  for (const draft of drafts) {
    implied.add(parentOf(draft.path));
    if (draft.from !== undefined) implied.add(parentOf(draft.from));
  }
  return implied;
}

/**
 * The exact changes of one staged root, in order of path. Pure: everything that was read is in the input. Line counts
 * of modified texts are null; the host part fills them in.
 */
export function buildChanges(input: ChangeSetInput): StagedEntry[] {
  const now = new Map<BytePath, LayerFacts | undefined>();
  const links = new Map<BytePath, BytePath>();
  for (const entry of input.entries) {
    now.set(entry.path, entry.before);
    const target = entry.after === undefined ? undefined : entry.after.target;
    if (target !== undefined) links.set(entry.path, target);
  }
  const own: Generation = { run: undefined, preimage: input.preimage, hidden: input.hidden, index: input.index, clockFellBack: input.clockFellBack };
  const check = checkGenerations([own, ...(input.earlier ?? [])], { applied: input.applied, restored: input.restored, now: (path) => now.get(path) });

  const judge = input.judge ?? check.conflictAt;

  const anchors = new Map<string, LayerFacts>();
  const drafts: Draft[] = [];
  for (const entry of input.entries) {
    const { before, source } = entry;
    const path = entry.path === '' ? ROOT_PATH : entry.path;
    if (input.applied.has(path)) continue;
    if (path === ROOT_PATH) {
      if (before === undefined || kindOf(before, entry.after, input.ownership) !== 'attributes') continue;
      drafts.push({
        path,
        from: undefined,
        kind: 'attributes',
        before,
        after: entry.after,
        source: undefined,
        conflict: input.judge === undefined ? check.conflictAtRoot(before) : input.judge('' as BytePath, before, true),
      });
      continue;
    }
    // What shows through from a moved directory but was hidden was never in the job's view.
    const after = source !== undefined && check.isHidden(source) ? undefined : entry.after;
    const kind = kindOf(before, after, input.ownership) ?? (source === undefined && isRelinked(anchors, before, after) ? 'attributes' : undefined);
    if (kind === undefined) continue;
    drafts.push({ path, from: undefined, kind, before, after, source, conflict: judge(path, before, kind === 'attributes') });
  }
  const finished = spreadConflicts(joinRenames(drafts));
  const unchanged = unchangedNames(input.entries, finished, input.ownership);
  const implied = impliedDirectories(finished);

  return finished.map((draft) => {
    const { path, from, kind, before, after } = draft;
    const encoding = encodingOf(from === undefined ? [path] : [path, from]);
    const executes = input.executes(lossyTextOf(path)) ?? (from === undefined ? undefined : input.executes(lossyTextOf(from)));
    const unappliable = unappliableReason(before, after);
    const lines = countLines(kind, before, after);
    const leaves = after?.target !== undefined && leavesRoot(path, after.target, input.rootPath, (at) => links.get(at));
    const isImplied =
      (kind === 'added' || kind === 'deleted') &&
      (after ?? before)?.type === 'directory' &&
      implied.has(path) &&
      draft.conflict === undefined &&
      unappliable === undefined;
    const change: Change = {
      root: input.root,
      path: encodePath(path, encoding),
      encoding,
      kind,
      ...(before === undefined ? {} : { before: publicFacts(before) }),
      ...(after === undefined ? {} : { after: { ...publicFacts(after), ...ownerOf(before, after, input.ownership) } }),
      ...(from === undefined ? {} : { from: encodePath(from, encoding) }),
      binary: before?.hasNul === true || after?.hasNul === true,
      addedLines: lines.added,
      removedLines: lines.removed,
      ...(executes === undefined ? {} : { executes }),
      ...(unappliable === undefined ? {} : { unappliable }),
      ...(leaves ? { leavesRoot: true } : {}),
      ...(draft.conflict === undefined
        ? {}
        : {
            conflict: {
              reason: draft.conflict,
              stagedSha256: after?.sha256 ?? null,
              hereSha256: before?.sha256 ?? null,
              stagedTimeMs: after === undefined ? null : momentMs(after.mtime),
              hereTimeMs: before === undefined ? null : momentMs(before.mtime),
            },
          }),
      ...(isImplied ? { implied: true } : {}),
    };
    const linkTo = after === undefined ? undefined : unchanged.get(layerFile(after));
    if (linkTo === undefined) return { change, path, from, before, after, source: draft.source };
    return { change, path, from, before, after: linkTo.facts, source: undefined, linkTo: linkTo.path };
  });
}
