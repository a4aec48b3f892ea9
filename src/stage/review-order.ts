import type { Change, ChangeSet } from '../core/change.ts';
import { compareBytes, decodePath } from './byte-path.ts';

/**
 * What a reader has to see first: what the host would execute, conflicts and what can't be applied, links that leave
 * the root, deletions, type changes, binaries, the rest.
 */
export function reviewRank(change: Change): number {
  if (change.executes !== undefined) return 0;
  if (change.conflict !== undefined || change.unappliable !== undefined) return 1;
  if (change.leavesRoot === true) return 2;
  if (change.kind === 'deleted') return 3;
  if (change.kind === 'type_changed') return 4;
  if (change.binary) return 5;
  return 6;
}

/** Total order of changes in a review: rank, then root, then bytes of the path (given where the caller has them). */
export function compareForReview(a: Change, b: Change, pathOfA = decodePath(a.path, a.encoding), pathOfB = decodePath(b.path, b.encoding)): number {
  return reviewRank(a) - reviewRank(b) || a.root - b.root || compareBytes(pathOfA, pathOfB);
}

/** Totals of changes; directories that only come or go with their entries aren't counted. */
export function totalsOf(changes: readonly Change[]): ChangeSet['totals'] {
  const totals = { added: 0, modified: 0, deleted: 0, other: 0, conflicts: 0, addedLines: 0, removedLines: 0 };
  for (const change of changes) {
    if (change.conflict !== undefined) {
      totals.conflicts++;
    }
    if (change.implied === true) {
      continue;
    }
    if (change.kind === 'added') totals.added++;
    else if (change.kind === 'modified') totals.modified++;
    else if (change.kind === 'deleted') totals.deleted++;
    else totals.other++;
    totals.addedLines += change.addedLines ?? 0;
    totals.removedLines += change.removedLines ?? 0;
  }
  return totals;
}
