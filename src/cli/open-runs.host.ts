import { locateShim } from '../../executors/shim/locate.host.ts';
import type { CallerFacts } from '../policy/prepare.host.ts';
import { findWorkspace } from '../policy/workspace.host.ts';
import { openRunner, type Runner } from '../runner/open-runner.host.ts';
import { hasPendingWork } from '../runner/pending-work.host.ts';
import type { StoredRun } from '../store/index.ts';
import { callerFacts } from './caller.host.ts';
import type { CliContext } from './context.ts';
import { executorRegistry } from './executors.host.ts';
import { announcedLoginPoints, announcedPoints } from './points.host.ts';

/** The store and the runner of one command. Close it. */
export interface OpenRuns {
  readonly runner: Runner;
  readonly caller: CallerFacts;
  /** The workspace of the current directory, or of `--workspace`: absolute real path. ERR_WORKSPACE. */
  workspace(): string;
  /** By selector; `last` without one. ERR_RUN_NOT_FOUND, ERR_RUN_AMBIGUOUS. */
  find(selector: string | undefined): StoredRun;
  /** Idempotent. */
  close(): void;
}

/**
 * Opens the store and first settles what processes that died left behind, saying so on stderr. `typedWorkspace`: of `--workspace`.
 * ERR_STORE_UNREADABLE, ERR_USAGE without a home.
 */
export async function openRuns(context: CliContext, typedWorkspace?: string): Promise<OpenRuns> {
  const caller = callerFacts(context);
  const at = announcedPoints();
  const atLogin = announcedLoginPoints();
  const runner = openRunner({
    stateDirectory: caller.stateDirectory,
    executors: executorRegistry(),
    shim: () => locateShim(),
    upstream: { env: caller.env },
    clock: context.clock,
    ...(at === undefined ? {} : { at }),
    ...(atLogin === undefined ? {} : { atLogin }),
  });
  try {
    for (const warning of runner.parts.store.warnings) context.stderr.write(`job: ${warning}\n`);
    if (hasPendingWork(runner.parts)) await settlePending(runner, context);
  } catch (error) {
    runner.close();
    throw error;
  }
  const workspace = (): string =>
    findWorkspace({ currentDirectory: caller.currentDirectory, ...(typedWorkspace === undefined ? {} : { workspace: typedWorkspace }) }).workspace;
  return {
    runner,
    caller,
    workspace,
    find: (selector) => runner.parts.store.findRun(selector ?? 'last', workspace()),
    close: runner.close,
  };
}

/** An apply that can't be settled is told; looking at runs goes on. */
async function settlePending(runner: Runner, context: CliContext): Promise<void> {
  const { reconcile } = await import('../runner/reconcile.host.ts');
  const settled = await reconcile(runner.parts);
  for (const { id, state, warnings } of settled.runs) {
    context.stderr.write(`job: the process of ${id} died; the run is ${state}\n`);
    for (const warning of warnings) context.stderr.write(`job: ${id}: ${warning}\n`);
  }
  for (const { runId, outcome } of settled.applies) {
    context.stderr.write(`job: an apply of ${runId} that was cut off was ${outcome === 'finished' ? 'finished' : 'put back'}\n`);
  }
  if (settled.unsettled === undefined) return;
  const { errorText } = await import('./report/error.ts');
  context.stderr.write(errorText(settled.unsettled));
}
