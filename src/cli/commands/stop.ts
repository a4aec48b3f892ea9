import { askOwner, waitForRun } from '../../runner/wait-run.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openRuns } from '../open-runs.host.ts';
import { jsonLine, runJson } from '../report/json.ts';
import { endingWords } from '../report/words.ts';

/** Time for the command to end after SIGTERM, in milliseconds, when --timeout gives none. */
const GRACE_MS = 10_000;

/** SIGTERM to the command, then the end of the whole tree. Returns when the run is over. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const runs = await openRuns(context);
  try {
    const found = runs.find(args.words[0]);
    await askOwner(runs.runner.parts, found.id, { op: 'stop', graceMs: args.flags.timeout ?? GRACE_MS });
    const ended = await waitForRun(runs.runner.parts, found.id);
    context.stdout.write(args.flags.json === true ? jsonLine(runJson(ended)) : `${ended.id}: ${endingWords(ended.ending)}\n`);
    return 0;
  } finally {
    runs.close();
  }
}
