import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { StagedRoot } from '../core/change.ts';

/**
 * Words for each root in which a changed file has other names that its layer doesn't hold: the overlay's index still knows some, since nobody
 * came to put them into the layer when the job ended (executors/shim/links.c). Such a name keeps its old content when the stage is applied.
 */
export function missingNames(roots: readonly Pick<StagedRoot, 'root' | 'work'>[]): string[] {
  return roots
    .filter(({ work }) => hasEntries(join(work, 'index')))
    .map(({ root }) => `${root}: a changed file has other names there, which are not in the stage: they keep their content`);
}

function hasEntries(directory: string): boolean {
  try {
    return readdirSync(directory).length > 0;
  } catch {
    return false; // an overlay without an index
  }
}
