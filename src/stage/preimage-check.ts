import { bytesOf, parentOf, type BytePath } from './byte-path.ts';
import { safeText } from '../core/text-safety.ts';
import { compareMoments, type LayerFacts, type Moment } from './entry-facts.ts';
import type { Preimage } from './preimage.ts';

/** What an apply of this run left at a path (see AppliedPath). */
export interface AppliedState {
  readonly state: 'present' | 'absent';
  readonly dev: bigint;
  readonly ino: bigint;
}

/** What a path has because an apply of ours was put back or taken back. `ino` 0: nothing is there. */
export interface RestoredState {
  readonly dev: bigint;
  readonly ino: bigint;
  readonly ctime: Moment;
}

export interface PreimageContext {
  readonly preimage: Preimage;
  /** Paths that the job could not see. */
  readonly hidden: readonly BytePath[];
  readonly applied: ReadonlyMap<BytePath, AppliedState>;
  readonly restored: ReadonlyMap<BytePath, RestoredState>;
  /** The wall clock was set back since T0: a ctime proves nothing. */
  readonly clockFellBack: boolean;
  /** What the tree has at a path now; asked for ancestors of changed paths only. */
  readonly now: (path: BytePath) => LayerFacts | undefined;
}

export interface PreimageCheck {
  /** Why the tree at this path isn't what it was when the run began, in words; undefined when it is. */
  conflictAt(path: BytePath, before: LayerFacts | undefined, attributesOnly: boolean): string | undefined;
  /** Why the root's own attributes aren't what they were. */
  conflictAtRoot(before: LayerFacts): string | undefined;
  isHidden(path: BytePath): boolean;
}

const SINCE = 'since the run began';

/**
 * Compares the tree as it is with the tree as the walk before the run saw it: presence and identity of the path and of
 * every directory above it, and ctime against T0. Pure.
 */
export function checkPreimage(context: PreimageContext): PreimageCheck {
  const { preimage, applied } = context;
  const hidden = new Set<string>(context.hidden);

  // Each path asks its parent's answer only: a chain of thousands of directories costs no more than their number.
  const hiddenKnown = new Map<BytePath, boolean>();
  const isHidden = (path: BytePath): boolean => {
    if (hidden.size === 0 || path === '') return false;
    const found = hiddenKnown.get(path) ?? (hidden.has(path) || isHidden(parentOf(path)));
    hiddenKnown.set(path, found);
    return found;
  };

  const identity = (path: BytePath, now: LayerFacts | undefined): string | undefined => {
    const back = context.restored.get(path);
    if (back !== undefined) {
      if (now === undefined) return back.ino === 0n ? undefined : `removed ${SINCE}`;
      if (back.ino === 0n) return `created ${SINCE}`;
      return back.dev === now.dev && back.ino === now.ino ? undefined : `replaced ${SINCE}`;
    }
    const done = applied.get(path);
    if (done !== undefined) {
      if (done.state === 'absent') {
        return now === undefined ? undefined : `created ${SINCE}`;
      }
      if (now === undefined) {
        return `removed ${SINCE}`;
      }
      return now.dev === done.dev && now.ino === done.ino ? undefined : `replaced ${SINCE}`;
    }
    const entry = preimage.entry(path);
    if (entry === undefined) {
      return now === undefined ? undefined : `created ${SINCE}`;
    }
    if (now === undefined) {
      return `removed ${SINCE}`;
    }
    if (entry.type !== undefined && entry.type !== now.type) {
      return `replaced ${SINCE}`;
    }
    const directory = entry.type === 'directory' ? preimage.directory(path) : undefined;
    if (directory !== undefined) {
      if (directory.ino === 0n) {
        return `replaced ${SINCE}`;
      }
      return directory.dev === now.dev && directory.ino === now.ino ? undefined : `replaced ${SINCE}`;
    }
    return !preimage.inodesComparable || entry.ino === now.ino ? undefined : `replaced ${SINCE}`;
  };

  const known = new Map<BytePath, string | undefined>();
  /** Why a directory, or one above it, isn't the one that it was. */
  const replacedAt = (path: BytePath): string | undefined => {
    if (path === '') return undefined;
    if (known.has(path)) return known.get(path);
    const above = replacedAt(parentOf(path));
    const now = above === undefined ? context.now(path) : undefined;
    const found = above === undefined ? identity(path, now) : undefined;
    const name = safeText(bytesOf(path));
    const reason =
      above ?? (found !== undefined ? `the directory ${name} was ${found}` : now?.unreadable === true ? `the directory ${name} can't be read` : undefined);
    known.set(path, reason);
    return reason;
  };

  // The ctime of a directory moves with every entry; its attributes were recorded instead.
  const attributesDiffer = (path: BytePath, before: LayerFacts): string | undefined => {
    const was = preimage.directory(path);
    const same = was?.mode === before.mode && was.uid === before.uid && was.gid === before.gid;
    return same ? undefined : `its attributes were changed ${SINCE}`;
  };

  const conflictAt = (path: BytePath, before: LayerFacts | undefined, attributesOnly: boolean): string | undefined => {
    if (before !== undefined && isHidden(path)) {
      return 'the job could not see what is here';
    }
    const replaced = replacedAt(parentOf(path));
    if (replaced !== undefined) {
      return replaced;
    }
    if (before?.unstable === true) {
      return 'it changed while it was read';
    }
    if (before?.mount === true) {
      return 'a filesystem is mounted here';
    }
    const differs = identity(path, before);
    if (differs !== undefined) {
      return differs;
    }
    if (before === undefined || applied.has(path)) {
      return undefined;
    }
    const restored = context.restored.get(path);
    if (before.type === 'directory') {
      // One that came back by us has the attributes that the run knew.
      if (restored !== undefined && compareMoments(restored.ctime, before.ctime) === 0) return undefined;
      return attributesOnly ? attributesDiffer(path, before) : undefined;
    }
    if (restored !== undefined && compareMoments(restored.ctime, before.ctime) === 0) {
      return undefined;
    }
    if (compareMoments(before.ctime, preimage.t0) >= 0) {
      return 'changed after the run began';
    }
    return context.clockFellBack ? `the clock was set back ${SINCE}, so its time proves nothing` : undefined;
  };
  return { conflictAt, conflictAtRoot: (before) => attributesDiffer('' as BytePath, before), isHidden };
}

/** Clocks read together on this machine. */
export interface ClockReading {
  readonly bootId: string;
  readonly realMinusBootNs: bigint;
  readonly realMs: number;
}

/**
 * True when the wall clock was set back since the walk. REALTIME and BOOTTIME are slewed alike, so their difference
 * moves only when somebody sets the clock; after a reboot only a clock that is behind T0 shows.
 */
export function clockFellBack(preimage: Preimage, now: ClockReading): boolean {
  const toleranceNs = 2_000_000n;
  if (preimage.bootId !== '' && preimage.bootId === now.bootId) {
    return now.realMinusBootNs < preimage.realMinusBootNs - toleranceNs;
  }
  return now.realMs < preimage.t0.seconds * 1000;
}
