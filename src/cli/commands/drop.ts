import { dropRun } from '../../runner/apply-run.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openRuns } from '../open-runs.host.ts';
import { jsonLine } from '../report/json.ts';
import { stageWords } from '../report/status.ts';

/** Throws the staged changes of a run away. Repeating it is no error. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const runs = await openRuns(context);
  try {
    const found = runs.find(args.words[0]);
    const dropped = await dropRun(runs.runner.parts, found);
    context.stdout.write(args.flags.json === true ? jsonLine({ run: dropped.id, stage_state: dropped.stageState }) : `${dropped.id}: ${stageWords(dropped)}\n`);
    return 0;
  } finally {
    runs.close();
  }
}
