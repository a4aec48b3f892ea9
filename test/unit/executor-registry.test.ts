import { describe, expect, test } from 'vitest';
import { createHostExecutor, hostCapabilities } from '../../executors/host/index.ts';
import type { Executor } from '../../src/executor/executor.ts';
import { createRegistry, type ExecutorEntry } from '../../src/executor/registry.ts';

const host = createHostExecutor({ version: '1.2.3' });

/** An executor that counts how often it is asked. */
function counting(probe: Executor['probe'] = () => host.probe()): { readonly entry: ExecutorEntry; readonly counts: { loads: number; probes: number } } {
  const counts = { loads: 0, probes: 0 };
  const executor: Executor = {
    id: 'host',
    launch: (request) => host.launch(request),
    probe: () => {
      counts.probes += 1;
      return probe();
    },
  };
  const load = async (): Promise<Executor> => {
    counts.loads += 1;
    return executor;
  };
  return { entry: { id: 'host', load }, counts };
}

describe('registry', () => {
  test('loads nothing before it is asked, then loads and probes once', async () => {
    const { entry, counts } = counting();
    const registry = createRegistry([entry], 'user');
    expect([registry.ids, counts]).toEqual([['host'], { loads: 0, probes: 0 }]);
    const [first, all] = await Promise.all([registry.capabilities('host'), registry.all()]);
    expect(all).toEqual([first]);
    expect(first).toEqual(hostCapabilities(process.getuid?.() === 0 ? 'root' : 'user', '1.2.3'));
    await registry.executor('host');
    expect(counts).toEqual({ loads: 1, probes: 1 });
  });

  test('forgets when told', async () => {
    const { entry, counts } = counting();
    const registry = createRegistry([entry], 'user');
    await registry.all();
    registry.forget();
    await registry.all();
    expect(counts).toEqual({ loads: 2, probes: 2 });
  });

  test('keeps the reason of an executor whose code does not load, whose probe fails, or that is another', async () => {
    const broken: ExecutorEntry = { id: 'native', load: () => Promise.reject(new Error('no such module')) };
    const failing: ExecutorEntry = {
      id: 'host',
      load: async () => ({ id: 'host', launch: (request) => host.launch(request), probe: () => Promise.reject(new Error('probe broke')) }),
    };
    const other: ExecutorEntry = { id: 'docker', load: async () => host };
    const registry = createRegistry([broken, failing, other], 'root');
    expect((await registry.all()).map(({ executor, available, reason, user, controls }) => [executor, available, reason, user, controls])).toEqual([
      ['native', false, 'the native executor can not be loaded: no such module', 'root', []],
      ['host', false, 'probe broke', 'root', []],
      ['docker', false, 'the executor loaded as docker calls itself host', 'root', []],
    ]);
    await expect(registry.executor('native')).rejects.toMatchObject({ code: 'ERR_EXECUTOR_UNAVAILABLE' });
  });

  test('an id that nobody gave is an error that names the known ones; two of one id are refused', async () => {
    const { entry } = counting();
    const registry = createRegistry([entry], 'user');
    await expect(registry.executor('docker')).rejects.toMatchObject({
      code: 'ERR_EXECUTOR_UNAVAILABLE',
      message: 'no executor is called docker; there are host',
    });
    await expect(registry.capabilities('native')).rejects.toMatchObject({ code: 'ERR_EXECUTOR_UNAVAILABLE' });
    expect(() => createRegistry([entry, entry], 'user')).toThrow(RangeError);
  });
});
