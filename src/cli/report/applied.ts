import { toSnake } from '../../core/case.ts';
import type { JsonValue } from '../../core/json.ts';
import { displayPath, safeLine } from '../../core/text-safety.ts';
import type { AppliedRun } from '../../runner/apply-run.host.ts';
import type { UndoneRun } from '../../runner/undo-run.host.ts';
import { flowWords } from './layout.ts';
import { plural } from './words.ts';

/** Rows of paths that are shown; the rest is counted. */
const MOST_PATHS = 40;

/** What an apply brought into the workspace. */
export function appliedText({ result, run }: AppliedRun, width: number, how: { readonly dryRun: boolean; readonly target: string | undefined }): string {
  const changes = result.selected.entries.map((entry) => entry.change).filter((change) => change.implied !== true);
  const lines = changes.slice(0, MOST_PATHS).map((change) => `${LETTERS[change.kind]} ${displayPath(change.path, change.encoding)}`);
  if (changes.length > MOST_PATHS) lines.push(`and ${changes.length - MOST_PATHS} more`);
  for (const { path, because } of result.selected.notes) lines.push(...flowWords(`with it: ${displayPath(path)}: ${because}`, width));
  for (const { entry, conflicts } of result.merged ?? []) {
    const marked = conflicts === 0 ? 'no line was changed on both sides' : `${plural(conflicts, 'place')} with markers to settle`;
    lines.push(...flowWords(`merged: ${displayPath(entry.change.path, entry.change.encoding)}: ${marked}`, width));
  }
  const rest =
    how.target !== undefined
      ? `${safeLine(how.target, 200)} has them; all of it stays staged`
      : run.stageState === 'applied'
        ? 'nothing is left in the stage'
        : 'the rest stays staged';
  const said = how.dryRun ? `would apply ${plural(changes.length, 'change')}; nothing was touched` : `applied ${plural(changes.length, 'change')}; ${rest}`;
  lines.push(changes.length === 0 ? 'nothing to apply' : said);
  return `${lines.join('\n')}\n`;
}

/** What an undo took out of the workspace and brought back. */
export function undoneText({ run, batch, result, left }: UndoneRun, selector: string): string {
  const earlier = left[0] === undefined ? [] : [`still applied: ${left.join(', ')}; job undo ${selector} --batch ${left[0]}`];
  if (result === undefined) return `${[`${batch} was taken back already; nothing to do`, ...earlier].join('\n')}\n`;
  const shown = result.undone.slice(0, MOST_PATHS).map((path) => `  ${displayPath(path.path, path.encoding)}`);
  if (result.undone.length > MOST_PATHS) shown.push(`  and ${result.undone.length - MOST_PATHS} more`);
  const stage = run.stageState === 'staged' || run.stageState === 'partly_applied' ? '; the changes are staged again' : '';
  return `${[...shown, `${batch} is taken back${stage}`, ...earlier].join('\n')}\n`;
}

export function undoneJson({ run, batch, result, left }: UndoneRun): JsonValue {
  return {
    run: run.id,
    stage_state: run.stageState,
    batch,
    undone: result !== undefined,
    paths: toSnake((result?.undone ?? []).map(({ root, path, encoding }) => ({ root, path, encoding }))),
    still_applied: [...left],
  };
}

export function appliedJson({ result, run }: AppliedRun, dryRun: boolean): JsonValue {
  return {
    dry_run: dryRun,
    run: run.id,
    stage_state: run.stageState,
    applied: toSnake(result.selected.entries.map(({ change }) => ({ root: change.root, path: change.path, encoding: change.encoding, kind: change.kind }))),
    notes: toSnake(result.selected.notes),
    merged: toSnake((result.merged ?? []).map(({ entry: { change }, conflicts }) => ({ path: change.path, encoding: change.encoding, conflicts }))),
    complete: result.complete,
  };
}

const LETTERS = { added: 'A', modified: 'M', deleted: 'D', type_changed: 'T', renamed: 'R', attributes: 'P' } as const;
