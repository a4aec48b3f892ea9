import { locateShim } from '../../executors/shim/locate.host.ts';
import type { CallerFacts } from '../policy/prepare.host.ts';
import { findWorkspace } from '../policy/workspace.host.ts';
import { openRunner, type Runner } from '../runner/open-runner.host.ts';
import { reconcile } from '../runner/reconcile.host.ts';
import type { StoredRun } from '../store/index.ts';
import { callerFacts } from './caller.host.ts';
import type { CliContext } from './context.ts';
import { executorRegistry } from './executors.ts';

/** What a command about runs works with. */
export interface Opened {
  readonly runner: Runner;
  readonly caller: CallerFacts;
  /** The workspace in which the person stands, absolute real path: what `last` and names are looked up in. */
  readonly workspace: string;
  /** A run by what was typed; `last` without. ERR_RUN_NOT_FOUND, ERR_RUN_AMBIGUOUS. */
  readonly find: (selector: string | undefined) => StoredRun;
}

/** Opens the store, ends runs whose owner died, hands over, and closes. Every command about runs goes through here. */
export async function withRunner<T>(context: CliContext, body: (opened: Opened) => Promise<T>): Promise<T> {
  const caller = callerFacts(context);
  const runner = openRunner({ stateDirectory: caller.stateDirectory, executors: executorRegistry(), shim: () => locateShim(), clock: context.clock });
  try {
    for (const warning of runner.parts.store.warnings) context.stderr.write(`job: ${warning}\n`);
    await reconcile(runner.parts);
    const { workspace } = await findWorkspace({ currentDirectory: context.cwd });
    return await body({ runner, caller, workspace, find: (selector) => runner.parts.store.findRun(selector ?? 'last', workspace) });
  } finally {
    runner.close();
  }
}
