import type { RunBundle } from '../../core/bundle.ts';
import { OUTPUT_KEPT_BYTES, OUTPUT_STREAMS, readKept, type KeptText, type OutputStream } from '../../runner/kept-output.host.ts';
import { readRunBundle } from '../../runner/run-bundle.host.ts';
import { runPaths } from '../../runner/state-directory.ts';
import { followRun } from '../../runner/wait-run.host.ts';
import type { StoredRun } from '../../store/index.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openRuns, type OpenRuns } from '../open-runs.host.ts';
import { jsonLine } from '../report/json.ts';
import { ShownOutput } from '../shown-output.host.ts';

/** What was kept of the output: stdout to stdout, stderr to stderr. With --follow until the run ends. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const { flags } = args;
  const streams = flags.stream === undefined ? OUTPUT_STREAMS : [flags.stream];
  const runs = await openRuns(context);
  try {
    const found = runs.find(args.words[0]);
    const shown = new ShownOutput(context);
    if (flags.follow === true && found.lease !== null) {
      const { run: ended, followed } = await followRun(runs.runner.parts, found.id, streams, (answer) => shown.answer(answer));
      if (!followed) await showKept(runs, ended, streams, shown);
      return 0;
    }
    if (flags.json === true) {
      for (const text of await keptTexts(runs, found, streams)) {
        context.stdout.write(
          jsonLine({
            stream: text.stream,
            encoding: 'base64',
            head: text.head.toString('base64'),
            tail: text.tail.toString('base64'),
            bytes_total: text.bytesTotal,
          }),
        );
      }
      return 0;
    }
    await showKept(runs, found, streams, shown);
    return 0;
  } finally {
    runs.close();
  }
}

/** What is kept of a run, also of one that is over before it could be followed. */
export async function showKept(runs: OpenRuns, found: StoredRun, streams: readonly OutputStream[], shown: ShownOutput): Promise<void> {
  for (const text of await keptTexts(runs, found, streams)) await shown.kept(text);
}

async function keptTexts(runs: OpenRuns, found: StoredRun, streams: readonly OutputStream[]): Promise<readonly KeptText[]> {
  const { stateDirectory } = runs.runner.parts;
  const { directory } = runPaths(stateDirectory, found.id);
  const bundle = found.bundle === null ? undefined : await readRunBundle(stateDirectory, found);
  const kept = bundle?.permissions.resources.limits.outputKeptBytes ?? OUTPUT_KEPT_BYTES;
  return streams.flatMap((stream) => readKept(directory, stream, kept, totalOf(bundle, stream)) ?? []);
}

/** Of an interrupted run the pieces themselves tell. */
function totalOf(bundle: RunBundle | undefined, stream: OutputStream): number | undefined {
  return bundle?.run.state === 'interrupted' ? undefined : bundle?.outputs.find((output) => output.stream === stream)?.bytesTotal;
}
