import { undoRun } from '../../runner/undo-run.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openRuns } from '../open-runs.host.ts';
import { undoneJson, undoneText } from '../report/applied.ts';
import { jsonLine } from '../report/json.ts';
import { startProgress } from '../report/progress.ts';

/** Takes an apply back, all of it or nothing. Repeating it is no error. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const runs = await openRuns(context);
  const progress = startProgress('undoing', context, { json: args.flags.json === true });
  try {
    const found = runs.find(args.words[0]);
    const undone = await undoRun(runs.runner.parts, found, args.flags.batch, { onProgress: ({ done, total }) => progress.update(done, total) });
    progress.stop();
    context.stdout.write(args.flags.json === true ? jsonLine(undoneJson(undone)) : undoneText(undone, args.words[0] ?? 'last'));
    return 0;
  } finally {
    progress.stop();
    runs.close();
  }
}
