import type { BundleChanges } from '../../core/bundle.ts';
import type { Change } from '../../core/change.ts';
import { safeLine } from '../../core/text-safety.ts';
import { conflictSide, shownPath } from './changes.ts';
import { flow } from './layout.ts';
import type { Palette } from './palette.ts';
import { countWords, shellWord } from './words.ts';

export interface ConflictInput {
  /** The changes of the selection that are in conflict. */
  readonly conflicts: readonly Change[];
  /** The change set that they are part of. */
  readonly changes: BundleChanges;
  readonly workspace: string;
  readonly home: string | undefined;
  readonly selector: string;
  readonly width: number;
  readonly palette: Palette;
}

const MOST = 50;

/** One line a conflict, both sides with hash and time, then what can be done; for stderr. */
export function conflictText(input: ConflictInput): string {
  const { conflicts, changes, workspace, home, selector, width, palette } = input;
  const lines = conflicts.slice(0, MOST).flatMap((change) => {
    const { conflict } = change;
    if (conflict === undefined) return [];
    const path = shownPath(change, changes, workspace, home);
    const items = [
      `conflict: ${path}`,
      conflictSide('staged', conflict.stagedSha256, conflict.stagedTimeMs),
      `${conflictSide('here', conflict.hereSha256, conflict.hereTimeMs)} (${safeLine(conflict.reason, 200)})`,
    ];
    return flow(items, width, '   ').map((line, index) => (index === 0 ? palette.bad(line) : `    ${line}`));
  });
  if (conflicts.length > MOST) lines.push(`and ${countWords(conflicts.length - MOST)} more conflicts: job status --review ${selector}`);
  const first = conflicts.find((change) => change.encoding === 'utf8' && change.root === 0);
  const path = first === undefined ? 'PATH' : shellWord(first.path);
  const choices = [`nothing was applied. job apply ${selector} --exclude ${path}`, `--overwrite ${path}`, `job diff ${selector} ${path}`];
  lines.push(...flow(choices, width, ' | '));
  return `${lines.join('\n')}\n`;
}
