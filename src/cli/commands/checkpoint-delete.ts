import { deleteCheckpoint } from '../../runner/checkpoint.host.ts';
import { withCheckpoint } from '../checkpoint-word.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { jsonLine } from '../report/json.ts';

/** Removes a checkpoint for good. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  return await withCheckpoint(args, context, async (runs, found) => {
    await deleteCheckpoint(runs.runner.parts, found);
    context.stdout.write(args.flags.json === true ? jsonLine({ checkpoint: found.id, deleted: true }) : `${found.id}: deleted\n`);
  });
}
