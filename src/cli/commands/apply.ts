import { resolve } from 'node:path';
import type { Selection } from '../../stage/index.ts';
import { applyRun, type AppliedRun } from '../../runner/apply-run.host.ts';
import { stagedAncestors } from '../../runner/lineage.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openRuns } from '../open-runs.host.ts';
import { pickChanges, requireTerminal } from '../pick.host.ts';
import { appliedJson, appliedText } from '../report/applied.ts';
import { jsonLine } from '../report/json.ts';
import { startProgress } from '../report/progress.ts';
import { ProofrunError } from '../../core/errors.ts';

/** Brings the selected changes into the workspace, all of them or none. Says what it took, on stdout. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const selection = selectionOf(args, context.cwd);
  const interactive = args.flags.interactive === true;
  if (interactive) requireTerminal(context);

  const runs = await openRuns(context);
  const progress = startProgress('applying', context, { json: args.flags.json === true });
  try {
    const found = runs.find(args.words[0]);
    const applied = await applyRun(runs.runner.parts, found, interactive ? { ...selection, leaveRefused: true } : selection, {
      dryRun: args.flags.dryRun === true,
      merge: args.flags.merge === true,
      session: { onProgress: ({ stage, done, total }) => progress.update(stage === 'staging' ? done : total + done, total * 2) },
      ...(interactive
        ? {
            choose: async (selected, view) => {
              progress.stop();
              return await pickChanges(selected, view, context);
            },
          }
        : {}),
      ...(args.flags.target === undefined ? {} : { target: resolve(context.cwd, args.flags.target) }),
    });
    progress.stop();
    report(args, context, applied);
    if (applied.run.stageState === 'applied' && args.flags.json !== true) sayAncestors(context, stagedAncestors(runs.runner.parts.store, applied.run.id));
    return 0;
  } finally {
    progress.stop();
    runs.close();
  }
}

/** What it built on came with it; the stages of those runs are no longer needed. */
function sayAncestors(context: CliContext, ids: readonly string[]): void {
  if (ids.length > 0) context.stderr.write(`job: it built on ${ids.join(', ')}, still staged; what they hold came along: job drop ${ids[0] ?? ''}\n`);
}

/** ERR_USAGE when nothing says what to apply: a whole tree is never taken by leaving a word out. */
function selectionOf(args: ParsedArgs, cwd: string): Selection {
  const { flags } = args;
  const paths = flags.path ?? [];
  const include = flags.include ?? [];
  const selection = { cwd, paths, include, exclude: flags.exclude ?? [], allowExec: flags.allowExec ?? [], overwrite: flags.overwrite ?? [] };
  const chosen = [paths, include, selection.exclude, selection.allowExec, selection.overwrite].some((list) => list.length > 0);
  if (flags.all === true || flags.interactive === true || chosen) return selection;
  throw new ProofrunError('ERR_USAGE', {
    message: '`job apply` needs to know what: --path, --include, --exclude or --all',
    hint: `job apply ${args.words[0] ?? 'last'} --all`,
  });
}

function report(args: ParsedArgs, context: CliContext, applied: AppliedRun): void {
  context.stdout.write(
    args.flags.json === true
      ? jsonLine(appliedJson(applied, args.flags.dryRun === true))
      : appliedText(applied, context.columns, { dryRun: args.flags.dryRun === true, target: args.flags.target }),
  );
}
