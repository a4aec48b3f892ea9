import { newRunId, type RunId } from '../../src/core/ids.ts';
import { currentOwner, type NewRun, type Store, type StoredRun } from '../../src/store/index.ts';

/** A run that this process owns. */
export function sampleRun(more: Partial<NewRun> = {}): NewRun {
  return {
    id: newRunId(),
    name: null,
    workspace: '/home/ana/shop',
    mode: 'safe',
    executor: 'native',
    argv: ['npm', 'test'],
    plan: { version: 1 },
    state: { kind: 'recorded', lease: { owner: currentOwner(), expiresMs: 5_000 } },
    ...more,
  };
}

export function record(store: Store, more: Partial<NewRun> = {}): StoredRun {
  return store.recordRun(sampleRun(more), [{ kind: 'run.recorded' }]);
}

/** Leads a recorded run to its end, with something staged. */
export function finish(store: Store, id: RunId): StoredRun {
  return store.transition(id, {
    from: ['recorded'],
    to: 'finished',
    events: [{ kind: 'run.finished' }],
    fence: 1,
    fields: {
      ending: { kind: 'exit', code: 0 },
      stageState: 'staged',
      stagedSummary: SUMMARY,
      bundle: { path: `runs/${id}/run-bundle.json`, sha256: 'ab'.repeat(32) },
    },
  });
}

export const SUMMARY = { added: 4, modified: 2, deleted: 1, other: 0, conflicts: 0, addedLines: 118, removedLines: 37 };
