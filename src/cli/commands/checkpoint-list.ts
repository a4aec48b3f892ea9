import { toSnake } from '../../core/case.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openRuns } from '../open-runs.host.ts';
import { checkpointList } from '../report/checkpoint.ts';
import { jsonLine } from '../report/json.ts';
import { paletteFor } from '../report/palette.ts';

/** Checkpoints of this workspace, newest first, or of all. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const { flags } = args;
  const runs = await openRuns(context, flags.workspace);
  try {
    const everywhere = flags.all === true && flags.workspace === undefined;
    const found = runs.runner.parts.store.listCheckpoints(everywhere ? {} : { workspace: runs.workspace() });
    context.stdout.write(
      flags.json === true ? jsonLine(toSnake(found)) : checkpointList({ checkpoints: found, nowMs: context.clock(), palette: paletteFor(context, 'stdout') }),
    );
    return 0;
  } finally {
    runs.close();
  }
}
