import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parseCgroupMounts } from '../../executors/native/cgroup-files.ts';
import { createNativeExecutor } from '../../executors/native/index.ts';
import type { Executor, LaunchRequest, Session } from '../../src/executor/executor.ts';
import type { ExecutorEntry } from '../../src/executor/registry.ts';
import type { NetworkListener } from '../../src/executor/network.ts';
import type { JobRequest } from '../../src/index.ts';
import { libraryLab } from '../support/library-lab.host.ts';

/** Far longer than the test waits: only the loss ends it. */
const COMMAND = ['sleep', '600'] as const;

interface Caught {
  session: Session | undefined;
  listeners: readonly NetworkListener[];
}

/** Native, with what a test takes away caught at the launch. */
function native(caught: Caught): ExecutorEntry {
  return {
    id: 'native',
    load: () => {
      const executor = createNativeExecutor({ version: 'test' });
      const caughtRequest = (request: LaunchRequest): LaunchRequest => {
        const { network } = request;
        if (network === undefined) return request;
        return {
          ...request,
          network: {
            open: (listeners) => {
              caught.listeners = listeners;
              return network.open(listeners);
            },
          },
        };
      };
      return Promise.resolve({
        id: executor.id,
        probe: () => executor.probe(),
        launch: async (request) => {
          caught.session = await executor.launch(caughtRequest(request));
          return caught.session;
        },
      } satisfies Executor);
    },
  };
}

async function runAndLose(job: Omit<JobRequest, 'argv'>, lose: (caught: Caught) => void) {
  const caught: Caught = { session: undefined, listeners: [] };
  const lab = await libraryLab({ executors: [native(caught)] });
  return lab.proofrun.run(
    { argv: [...COMMAND], mode: 'safe', ...job },
    {
      onReleased: () => {
        lose(caught);
      },
    },
  );
}

const commandOf = ({ session }: Caught): number => session?.hostPids.at(-1) ?? -1;
/** Where a controller's hierarchy is mounted. */
function hierarchyOf(controller: string): string {
  const mount = parseCgroupMounts(readFileSync('/proc/self/mountinfo', 'utf8')).find((one) => one.version === 2 || one.controllers.includes(controller));
  if (mount === undefined) throw new Error(`no hierarchy has ${controller}`);
  return mount.mountPoint;
}
const hasGroups = process.getuid?.() === 0;
const LOST = { state: 'failed', exitCode: 202, ending: { kind: 'control_lost' } };

test.skipIf(!hasGroups)('a command that is moved out of its control group is ended', async () => {
  const result = await runAndLose({ memoryBytes: 256 << 20 }, (caught) => {
    writeFileSync(join(hierarchyOf('memory'), 'cgroup.procs'), String(commandOf(caught)));
  });
  expect(result).toMatchObject(LOST);
  expect(result.ending).toHaveProperty('detail', expect.stringContaining('control group'));
});

test.skipIf(!hasGroups)('a limit that is raised from outside ends the command', async () => {
  const result = await runAndLose({ memoryBytes: 256 << 20 }, (caught) => {
    const membership = readFileSync(`/proc/${String(commandOf(caught))}/cgroup`, 'utf8');
    const own = membership
      .split('\n')
      .map((line) => line.split(':'))
      .find(([, controllers]) => controllers === '' || controllers?.split(',').includes('memory') === true);
    const directory = join(hierarchyOf('memory'), own?.[2] ?? '');
    for (const file of ['memory.memsw.limit_in_bytes', 'memory.limit_in_bytes', 'memory.max']) {
      try {
        writeFileSync(join(directory, file), String(1 << 30));
      } catch {
        // The other layout's.
      }
    }
  });
  expect(result).toMatchObject(LOST);
});

test('listeners of the job’s network that are closed end the command', async () => {
  const result = await runAndLose({ allowNet: ['allowed.test'] }, ({ listeners }) => {
    for (const listener of listeners) if (listener.kind === 'tcp') listener.server.close();
  });
  expect(result).toMatchObject(LOST);
  expect(result.ending).toHaveProperty('detail', expect.stringContaining('listeners'));
});

test('control arm: left alone, the command runs to its end', async () => {
  const lab = await libraryLab({ executors: [native({ session: undefined, listeners: [] })] });
  const result = await lab.proofrun.run({ argv: ['sleep', '3'], mode: 'safe', allowNet: ['allowed.test'], ...(hasGroups ? { memoryBytes: 256 << 20 } : {}) });
  expect(result).toMatchObject({ state: 'finished', exitCode: 0 });
});
