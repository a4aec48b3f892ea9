import type { StoredCheckpoint } from '../store/index.ts';
import type { ParsedArgs } from './command.ts';
import type { CliContext } from './context.ts';
import { openRuns, type OpenRuns } from './open-runs.host.ts';

/** Opens the store, finds the checkpoint that the first word names (`last` without one), and closes the store when `use` is done. */
export async function withCheckpoint(
  args: ParsedArgs,
  context: CliContext,
  use: (runs: OpenRuns, found: StoredCheckpoint) => Promise<void> | void,
): Promise<number> {
  const runs = await openRuns(context);
  try {
    await use(runs, runs.runner.parts.store.findCheckpoint(args.words[0] ?? 'last', runs.workspace()));
    return 0;
  } finally {
    runs.close();
  }
}
