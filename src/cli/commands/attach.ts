import { exitCodeOf } from '../../runner/exit-code.ts';
import { OUTPUT_STREAMS } from '../../runner/kept-output.host.ts';
import { followRun } from '../../runner/wait-run.host.ts';
import { ProofrunError } from '../../core/errors.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openRuns } from '../open-runs.host.ts';
import { ShownOutput } from '../shown-output.host.ts';
import { showKept } from './logs.ts';

/**
 * Follows the output of a live run, from its beginning, and exits with the command's code. A detached run has no input to attach to. Ctrl-C
 * leaves the run alone.
 */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const runs = await openRuns(context);
  try {
    const found = runs.find(args.words[0]);
    if (found.lease === null) throw new ProofrunError('ERR_RUN_STATE', { message: `${found.id}: it is ${found.state}`, hint: `job logs ${found.id}` });
    const shown = new ShownOutput(context);
    const { run: ended, followed } = await followRun(runs.runner.parts, found.id, OUTPUT_STREAMS, (answer) => shown.answer(answer));
    if (!followed) await showKept(runs, ended, OUTPUT_STREAMS, shown);
    return exitCodeOf(ended.ending);
  } finally {
    runs.close();
  }
}
