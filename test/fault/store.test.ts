import Database from 'better-sqlite3';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { sweepTemporaries } from '../../src/store/durable-file.host.ts';
import { openStore } from '../../src/store/index.ts';
import { removeStoreProgram, startStoreProcess } from '../support/store-process.host.ts';
import { record } from '../support/store-run.ts';
import { temporaryDirectories } from '../support/temporary.ts';

const directory = temporaryDirectories();
afterAll(removeStoreProgram);

/** Five writes of four points each; what the store has to hold when the process dies at each of them. */
const WRITES = ['nothing', 'recorded', 'running', 'finished', 'open batch', 'applied'] as const;
const POINTS = ['begin', 'rows', 'commit', 'committed'] as const;
const DEATHS = Array.from({ length: 20 }, (_, index) => {
  const point = POINTS[index % 4] ?? 'begin';
  const before = Math.floor(index / 4);
  return { number: index + 1, point, holds: WRITES[point === 'committed' ? before + 1 : before] ?? 'nothing' };
});

describe('SIGKILL in the middle of a write', () => {
  it.each(DEATHS)('point $number, $point: the store is sound and holds $holds', async ({ number, point, holds }) => {
    const state = join(directory(), 'state');
    const victim = startStoreProcess('die', state, String(number));
    expect(await victim.line()).toBe('ready');
    victim.go();
    expect(await victim.line()).toBe(`at ${point}`);
    await victim.kill();

    const store = openStore(state, Date.now);
    const [run] = store.listRuns();
    const batch = store.openApplies();
    expect(whatIs(run, batch.length)).toBe(holds);
    if (run !== undefined) {
      expect(store.checkChain(run.id)).toEqual({ ok: true });
      expect(store.reconcilable().map((orphan) => orphan.id)).toEqual(run.state === 'finished' ? [] : [run.id]);
    }
    // The lock died with the process.
    record(store, { workspace: '/next' });
    store.close();

    const db = new Database(join(state, 'proofrun.db'), { readonly: true });
    expect(db.pragma('integrity_check', { simple: true })).toBe('ok');
    expect(db.pragma('foreign_key_check')).toEqual([]);
    db.close();
  });
});

function whatIs(run: { readonly state: string; readonly stageState: string } | undefined, open: number): string {
  if (run === undefined) return 'nothing';
  if (run.state !== 'finished') return run.state;
  if (run.stageState === 'applied') return 'applied';
  return open === 1 ? 'open batch' : 'finished';
}

describe('SIGKILL in the middle of a durable file', () => {
  it.each([
    ['created', 'old content'],
    ['written', 'old content'],
    ['synced', 'old content'],
    ['renamed', 'new content'],
    ['durable', 'new content'],
  ])('at %s leaves the %s', async (point, content) => {
    const folder = directory();
    const file = join(folder, 'run-bundle.json');
    writeFileSync(file, 'old content');
    const victim = startStoreProcess('write-file', file, point);
    expect(await victim.line()).toBe('ready');
    victim.go();
    expect(await victim.line()).toBe(`at ${point}`);
    await victim.kill();
    expect(readFileSync(file, 'utf8')).toBe(content);
    expect(readdirSync(folder)).toHaveLength(content === 'old content' ? 2 : 1);
    sweepTemporaries(file);
    expect(readdirSync(folder)).toEqual(['run-bundle.json']);
  });
});
