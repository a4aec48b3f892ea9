import type { BundleLineage } from '../core/bundle.ts';
import type { RunId } from '../core/ids.ts';
import type { Store } from '../store/index.ts';
import type { StartingPoint } from './starting-point.host.ts';

/** Most that a bundle names; a workspace with more has other worries. */
const MOST = 50;

/** Runs of a workspace whose staged changes were neither applied nor dropped, and that a new run doesn't see. Newest first. */
export function unseenStages(store: Store, workspace: string, from?: StartingPoint): readonly string[] {
  const seen = new Set(from === undefined ? [] : [from.lineage.parent, ...from.roots.flatMap((root) => (root.earlier ?? []).map((one) => one.run))]);
  const staged = store.listRuns({ workspace, stageStates: ['staged', 'partly_applied'], limit: MOST + seen.size }).filter((run) => !seen.has(run.id));
  if (staged.length === 0) return [];
  const carried = carriedOver(store, workspace);
  return staged
    .map((run) => run.id)
    .filter((id) => !carried.has(id))
    .slice(0, MOST);
}

/** Runs whose result the workspace has by the apply of a run that started from it. */
function carriedOver(store: Pick<Store, 'listRuns' | 'lineage'>, workspace: string): ReadonlySet<string> {
  const parents = new Map<string, string>(store.lineage().map((one) => [one.runId, one.parent]));
  const carried = new Set<string>();
  if (parents.size === 0) return carried;
  for (const { id } of store.listRuns({ workspace, stageStates: ['applied'] })) {
    for (let at = parents.get(id); at !== undefined && !carried.has(at); at = parents.get(at)) carried.add(at);
  }
  return carried;
}

/** Runs that a run builds on and whose own stage is still there, the nearest first. */
export function stagedAncestors(store: Pick<Store, 'readRun' | 'lineage'>, run: RunId): readonly RunId[] {
  const parents = new Map(store.lineage().map((one) => [one.runId, one.parent]));
  const found: RunId[] = [];
  const seen = new Set<RunId>();
  for (let at = parents.get(run); at !== undefined && !seen.has(at); at = parents.get(at)) {
    seen.add(at);
    const state = store.readRun(at)?.stageState;
    if (state === 'staged' || state === 'partly_applied') found.push(at);
  }
  return found;
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
