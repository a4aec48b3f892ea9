import { ProofrunError } from '../../src/core/errors.ts';
import type { Executor } from '../../src/executor/executor.ts';
import { hostCapabilities } from './capabilities.ts';
import { dropPipe, openOutputPipes } from './pipes.host.ts';
import { offerProxy } from './proxy.host.ts';
import { HostSession } from './session.host.ts';

export interface HostExecutorOptions {
  /** Shown in the run's record; the package's version. */
  readonly version: string;
}

/**
 * Runs the command as the caller, in the workspace itself: no isolation, no stage. `--safe` and `--strict` refuse it
 * through its capabilities.
 */
export function createHostExecutor(options: HostExecutorOptions): Executor {
  return {
    id: 'host',
    probe: async () => hostCapabilities(process.getuid?.() === 0 ? 'root' : 'user', options.version),
    launch: async (request) => {
      if (request.abort?.aborted === true) throw new ProofrunError('ERR_LAUNCH', { message: 'the launch was aborted' });
      const { argv, permissions } = request.plan.job;
      const environment = Object.entries(permissions.credentials.environment).flat();
      if ([...argv, ...environment].some((text) => text.includes('\0'))) {
        throw new ProofrunError('ERR_LAUNCH', { message: 'execve: an argument or an environment variable holds a NUL byte' });
      }
      const pipes = request.io.kind === 'pipes' ? await openOutputPipes(request.scratch) : undefined;
      try {
        return new HostSession(request, pipes, await offerProxy(request));
      } catch (error) {
        for (const pipe of pipes ?? []) dropPipe(pipe);
        throw error;
      }
    },
  };
}
