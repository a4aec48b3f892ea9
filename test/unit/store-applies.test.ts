import Database from 'better-sqlite3';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { RunId } from '../../src/core/ids.ts';
import { currentOwner, openStore, type NewApply, type Store } from '../../src/store/index.ts';
import { finish, record } from '../support/store-run.ts';
import { containing } from '../support/matching.ts';
import { temporaryDirectories } from '../support/temporary.ts';

const directory = temporaryDirectories();
let store: Store;
let id: RunId;

beforeEach(() => {
  store = openStore(join(directory(), 'state'), () => 1_000);
  id = record(store).id;
  finish(store, id);
});
afterEach(() => {
  store.close();
});

function batch(more: Partial<NewApply> = {}): NewApply {
  return {
    runId: id,
    workspace: '/home/ana/shop',
    owner: currentOwner(),
    selection: { path: ['src'] },
    paths: [
      { root: 0, path: 'src/cart.ts', encoding: 'utf8', kind: 'modified', before: { sha256: 'a' }, after: { sha256: 'b' }, backup: null },
      { root: 0, path: 'src/tax.ts', encoding: 'utf8', kind: 'added', before: null, after: { sha256: 'c' }, backup: null },
    ],
    ...more,
  };
}

describe('batches', () => {
  it('are recorded before and closed after, with the stage state', () => {
    const apply = store.beginApply(batch());
    expect(store.openApplies()).toMatchObject([
      { id: apply, runId: id, state: 'open', startedMs: 1_000, endedMs: null, selection: { path: ['src'] }, result: null, owner: currentOwner() },
    ]);
    expect(store.appliedPaths(apply).map((path) => [path.path, path.state])).toEqual([
      ['src/cart.ts', 'planned'],
      ['src/tax.ts', 'planned'],
    ]);
    const run = store.finishApply(apply, {
      state: 'done',
      result: { applied: 2 },
      paths: [{ root: 0, path: 'src/cart.ts', encoding: 'utf8', state: 'applied', backup: 'undo/1' }],
      stage: { from: ['staged', 'partly_applied'], to: 'applied' },
    });
    expect(run.stageState).toBe('applied');
    expect(store.appliedPaths(apply)).toMatchObject([
      { path: 'src/cart.ts', state: 'applied', backup: 'undo/1', before: { sha256: 'a' } },
      { path: 'src/tax.ts', state: 'applied', backup: null, before: null },
    ]);
    expect(store.applies(id)).toMatchObject([{ id: apply, state: 'done', endedMs: 1_000, result: { applied: 2 } }]);
    expect(store.openApplies()).toEqual([]);
    expect(store.checkChain(id)).toEqual({ ok: true });
    expect(
      store
        .events(id)
        .slice(-2)
        .map((event) => event.kind),
    ).toEqual(['apply.started', 'apply.finished']);
  });

  it('exclude each other in one workspace', () => {
    store.beginApply(batch());
    expect(() => store.beginApply(batch())).toThrow(expect.objectContaining({ code: 'ERR_APPLY_LOCKED' }));
    store.beginApply(batch({ workspace: '/elsewhere' }));
    expect(store.openApplies('/elsewhere')).toHaveLength(1);
  });

  it('of a dead process have to be recovered first', () => {
    const apply = store.beginApply(batch({ owner: { ...currentOwner(), startTicks: 1 } }));
    expect(() => store.beginApply(batch())).toThrow(expect.objectContaining({ code: 'ERR_APPLY_INTERRUPTED', data: { apply } }));
    store.finishApply(apply, { state: 'rolled_back', result: null });
    expect(store.appliedPaths(apply).map((path) => path.state)).toEqual(['rolled_back', 'rolled_back']);
    expect(store.readRun(id)?.stageState).toBe('staged');
    store.beginApply(batch());
  });

  it('close once, and change nothing when the stage state does not fit', () => {
    const apply = store.beginApply(batch());
    expect(() => store.finishApply(apply, { state: 'done', result: null, stage: { from: ['partly_applied'], to: 'applied' } })).toThrow(
      expect.objectContaining({ code: 'ERR_RUN_STATE' }),
    );
    expect(store.openApplies()).toHaveLength(1);
    store.finishApply(apply, { state: 'done', result: null });
    expect(() => store.finishApply(apply, { state: 'failed', result: null })).toThrow(expect.objectContaining({ code: 'ERR_STORE_STALE' }));
  });

  it('are under the event chain', () => {
    const apply = store.beginApply(batch());
    store.finishApply(apply, { state: 'done', result: null });
    const db = new Database(store.file);
    db.exec("UPDATE applied_paths SET backup = 'elsewhere' WHERE path = 'src/tax.ts'");
    db.close();
    expect(store.checkChain(id)).toMatchObject({ ok: false, fact: containing(apply) });
  });
});
