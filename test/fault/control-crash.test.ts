import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { openRuntime } from '../../src/runtime/runtime.host.ts';
import { openStore } from '../../src/store/index.ts';
import { removeControlProgram, startControlProcess } from '../support/control-process.host.ts';
import { brokenInvariants, finishAll, readWorld, work } from '../support/control-work.host.ts';
import { temporaryDirectories } from '../support/temporary.ts';

const directory = temporaryDirectories();
afterAll(removeControlProgram);

/** Goes on with what a killed process left, and gives what doesn't hold then. */
async function recovered(base: string): Promise<readonly string[]> {
  const store = openStore(join(base, 'state'), Date.now);
  const runtime = openRuntime({ store, closeMs: 100 });
  const world = join(base, 'world');
  await finishAll(
    store,
    runtime,
    work(world, async () => undefined),
  );
  await runtime.close();
  const broken = brokenInvariants(store, readWorld(world));
  store.close();
  return broken;
}

/** Every moment by `npm run soak`; here every third one, since each costs a process. */
const STRIDE = process.env['PROOFRUN_SOAK_SECONDS'] === undefined ? 3 : 1;

/** Kills a process at its moments in turn, until it gets to its end. Number of the last moment at which it was killed. */
async function killEverywhere(task: 'run' | 'resume', prepare: (base: string) => Promise<void>): Promise<number> {
  for (let at = 1; ; at += 3 * STRIDE) {
    const batch = await Promise.all(
      [at, at + STRIDE, at + 2 * STRIDE].map(async (moment) => {
        const base = directory();
        await prepare(base);
        const ended = await startControlProcess(task, join(base, 'state'), join(base, 'world'), String(moment)).ended;
        const killed = ended.signal === 'SIGKILL';
        if (!killed && ended.code !== 0) throw new Error(`moment ${moment}: ${ended.stderr}`);
        return { moment, killed, broken: await recovered(base) };
      }),
    );
    for (const { moment, broken } of batch) expect(broken, `killed at moment ${moment}`).toEqual([]);
    const end = batch.find(({ killed }) => !killed);
    if (end !== undefined) return end.moment - STRIDE;
  }
}

describe('a process that is killed', () => {
  test('at every write and every await of a run, inside dispatches and executions too: the invariants hold', { timeout: 600_000 }, async () => {
    expect(await killEverywhere('run', async () => undefined)).toBeGreaterThan(60);
  });

  test.each([
    // Moments of the first process: see the order in work() and in the store.
    ['inside a side effect', 'write after'],
    ['inside a dispatch', 'model after'],
  ])('at every write and every await of the resumption after a death %s', { timeout: 600_000 }, async (_what, where) => {
    const template = directory();
    const first = await momentOf(where);
    const ended = await startControlProcess('run', join(template, 'state'), join(template, 'world'), String(first)).ended;
    expect(ended.signal).toBe('SIGKILL');
    const moments = await killEverywhere('resume', async (base) => {
      cpSync(template, base, { recursive: true });
    });
    expect(moments).toBeGreaterThan(3);
  });
});

/** The moment at which a run is in a place: counted in this process, with the same hooks. */
async function momentOf(where: string): Promise<number> {
  const base = directory();
  let points = 0;
  let found = 0;
  const store = openStore(join(base, 'state'), Date.now, {
    announce: (at) => {
      if (at !== 'waiting') points += 1;
    },
  });
  const runtime = openRuntime({
    store,
    at: async () => {
      points += 1;
    },
  });
  const open = await runtime.start(
    work(join(base, 'world'), async (what) => {
      points += 1;
      if (found === 0 && what === where) found = points;
    }),
  );
  await open.drive();
  await runtime.close();
  store.close();
  return found;
}
