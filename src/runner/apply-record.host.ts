import type { AppliedPath } from '../core/change.ts';
import { parseRunId, type RunId } from '../core/ids.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import type { StageState } from '../core/run.ts';
import type { ApplyBatch, ApplyRecord } from '../stage/index.ts';
import { currentOwner, livenessOf, type Store, type StoredApply, type StoredRun } from '../store/index.ts';
import { appliedPathsOf } from './staged-run.host.ts';

/** What the record of a batch says beside its paths. */
export interface BatchFacts {
  /** Id of the stage's own ledger. */
  readonly batch: string;
  readonly purpose: ApplyBatch['purpose'];
  /** Batch that it took back, else empty. */
  readonly undoes: string;
  readonly roots: readonly string[];
}

/** Facts of a stored batch; undefined for one that an earlier version wrote. */
export function batchFacts(apply: Pick<StoredApply, 'selection'>): BatchFacts | undefined {
  const { selection } = apply;
  if (typeof selection !== 'object' || selection === null || Array.isArray(selection)) return undefined;
  const { batch, purpose, undoes, roots } = selection as Readonly<Record<string, JsonValue>>;
  if (typeof batch !== 'string' || typeof undoes !== 'string' || !Array.isArray(roots)) return undefined;
  if (purpose !== 'apply' && purpose !== 'target' && purpose !== 'undo') return undefined;
  return { batch, purpose, undoes, roots: roots.filter((root): root is string => typeof root === 'string') };
}

/**
 * Keeps applies in the store: one transaction before anything is touched, one after. The same batch told again, after a crash, is known.
 * `selection`: what the person asked for.
 */
export function applyRecord(store: Store, selection: JsonObject): ApplyRecord {
  return {
    begin: (batch, planned) => {
      const run = runOf(store, batch);
      if (run === undefined) return;
      closeAbandoned(store, run.workspace);
      begin(store, run, batch, planned, selection);
    },
    end: (batch, outcome, touched) => {
      const run = runOf(store, batch);
      // A ledger of a run that was pruned meanwhile has nobody to tell.
      if (run === undefined) return;
      const known = store.applies(run.id).find((apply) => batchFacts(apply)?.batch === batch.id);
      if (known !== undefined && known.state !== 'open') return;
      if (known === undefined) closeAbandoned(store, run.workspace);
      const id = known?.id ?? begin(store, run, batch, touched, selection);
      const here = ownPaths(store, run.id, batch) ? latest(touched) : [];
      store.finishApply(id, {
        state: outcome,
        result: { paths: touched.length },
        paths: here.map((path) => ({
          root: path.root,
          path: path.path,
          encoding: path.encoding,
          state: outcome === 'done' ? ('applied' as const) : ('rolled_back' as const),
          backup: null,
          kind: path.state,
          after: identityJson(path),
        })),
      });
      if (outcome === 'done') restage(store, run.id, batch);
    },
  };
}

function runOf(store: Store, batch: ApplyBatch): StoredRun | undefined {
  const id = parseRunId(batch.runId);
  return id === undefined ? undefined : store.readRun(id);
}

/** Another directory is none of the run's roots: what was touched there says nothing of the workspace. */
function ownPaths(store: Store, id: RunId, batch: ApplyBatch): boolean {
  if (batch.purpose === 'target') return false;
  if (batch.purpose === 'apply') return true;
  return store.applies(id).every((apply) => {
    const facts = batchFacts(apply);
    return facts?.batch !== batch.undoes || facts.purpose !== 'target';
  });
}

function begin(store: Store, run: StoredRun, batch: ApplyBatch, planned: readonly AppliedPath[], selection: JsonObject): string {
  return store.beginApply({
    runId: run.id,
    workspace: run.workspace,
    owner: currentOwner(),
    selection: { ...selection, batch: batch.id, purpose: batch.purpose, undoes: batch.undoes, roots: batch.roots },
    // `planned`: no word on the path yet.
    paths: latest(planned).map((path) => ({
      root: path.root,
      path: path.path,
      encoding: path.encoding,
      kind: 'planned',
      before: null,
      after: null,
      backup: null,
    })),
  });
}

/** One word a path: the last. */
function latest(paths: readonly AppliedPath[]): readonly AppliedPath[] {
  return [...new Map(paths.map((path) => [`${path.root}\0${path.encoding}\0${path.path}`, path])).values()];
}

/** After an apply something is left, until the caller knows better; after an undo it depends on what other batches brought. */
function restage(store: Store, id: RunId, batch: ApplyBatch): void {
  if (!ownPaths(store, id, batch)) return;
  const run = store.readRun(id);
  if (run === undefined || run.stageState === 'dropped' || run.stageState === 'none') return;
  const stillApplied = batch.purpose === 'apply' || hasApplied(appliedPathsOf(store, run));
  const to: StageState = stillApplied ? 'partly_applied' : 'staged';
  if (run.stageState === to) return;
  store.setStageState(id, { from: [run.stageState], to, events: [{ kind: batch.purpose === 'undo' ? 'stage.undone' : 'stage.partly_applied' }] });
}

function hasApplied(paths: readonly AppliedPath[]): boolean {
  return latest(paths).some((path) => path.state !== 'restored');
}

/** A batch that a dying process opened and of which the stage has no ledger: nothing was touched. */
function closeAbandoned(store: Store, workspace: string): void {
  for (const open of store.openApplies(workspace)) {
    if (livenessOf(open.owner) === 'dead') store.finishApply(open.id, { state: 'failed', result: { reason: 'its process died' } });
  }
}

function identityJson(path: AppliedPath): JsonObject {
  return { dev: path.dev, ino: path.ino, ...(path.ctime === undefined ? {} : { ctime: path.ctime }) };
}
