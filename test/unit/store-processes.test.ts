import Database from 'better-sqlite3';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { openStore } from '../../src/store/index.ts';
import { removeStoreProgram, startStoreProcess } from '../support/store-process.host.ts';
import { finish, record } from '../support/store-run.ts';
import { temporaryDirectories } from '../support/temporary.ts';

const directory = temporaryDirectories();
afterAll(removeStoreProgram);

describe('several processes at once', () => {
  it('create one store together and lose nothing', async () => {
    const state = join(directory(), 'state');
    const processes = Array.from({ length: 6 }, () => startStoreProcess('record-many', state, '8'));
    for (const one of processes) expect(await one.line()).toBe('ready');
    for (const one of processes) one.go();
    await Promise.all(processes.map((one) => one.done()));
    const store = openStore(state, Date.now);
    const runs = store.listRuns();
    expect(runs).toHaveLength(48);
    for (const run of runs) expect([run.state, store.checkChain(run.id)]).toEqual(['finished', { ok: true }]);
    store.close();
    const db = new Database(join(state, 'proofrun.db'), { readonly: true });
    expect(db.pragma('integrity_check', { simple: true })).toBe('ok');
    db.close();
  });

  it('see one winner of a transition', async () => {
    const state = join(directory(), 'state');
    const store = openStore(state, Date.now);
    const { id } = record(store);
    const processes = Array.from({ length: 5 }, () => startStoreProcess('race', state, id));
    for (const one of processes) expect(await one.line()).toBe('ready');
    for (const one of processes) one.go();
    const words = await Promise.all(processes.map((one) => one.line()));
    await Promise.all(processes.map((one) => one.done()));
    expect(words.sort()).toEqual(['ERR_STORE_STALE', 'ERR_STORE_STALE', 'ERR_STORE_STALE', 'ERR_STORE_STALE', 'won']);
    expect(store.events(id)).toHaveLength(2);
    store.close();
  });

  it('see one winner of an apply, and its death', async () => {
    const state = join(directory(), 'state');
    const store = openStore(state, Date.now);
    const { id } = record(store);
    finish(store, id);
    const processes = Array.from({ length: 3 }, () => startStoreProcess('apply-race', state, id));
    for (const one of processes) expect(await one.line()).toBe('ready');
    for (const one of processes) one.go();
    const words = await Promise.all(processes.map((one) => one.line()));
    expect([...words].sort()).toEqual(['ERR_APPLY_LOCKED', 'ERR_APPLY_LOCKED', 'won']);
    await Promise.all(processes.map((one) => one.kill()));
    const apply = { runId: id, workspace: '/w', owner: { pid: 1, startTicks: 1, bootId: '', pidNamespace: '' }, selection: null, paths: [] };
    expect(() => store.beginApply(apply)).toThrow(expect.objectContaining({ code: 'ERR_APPLY_INTERRUPTED' }));
    store.close();
  });

  it('notice when an owner dies, and not before', async () => {
    const state = join(directory(), 'state');
    const owner = startStoreProcess('own', state);
    const id = await owner.line();
    const store = openStore(state, Date.now);
    expect(store.reconcilable()).toEqual([]);
    await owner.kill();
    expect(store.reconcilable().map((run) => run.id)).toEqual([id]);
    store.close();
  });
});
