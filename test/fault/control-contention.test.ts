import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { openRuntime } from '../../src/runtime/runtime.host.ts';
import { openStore } from '../../src/store/index.ts';
import { removeControlProgram, startControlProcess, type ControlProcess } from '../support/control-process.host.ts';
import { brokenInvariants, finishAll, readWorld, work } from '../support/control-work.host.ts';
import { temporaryDirectories } from '../support/temporary.ts';

const directory = temporaryDirectories();
afterAll(removeControlProgram);

/** `npm run soak` sets it to a minute. Seconds in all. */
const SECONDS = Number(process.env['PROOFRUN_SOAK_SECONDS'] ?? '6');
const SIZES = SECONDS >= 30 ? [2, 4, 8] : [3];

describe('processes that contend for one store, and are killed', () => {
  test.each(SIZES)('%i at once: nothing twice, nothing lost, nothing stuck', { timeout: SECONDS * 1000 + 120_000 }, async (size) => {
    const base = directory();
    const [state, world] = [join(base, 'state'), join(base, 'world')];
    const each = (SECONDS * 1000) / SIZES.length;
    const until = Date.now() + each;
    const faults: string[] = [];
    let kills = 0;
    const one = async (): Promise<void> => {
      while (Date.now() < until) {
        const started: ControlProcess = startControlProcess('contend', state, world, String(Math.max(1, until - Date.now())));
        await started.ready;
        // Most are killed somewhere in their work.
        const timer = setTimeout(
          () => {
            kills += 1;
            started.child.kill('SIGKILL');
          },
          200 + Math.random() * 2500,
        );
        const ended = await started.ended;
        clearTimeout(timer);
        if (ended.signal !== 'SIGKILL' && ended.code !== 0) faults.push(ended.stderr);
      }
    };
    await Promise.all(Array.from({ length: size }, one));
    expect(faults).toEqual([]);
    expect(kills).toBeGreaterThan(0);
    const store = openStore(state, Date.now);
    const runtime = openRuntime({ store, closeMs: 100 });
    await finishAll(
      store,
      runtime,
      work(world, async () => undefined),
    );
    await runtime.close();
    const runs = store.control.list();
    expect(runs.length).toBeGreaterThan(0);
    expect(brokenInvariants(store, readWorld(world))).toEqual([]);
    store.close();
  });
});
