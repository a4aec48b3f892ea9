import { join } from 'node:path';
import type { BundleChanges, RunBundle } from '../../core/bundle.ts';
import { ProofrunError } from '../../core/errors.ts';
import { readBundle } from '../../runner/bundle.host.ts';
import { openStage } from '../../runner/staged-run.host.ts';
import { verifyBundle } from '../../runner/verify.ts';
import { readChangeSet } from '../../stage/index.ts';
import type { StoredRun } from '../../store/index.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { jsonLine, reviewJson, runJson } from '../report/json.ts';
import { reviewMarkdown } from '../report/markdown.ts';
import { paletteFor } from '../report/palette.ts';
import { startProgress } from '../report/progress.ts';
import { reviewText, type ReviewInput } from '../report/review.ts';
import { statusText } from '../report/status.ts';
import { withRunner, type Opened } from '../with-runner.host.ts';

/**
 * The short status, or with --review (or --format markdown) the whole account. Throws ERR_RUN_NOT_FOUND, ERR_BUNDLE_INVALID (a bundle
 * that is missing, altered or without observations), ERR_RUN_STATE (a review of a run that is still going).
 */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  return await withRunner(context, async (opened) => {
    const found = opened.find(args.words[0]);
    const format = args.flags.json === true ? 'json' : (args.flags.format ?? 'text');
    if (args.flags.review !== true && format !== 'markdown') {
      const bundle = await bundleOf(found, opened);
      context.stdout.write(
        format === 'json'
          ? jsonLine({ ...runJson(found), warnings: bundle?.warnings ?? null })
          : statusText({ run: found, bundle, selector: selectorOf(args, found, opened), nowMs: context.clock(), width: context.columns, palette: paletteFor(context, 'stdout') }),
      );
      return 0;
    }
    const input = await reviewOf(args, found, opened, context);
    if (format === 'json') context.stdout.write(jsonLine(reviewJson({ bundle: input.bundle, verification: input.verification, changes: input.changes, stage: input.stage })));
    else if (format === 'markdown') context.stdout.write(reviewMarkdown(input));
    else context.stdout.write(reviewText(input));
    return 0;
  });
}

/** undefined for a run that is still going. */
async function bundleOf(found: StoredRun, { runner }: Opened): Promise<RunBundle | undefined> {
  if (found.bundle === null) return undefined;
  return await readBundle(join(runner.parts.stateDirectory, found.bundle.path), found.bundle.sha256);
}

async function reviewOf(args: ParsedArgs, found: StoredRun, opened: Opened, context: CliContext): Promise<ReviewInput> {
  const bundle = await bundleOf(found, opened);
  if (bundle === undefined) {
    if (found.lease !== null) throw new ProofrunError('ERR_RUN_STATE', { message: `${found.id}: it is ${found.state}; the account is written at the end`, hint: `job wait ${found.id}` });
    throw new ProofrunError('ERR_BUNDLE_INVALID', { message: `${found.id}: no bundle was recorded for it`, hint: `job events ${found.id}` });
  }
  const progress = startProgress('reading the stage', context, args.flags.json === true);
  try {
    return {
      bundle,
      verification: verifyBundle(bundle),
      changes: await changesNow(found, bundle, opened),
      stage: found.stageState,
      selector: selectorOf(args, found, opened),
      cwd: context.cwd,
      home: opened.caller.home,
      width: context.columns,
      palette: paletteFor(context, 'stdout'),
    };
  } finally {
    progress.stop();
  }
}

/** The stage against the tree as it is at this moment, while there is one to decide on; else what the bundle says. */
async function changesNow(found: StoredRun, bundle: RunBundle, { runner }: Opened): Promise<BundleChanges | null> {
  if (found.stageState !== 'staged' && found.stageState !== 'partly_applied') return bundle.changes;
  const { changeSet, roots } = await readChangeSet(await openStage(runner.parts, found));
  return { ...changeSet, roots: roots.map(({ root }) => root) };
}

/** What the next commands call the run: the word that was typed, `last` when it is that, else the id. */
function selectorOf(args: ParsedArgs, found: StoredRun, { runner, workspace }: Opened): string {
  const typed = args.words[0];
  if (typed !== undefined) return typed;
  return runner.parts.store.listRuns({ workspace, limit: 1 })[0]?.id === found.id ? 'last' : found.id;
}
