import { joinBytes, nameOf, parentOf, compareBytes, type BytePath } from '../../../src/stage/byte-path.ts';
import type { Moment } from '../../../src/stage/entry-facts.ts';
import type { Manifest, ManifestEntry } from './manifest.ts';
import type { ReturnedEntry } from './tree-check.ts';

/** Where the content of a file that came back lies until the layer is built. */
export type KeptContent =
  /** In the file that gathers small contents. */
  | { readonly kind: 'part'; readonly offset: number; readonly size: number }
  /** In a file of its own, by number. */
  | { readonly kind: 'whole'; readonly number: number };

export interface LayerAttributes {
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtime: Moment;
  /** The same kind of thing was there before: its extended attributes, which don't travel, are taken from the tree. */
  readonly known: boolean;
}

/** One step of building the upper directory, in order; names are relative to the directory that is open. */
export type LayerStep =
  | { readonly kind: 'enter'; readonly name: BytePath; readonly attributes: LayerAttributes; readonly opaque: boolean }
  | { readonly kind: 'leave' }
  /** `keepAs`: also as this number, for further names of the same file. */
  | {
      readonly kind: 'part';
      readonly name: BytePath;
      readonly attributes: LayerAttributes;
      readonly offset: number;
      readonly size: number;
      readonly keepAs: number | undefined;
    }
  | { readonly kind: 'move'; readonly name: BytePath; readonly attributes: LayerAttributes; readonly number: number }
  /** As `move`, and the number stays. */
  | { readonly kind: 'link'; readonly name: BytePath; readonly attributes: LayerAttributes; readonly number: number }
  | { readonly kind: 'symlink'; readonly name: BytePath; readonly attributes: LayerAttributes; readonly target: BytePath }
  | { readonly kind: 'fifo'; readonly name: BytePath; readonly attributes: LayerAttributes }
  | { readonly kind: 'whiteout'; readonly name: BytePath }
  /** The last: attributes of the upper directory itself. */
  | { readonly kind: 'root'; readonly attributes: LayerAttributes };

export interface LayerPlan {
  readonly steps: readonly LayerStep[];
  /** What came back and isn't staged, with the reason. */
  readonly leftOut: readonly { readonly path: BytePath; readonly why: string }[];
}

export interface LayerPlanInput {
  readonly sent: Manifest;
  readonly returned: ReadonlyMap<BytePath, ReturnedEntry>;
  /** Content of a file that came back; undefined: it is the one that was sent. */
  readonly content: (path: BytePath) => KeptContent | undefined;
  /** sha256 of a file that came back. */
  readonly sha256: (path: BytePath) => string;
  /** Whether owners count (see differs). */
  readonly compareOwners: boolean;
  /** Numbers from here on are free. */
  readonly nextNumber: number;
}

/**
 * Whether something that came back isn't what was sent. A time alone is no difference. Owners count only where they can be kept: an
 * ordinary user's files all have one owner.
 */
export function differs(sent: ManifestEntry | undefined, now: ReturnedEntry, sha256: string, compareOwners: boolean): boolean {
  if (sent === undefined || now.type === 'device' || sent.type !== now.type) return true;
  if (compareOwners && (sent.uid !== now.uid || sent.gid !== now.gid)) return true;
  switch (now.type) {
    case 'symlink':
      return sent.target !== now.target;
    case 'file':
      return sent.mode !== now.mode || sent.size !== now.size || sent.sha256 !== sha256;
    case 'directory':
    case 'fifo':
      return sent.mode !== now.mode;
  }
}

/** Names by directory. */
function children(paths: Iterable<BytePath>): Map<BytePath, BytePath[]> {
  const found = new Map<BytePath, BytePath[]>();
  for (const path of paths) {
    if (path === '') continue;
    const parent = parentOf(path);
    const names = found.get(parent);
    if (names === undefined) found.set(parent, [nameOf(path)]);
    else names.push(nameOf(path));
  }
  return found;
}

/**
 * The upper directory that an overlay over the tree as it was sent would hold had the job worked in it: what is new or differs, whiteouts
 * for what is gone, opaque directories where there was none, and the directories above each of them. Pure.
 */
