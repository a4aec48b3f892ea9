import { VERSION } from '../core/version.ts';
import { createRegistry, type ExecutorRegistry } from '../executor/registry.ts';

/** The executors of this command line; each is loaded when it is first asked for. */
export function executorRegistry(): ExecutorRegistry {
  return createRegistry(
    [
      { id: 'native', load: async () => (await import('../../executors/native/index.ts')).createNativeExecutor({ version: VERSION }) },
      { id: 'docker', costly: true, load: async () => (await import('../../executors/docker/index.ts')).createDockerExecutor({ version: VERSION }) },
      { id: 'host', load: async () => (await import('../../executors/host/index.ts')).createHostExecutor({ version: VERSION }) },
    ],
    process.geteuid?.() === 0 ? 'root' : 'user',
  );
}
