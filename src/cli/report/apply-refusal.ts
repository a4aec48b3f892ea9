import type { ProofrunError } from '../../core/errors.ts';
import { displayPath, safeLine, safeText } from '../../core/text-safety.ts';
import { conflictSide } from './changes.ts';
import { flow } from './layout.ts';
import type { Palette } from './palette.ts';
import { countWords, shellWord } from './words.ts';

export interface ApplyRefusalInput {
  readonly error: ProofrunError;
  /** The command line as typed, after `job`. */
  readonly argv: readonly string[];
  readonly selector: string;
  readonly width: number;
  readonly palette: Palette;
}

/** One path of a refused apply, as the error carries it. */
interface RefusedPath {
  readonly path: string;
  readonly encoding: 'utf8' | 'base64';
  readonly reason: string;
  readonly stagedSha256: string | null;
  readonly hereSha256: string | null;
  readonly stagedTimeMs: number | null;
  readonly hereTimeMs: number | null;
}

const MOST = 50;

/**
 * Why an apply was refused, with whole commands that would go on; for stderr. Undefined for an error that says all of it itself. A conflict
 * is one line a path: both sides with hash and time.
 */
export function applyRefusalText(input: ApplyRefusalInput): string | undefined {
  switch (input.error.code) {
    case 'ERR_STAGE_CONFLICT':
      return conflictText(refusedPaths(input.error), input);
    case 'ERR_STAGE_EXECUTES':
    case 'ERR_STAGE_REFUSED':
      return input.error.hint?.startsWith('--') === true
        ? `job: ${safeText(input.error.message, { lines: true, max: 8000 })}\n     ${rerun(input)} ${safeLine(input.error.hint, 2000)}\n`
        : undefined;
    default:
      return undefined;
  }
}

function conflictText(conflicts: readonly RefusedPath[], { selector, width, palette }: ApplyRefusalInput): string | undefined {
  const [first] = conflicts;
  if (first === undefined) return undefined;
  const lines = conflicts.slice(0, MOST).flatMap((conflict) => {
    const items = [
      `conflict: ${displayPath(conflict.path, conflict.encoding)}`,
      conflictSide('staged', conflict.stagedSha256, conflict.stagedTimeMs),
      `${conflictSide('here', conflict.hereSha256, conflict.hereTimeMs)} (${safeLine(conflict.reason, 200)})`,
    ];
    return flow(items, width, '   ').map((line, index) => (index === 0 ? palette.bad(line) : `    ${line}`));
  });
  if (conflicts.length > MOST) lines.push(`and ${countWords(conflicts.length - MOST)} more: job status --review ${selector}`);
  const path = shellWord(displayPath(first.path, first.encoding));
  lines.push(...flow([`nothing was applied. job apply ${selector} --exclude ${path} |`, `--overwrite ${path} |`, `job diff ${selector} ${path}`], width, ' '));
  return `${lines.join('\n')}\n`;
}

function rerun({ argv }: ApplyRefusalInput): string {
  return safeLine(['job', ...argv].map(shellWord).join(' '), 2000);
}

/** What the stage put into the error; anything of another form is left out. */
function refusedPaths(error: ProofrunError): readonly RefusedPath[] {
  const paths: unknown = error.data?.paths;
  return (Array.isArray(paths) ? (paths as readonly unknown[]) : []).flatMap((item) => {
    if (typeof item !== 'object' || item === null || !('path' in item) || typeof item.path !== 'string') return [];
    const fact: Readonly<Record<string, unknown>> = { ...item };
    const text = (key: string): string | null => (typeof fact[key] === 'string' ? fact[key] : null);
    const time = (key: string): number | null => (typeof fact[key] === 'number' ? fact[key] : null);
    return [
      {
        path: item.path,
        encoding: fact.encoding === 'base64' ? ('base64' as const) : ('utf8' as const),
        reason: text('reason') ?? 'changed after the run began',
        stagedSha256: text('stagedSha256'),
        hereSha256: text('hereSha256'),
        stagedTimeMs: time('stagedTimeMs'),
        hereTimeMs: time('hereTimeMs'),
      },
    ];
  });
}
