import type { BundleChanges, RunBundle } from '../../core/bundle.ts';
import { readRunBundle } from '../../runner/run-bundle.host.ts';
import { openStage } from '../../runner/staged-run.host.ts';
import { verifyBundle } from '../../runner/verify.ts';
import { readChangeSet } from '../../stage/index.ts';
import type { StoredRun } from '../../store/index.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openRuns, type OpenRuns } from '../open-runs.host.ts';
import { page } from '../pager.host.ts';
import { jsonLine, reviewJson, runJson } from '../report/json.ts';
import { reviewMarkdown } from '../report/markdown.ts';
import { paletteFor } from '../report/palette.ts';
import { startProgress } from '../report/progress.ts';
import { reviewText, type ReviewInput } from '../report/review.ts';
import { statusText } from '../report/status.ts';

/**
 * The short status, or with --review (or --format markdown) the whole account. Throws ERR_RUN_NOT_FOUND, ERR_BUNDLE_INVALID (a bundle
 * that is missing, altered or without observations), ERR_RUN_STATE (a review of a run that is still going).
 */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const runs = await openRuns(context);
  try {
    const found = runs.find(args.words[0]);
    const format = args.flags.json === true ? 'json' : (args.flags.format ?? 'text');
    if (args.flags.review === true || format === 'markdown') {
      const input = await reviewOf(args, found, runs, context);
      if (format === 'json') context.stdout.write(jsonLine(reviewJson(input)));
      else await page(format === 'markdown' ? reviewMarkdown(input) : reviewText(input), context);
      return 0;
    }
    // A run that is still going has no bundle; one that is over without one is shown as it is.
    const bundle = found.bundle === null ? undefined : await readRunBundle(runs.runner.parts.stateDirectory, found);
    context.stdout.write(
      format === 'json'
        ? jsonLine({ ...runJson(found), warnings: bundle?.warnings ?? null })
        : statusText({
            run: found,
            bundle,
            selector: args.words[0] ?? 'last',
            nowMs: context.clock(),
            width: context.columns,
            palette: paletteFor(context, 'stdout'),
          }),
    );
    return 0;
  } finally {
    runs.close();
  }
}

async function reviewOf(args: ParsedArgs, found: StoredRun, runs: OpenRuns, context: CliContext): Promise<ReviewInput> {
  const bundle = await readRunBundle(runs.runner.parts.stateDirectory, found);
  const progress = startProgress('reading the stage', context, { json: args.flags.json === true });
  try {
    return {
      bundle,
      verification: verifyBundle(bundle),
      changes: await changesNow(found, bundle, runs),
      stage: found.stageState,
      selector: args.words[0] ?? 'last',
      cwd: context.cwd,
      home: runs.caller.home,
      width: context.columns,
      palette: paletteFor(context, 'stdout'),
    };
  } finally {
    progress.stop();
  }
}

/** The stage against the tree as it is at this moment, while there is one to decide on; else what the bundle says. */
async function changesNow(found: StoredRun, bundle: RunBundle, { runner }: OpenRuns): Promise<BundleChanges | null> {
  if (found.stageState !== 'staged' && found.stageState !== 'partly_applied') return bundle.changes;
  const { changeSet, roots } = await readChangeSet(await openStage(runner.parts, found));
  return { ...changeSet, roots: roots.map(({ root }) => root) };
}
