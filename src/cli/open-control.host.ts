import type { NewEvent } from '../store/index.ts';
import { openRuntime, type ControlRuntime } from '../runtime/runtime.host.ts';
import type { Decider } from '../runtime/decisions.host.ts';
import type { CliContext } from './context.ts';
import { openRuns, type OpenRuns } from './open-runs.host.ts';

/** The control runtime of one command, over the store of its runs. Close it. */
export interface OpenControlRuns {
  readonly runs: OpenRuns;
  readonly runtime: ControlRuntime;
  /** The id of an agent run by selector; `last` without one. ERR_RUN_NOT_FOUND, ERR_RUN_AMBIGUOUS. */
  find(selector: string | undefined): Promise<string>;
  close(): Promise<void>;
}

/** Opens the store and fires what is due: an expiry happens whether or not anybody asks for that run. */
export async function openControl(context: CliContext, onEvent?: (runId: string, event: NewEvent) => void): Promise<OpenControlRuns> {
  const runs = await openRuns(context);
  const { store } = runs.runner.parts;
  const runtime = openRuntime({ store, clock: context.clock, ...(onEvent === undefined ? {} : { onEvent }) });
  try {
    for (const { run, reason } of runtime.sweep()) context.stderr.write(`job: ${run}: ${reason.replaceAll('_', ' ')}\n`);
  } catch (error) {
    runs.close();
    throw error;
  }
  return {
    runs,
    runtime,
    find: async (selector) => store.control.find(selector ?? 'last', selector === undefined || selector === 'last' ? runs.workspace() : '').id,
    close: async () => {
      await runtime.close();
      runs.close();
    },
  };
}

/** Who decides: the process that opened the store, which is the store's owner alone. */
export function decider(via: string): Decider {
  return { uid: process.geteuid?.() ?? -1, pid: process.pid, via };
}
