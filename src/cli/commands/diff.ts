import { resolve } from 'node:path';
import { safeLine, safeText } from '../../core/text-safety.ts';
import { openStage } from '../../runner/staged-run.host.ts';
import { diffText, readChangeSet, selectChanges, type StageView } from '../../stage/index.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openRuns, type OpenRuns } from '../open-runs.host.ts';
import { page } from '../pager.host.ts';
import { toSnake } from '../../core/case.ts';
import { changeRows, tallyNumbers, tallyOf } from '../report/changes.ts';
import { jsonLine } from '../report/json.ts';
import { paletteFor, type Palette } from '../report/palette.ts';
import { startProgress } from '../report/progress.ts';
import { layoutRows } from '../report/change-list.ts';

/**
 * The staged changes of a run, all or below the paths that are named. Throws ERR_RUN_NOT_FOUND, ERR_RUN_STATE (nothing is staged),
 * ERR_PATH_NOT_FOUND (with near names), ERR_STAGE_LAYER.
 */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const runs = await openRuns(context);
  const progress = startProgress('reading the stage', context, { json: args.flags.json === true });
  try {
    const [selector, ...paths] = args.words;
    const found = runs.find(selector);
    const view = await readChangeSet(await openStage(runs.runner.parts, found));
    const wanted = chosen(view, paths, context.cwd);
    progress.stop();
    if (args.flags.json === true) {
      context.stdout.write(
        jsonLine(toSnake({ run: found.id, roots: view.roots.map(({ root }) => root), changes: view.entries.filter(wanted).map(({ change }) => change) })),
      );
    } else if (args.flags.stat === true) context.stdout.write(statText(view, wanted, runs, found.workspace, context));
    else await writeDiff(view, wanted, args.flags.patch === true, context);
    return 0;
  } finally {
    progress.stop();
    runs.close();
  }
}

type Wanted = (entry: StageView['entries'][number]) => boolean;

/** Without paths everything. A diff only shows, so nothing that an apply would refuse is refused here. */
function chosen(view: StageView, paths: readonly string[], cwd: string): Wanted {
  if (paths.length === 0) return () => true;
  const targets = paths.map((path) => resolve(cwd, path));
  const within = (absolute: string): boolean => targets.some((target) => absolute === target || absolute.startsWith(target === '/' ? '/' : `${target}/`));
  const absoluteOf = (entry: StageView['entries'][number]): string =>
    `${view.roots[entry.change.root]?.root ?? ''}/${entry.change.encoding === 'utf8' ? entry.change.path : Buffer.from(entry.change.path, 'base64').toString()}`;
  const wanted: Wanted = (entry) => within(absoluteOf(entry));
  if (!view.entries.some(wanted)) {
    // Its own refusal of a path without a change names near ones.
    selectChanges(view.entries, view.roots, { cwd, paths, include: [], exclude: [], allowExec: [], overwrite: [] });
  }
  return wanted;
}

async function writeDiff(view: StageView, wanted: Wanted, patch: boolean, context: CliContext): Promise<void> {
  const { bytes, omitted } = await diffText(view, { form: patch ? 'patch' : 'text', wanted });
  if (patch) context.stdout.write(bytes);
  else await page(painted(safeText(bytes, { lines: true }), paletteFor(context, 'stdout')), context);
  for (const { path, because } of omitted) context.stderr.write(`job: not in the ${patch ? 'patch' : 'diff'}: ${safeLine(path, 300)}: ${because}\n`);
}

function painted(text: string, palette: Palette): string {
  return text.replace(/^(?:diff |@@|\+|-).*$/gm, (line) =>
    line.startsWith('diff ') ? palette.bold(line) : line.startsWith('@@') ? palette.dim(line) : line.startsWith('+') ? palette.good(line) : palette.bad(line),
  );
}

function statText(view: StageView, wanted: Wanted, { caller }: OpenRuns, workspace: string, context: CliContext): string {
  const changes = { ...view.changeSet, changes: view.entries.filter(wanted).map(({ change }) => change), roots: view.roots.map(({ root }) => root) };
  const { rows, leftOut } = changeRows(changes, workspace, caller.home, { collapse: false });
  const lines = [
    ...layoutRows(rows, context.columns, paletteFor(context, 'stdout')),
    ...(leftOut > 0 ? [`and ${leftOut} more`] : []),
    tallyNumbers(tallyOf(changes)),
  ];
  return `${lines.join('\n')}\n`;
}