export function planLayer(input: LayerPlanInput): LayerPlan {
  const { sent, returned, compareOwners } = input;
  const nowIn = children(returned.keys());
  const sentIn = children(sent.entries.keys());
  const steps: LayerStep[] = [];
  const leftOut: { path: BytePath; why: string }[] = [];
  const groups = groupsOf(returned);
  const numbers = new Map<BytePath, number>();
  let nextNumber = input.nextNumber;

  const attributesOf = (now: ReturnedEntry, before: ManifestEntry | undefined): LayerAttributes => {
    const { mode, uid, gid } = now;
    const known = before?.type === now.type;
    // Engines send whole seconds.
    const mtime = known && now.mtime.nanoseconds === 0 && before.mtime.seconds === now.mtime.seconds ? before.mtime : now.mtime;
    return { mode, uid, gid, mtime, known };
  };

  const file = (path: BytePath, now: ReturnedEntry, attributes: LayerAttributes): void => {
    const name = nameOf(path);
    const first = now.linkOf ?? path;
    const number = numbers.get(first);
    if (number !== undefined) {
      steps.push({ kind: 'link', name, attributes, number });
      return;
    }
    const content = input.content(first);
    if (content === undefined) {
      leftOut.push({ path, why: 'it is a new name of a file that is no longer here as it was sent' });
      return;
    }
    const more = groups.has(first);
    if (content.kind === 'part') {
      const keepAs = more ? nextNumber++ : undefined;
      if (keepAs !== undefined) numbers.set(first, keepAs);
      steps.push({ kind: 'part', name, attributes, offset: content.offset, size: content.size, keepAs });
    } else {
      if (more) numbers.set(first, content.number);
      steps.push({ kind: more ? 'link' : 'move', name, attributes, number: content.number });
    }
  };

  const visit = (path: BytePath, now: ReturnedEntry): void => {
    const before = sent.entries.get(path);
    const missing = before === undefined ? sent.leftOut.get(path) : undefined;
    if (missing !== undefined) {
      leftOut.push({ path, why: `what is here was not sent (${missing}), so it can't be replaced` });
      return;
    }
    const attributes = attributesOf(now, before);
    const name = nameOf(path);
    switch (now.type) {
      case 'device':
        leftOut.push({ path, why: 'a device' });
        return;
      case 'symlink':
        if (differs(before, now, '', compareOwners)) steps.push({ kind: 'symlink', name, attributes, target: now.target });
        return;
      case 'fifo':
        if (differs(before, now, '', compareOwners)) steps.push({ kind: 'fifo', name, attributes });
        return;
      case 'file':
        if (differs(before, now, input.sha256(now.linkOf ?? path), compareOwners)) file(path, now, attributes);
        return;
      case 'directory': {
        const opaque = before?.type !== 'directory';
        const start = steps.push({ kind: 'enter', name, attributes, opaque });
        inside(path, opaque);
        if (steps.length > start || differs(before, now, '', compareOwners)) steps.push({ kind: 'leave' });
        else steps.pop();
        return;
      }
    }
  };

  const inside = (directory: BytePath, fresh: boolean): void => {
    const names = new Set(nowIn.get(directory));
    const gone = fresh ? [] : (sentIn.get(directory) ?? []).filter((name) => !names.has(name));
    for (const name of [...names, ...gone].sort(compareBytes)) {
      const path = joinBytes(directory, name);
      const now = returned.get(path);
      if (now === undefined) steps.push({ kind: 'whiteout', name });
      else visit(path, now);
    }
  };

  const root = returned.get('' as BytePath);
  if (root !== undefined) {
    inside('' as BytePath, false);
    steps.push({ kind: 'root', attributes: attributesOf(root, sent.entries.get('' as BytePath)) });
  }
  return { steps, leftOut };
}

/** First names of files that have more than one. */
function groupsOf(returned: ReadonlyMap<BytePath, ReturnedEntry>): Set<BytePath> {
  const found = new Set<BytePath>();
  for (const { linkOf } of returned.values()) if (linkOf !== undefined) found.add(linkOf);
  return found;
}
