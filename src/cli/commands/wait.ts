import { EXIT_CODES } from '../../core/errors.ts';
import { exitCodeOf } from '../../runner/exit-code.ts';
import { waitForRun } from '../../runner/wait-run.host.ts';
import type { StoredRun } from '../../store/index.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openRuns } from '../open-runs.host.ts';
import { jsonLine, runJson } from '../report/json.ts';
import { startTimer } from '../../runner/long-timer.ts';

/** Waits until a run is over and exits with its code; 124 when --timeout passes first. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const { timeout } = args.flags;
  const runs = await openRuns(context);
  try {
    const found = runs.find(args.words[0]);
    const impatience = new AbortController();
    const cancel = timeout === undefined ? undefined : startTimer(timeout, () => impatience.abort());
    let ended: StoredRun;
    try {
      ended = await waitForRun(runs.runner.parts, found.id, impatience.signal);
    } catch (error) {
      if (!impatience.signal.aborted) throw error;
      context.stderr.write(`job: ${found.id} is still going\n`);
      return EXIT_CODES.timeout;
    } finally {
      cancel?.();
    }
    if (args.flags.json === true) context.stdout.write(jsonLine(runJson(ended)));
    return exitCodeOf(ended.ending);
  } finally {
    runs.close();
  }
}
