import Database from 'better-sqlite3';
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { Writable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { afterAll, describe, expect, it } from 'vitest';
import { currentOwner, livenessOf, openStore } from '../../src/store/index.ts';
import { parseStat } from '../../src/store/owner.host.ts';
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

  it('wait for each other while the store is new', async () => {
    const state = join(directory(), 'state');
    mkdirSync(state, { mode: 0o700 });
    writeFileSync(join(state, 'proofrun.db'), '', { mode: 0o600 });
    const holder = new Database(join(state, 'proofrun.db'));
    holder.exec('BEGIN IMMEDIATE');
    const other = startStoreProcess('open-announced', state);
    expect(await other.line()).toBe('waiting');
    holder.exec('COMMIT');
    expect(await other.line()).toBe('opened 0');
    await other.done();
    holder.close();
  });

  it('take a zombie for dead', async () => {
    // cat waits for nobody; the child ends only when the shell has become cat.
    const parent = spawn('sh', ['-c', '(read word <&3) & echo $!; exec cat'], { stdio: ['pipe', 'pipe', 'inherit', 'pipe'] });
    const { stdin, stdout } = parent;
    const release = parent.stdio[3];
    if (stdin === null || stdout === null || !(release instanceof Writable)) throw new Error('a pipe is missing');
    const lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
    const pid = Number((await lines.next()).value);
    stdin.write('echoed\n');
    expect((await lines.next()).value).toBe('echoed');
    release.end('\n');
    const stat = (): ReturnType<typeof parseStat> => parseStat(readFileSync(`/proc/${String(pid)}/stat`, 'utf8'));
    while (stat()?.state !== 'Z') await setImmediate();
    const owner = { ...currentOwner(), pid, startTicks: stat()?.startTicks ?? 0 };
    expect(livenessOf(owner)).toBe('dead');
    stdin.end();
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
