import { toSnake } from '../../core/case.ts';
import { withCheckpoint } from '../checkpoint-word.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { checkpointText } from '../report/checkpoint.ts';
import { jsonLine } from '../report/json.ts';

/** A checkpoint, and the runs that were forked from it. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  return await withCheckpoint(args, context, (runs, found) => {
    const forks = runs.runner.parts.store
      .lineage()
      .filter((one) => one.checkpoint === found.id)
      .map((one) => one.runId);
    context.stdout.write(args.flags.json === true ? jsonLine(toSnake({ ...found, forks })) : checkpointText(found, forks));
  });
}
