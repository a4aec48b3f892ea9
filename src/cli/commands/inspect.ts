import { endingDetail } from '../report/words.ts';
import { composeJob } from '../../policy/compose.ts';
import { prepareJob } from '../../policy/prepare.host.ts';
import { exitCodeOf } from '../../runner/exit-code.ts';
import { inspectRun } from '../../runner/inspect.host.ts';
import { flushed } from '../../runner/output-pump.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { executorRegistry } from '../executors.host.ts';
import { jobRequestOf } from '../job-request.ts';
import { openRuns } from '../open-runs.host.ts';
import { ioOf } from '../run-io.ts';
import { forwardSignals } from '../run-signals.host.ts';

/** Runs a command over what a run staged, read-only. Exits as the command did. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const [selector = 'last', ...words] = args.words;
  const line: ParsedArgs = { ...args, words, afterDashes: true };
  const runs = await openRuns(context, args.flags.workspace);
  try {
    const { parts } = runs.runner;
    const prepared = await prepareJob({ mode: 'safe', ...jobRequestOf(line) }, runs.caller, 'require');
    const job = composeJob(prepared.input);
    const io = ioOf(line, context);
    const inspection = inspectRun(parts, {
      run: parts.store.findRun(selector, job.workspace),
      job,
      capabilities: await executorRegistry().all(),
      io,
    });
    const restore = forwardSignals(inspection.control, io.kind);
    const ending = await inspection.ending.finally(restore);
    const detail = endingDetail(ending);
    if (detail !== undefined) context.stderr.write(`job: ${detail}\n`);
    return exitCodeOf(ending);
  } finally {
    runs.close();
    await Promise.all([flushed(context.stdout), flushed(context.stderr)]);
  }
}
