import type { BundleLineage } from '../core/bundle.ts';
import type { Store } from '../store/index.ts';
import type { StartingPoint } from './starting-point.host.ts';

/** Most that a bundle names; a workspace with more has other worries. */
const MOST = 50;

/** Runs of a workspace whose staged changes were neither applied nor dropped, and that a new run doesn't see. Newest first. */
export function unseenStages(store: Store, workspace: string, from?: StartingPoint): readonly string[] {
  const seen = new Set(from === undefined ? [] : [from.lineage.parent, ...from.roots.flatMap((root) => (root.earlier ?? []).map((one) => one.run))]);
  return store
    .listRuns({ workspace, stageStates: ['staged', 'partly_applied'], limit: MOST + seen.size })
    .map((run) => run.id)
    .filter((id) => !seen.has(id))
    .slice(0, MOST);
}

/** The lineage of a run as its bundle states it. */
export function bundleLineage(from: StartingPoint | undefined, unseen: readonly string[]): BundleLineage {
  const lineage = from?.lineage;
  return {
    on: lineage?.kind === 'on' ? lineage.parent : null,
    forkedFrom: lineage?.kind === 'fork' ? lineage.parent : null,
    ...(lineage === undefined || lineage.checkpoint === null ? {} : { checkpoint: lineage.checkpoint }),
    unseenStages: unseen,
  };
}
