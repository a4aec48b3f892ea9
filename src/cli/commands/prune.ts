import { prunable, prune, type PruneRule } from '../../runner/prune.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openRuns } from '../open-runs.host.ts';
import { jsonLine } from '../report/json.ts';
import { commandWords, plural, shortId } from '../report/words.ts';

/** Removes records of runs that are over, of every workspace. An unapplied stage only with --staged. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const { flags } = args;
  const runs = await openRuns(context);
  try {
    const rule: PruneRule = {
      endedBeforeMs: context.clock() + 1 - (flags.olderThan ?? 0),
      staged: flags.staged === true,
      checkpoints: flags.checkpoints === true,
    };
    const dry = flags.dryRun === true;
    const taken = dry
      ? { ...prunable(runs.runner.parts, rule), left: [] }
      : await prune(runs.runner.parts, rule).then(({ removed, ...rest }) => ({ ...rest, runs: removed }));
    if (flags.json === true) {
      context.stdout.write(
        jsonLine({
          dry_run: dry,
          removed: taken.runs.map((one) => one.id),
          checkpoints: taken.checkpoints.map((one) => one.id),
          kept_for_stage: taken.keptForStage,
          kept_for_lineage: taken.keptForLineage,
          left: taken.left,
        }),
      );
      return 0;
    }
    for (const one of taken.runs) context.stdout.write(`${shortId(one.id)}  ${commandWords(one.argv, 60)}\n`);
    for (const one of taken.checkpoints) context.stdout.write(`${one.id}\n`);
    const checkpoints = taken.checkpoints.length === 0 ? '' : ` and ${plural(taken.checkpoints.length, 'checkpoint')}`;
    const staged = taken.keptForStage === 0 ? '' : `; kept ${taken.keptForStage} with unapplied changes (--staged takes them too)`;
    const lineage = taken.keptForLineage === 0 ? '' : `; kept ${taken.keptForLineage} that checkpoints or later runs came from`;
    context.stdout.write(`${dry ? 'would remove' : 'removed'} ${plural(taken.runs.length, 'run')}${checkpoints}${staged}${lineage}\n`);
    for (const path of taken.left) context.stderr.write(`job: could not be removed: ${path}\n`);
    return 0;
  } finally {
    runs.close();
  }
}
