import type { Store } from '../store/index.ts';

/** Most that a bundle names; a workspace with more has other worries. */
const MOST = 50;

/** Runs of a workspace whose staged changes were neither applied nor dropped, and that a new run doesn't see. Newest first. */
export function unseenStages(store: Store, workspace: string): readonly string[] {
  return store.listRuns({ workspace, stageStates: ['staged', 'partly_applied'], limit: MOST }).map((run) => run.id);
}
