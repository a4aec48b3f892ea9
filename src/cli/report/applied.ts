import { toSnake } from '../../core/case.ts';
import type { JsonValue } from '../../core/json.ts';
import { displayPath } from '../../core/text-safety.ts';
import type { AppliedRun } from '../../runner/apply-run.host.ts';
import { flowWords } from './layout.ts';
import { plural } from './words.ts';

/** Rows of paths that are shown; the rest is counted. */
const MOST_PATHS = 40;

/** What an apply brought into the workspace. */
export function appliedText({ result, run }: AppliedRun, width: number): string {
  const changes = result.selected.entries.map((entry) => entry.change).filter((change) => change.implied !== true);
  const lines = changes.slice(0, MOST_PATHS).map((change) => `${LETTERS[change.kind]} ${displayPath(change.path, change.encoding)}`);
  if (changes.length > MOST_PATHS) lines.push(`and ${changes.length - MOST_PATHS} more`);
  for (const { path, because } of result.selected.notes) lines.push(...flowWords(`with it: ${displayPath(path)}: ${because}`, width));
  const rest = run.stageState === 'applied' ? 'nothing is left in the stage' : 'the rest stays staged';
  lines.push(changes.length === 0 ? 'nothing to apply' : `applied ${plural(changes.length, 'change')}; ${rest}`);
  return `${lines.join('\n')}\n`;
}

export function appliedJson({ result, run }: AppliedRun): JsonValue {
  return {
    run: run.id,
    stage_state: run.stageState,
    applied: toSnake(result.selected.entries.map(({ change }) => ({ root: change.root, path: change.path, encoding: change.encoding, kind: change.kind }))),
    notes: toSnake(result.selected.notes),
    complete: result.complete,
  };
}

const LETTERS = { added: 'A', modified: 'M', deleted: 'D', type_changed: 'T', renamed: 'R', attributes: 'P' } as const;
