import type { Mode } from '../../core/dimension.ts';
import type { Refusal, RefusalRow } from '../../core/plan.ts';
import { safeLine } from '../../core/text-safety.ts';
import { columnsOf, flow, flowWords, labelled, pad, spread } from './layout.ts';
import type { Palette } from './palette.ts';
import { commandWords, dimensionTitle, shortId } from './words.ts';

export interface RefusalInput {
  readonly refusal: Refusal;
  readonly argv: readonly string[];
  readonly mode: Mode;
  /** Undefined for a dry run, which records nothing. */
  readonly runId: string | undefined;
  readonly width: number;
  readonly palette: Palette;
}

const INDENT = '  ';
const LABEL = 15;
const TABLE = [14, 22, 15] as const;

/** The refusal table, for stderr: per dimension what was needed, planned and missing, and the one command that would change it. */
export function refusalText(input: RefusalInput): string {
  const { refusal, width, palette } = input;
  const id = input.runId === undefined ? '' : `${shortId(input.runId)}  `;
  const mode = input.mode === 'default' ? 'default mode' : `--${input.mode}`;
  const lines = [
    ...spread(`job: \`${commandWords(input.argv, 200)}\` was refused and not started`, `${id}${mode}`, width - 1),
    ...flowWords(safeLine(refusal.reason, 1000), width - 2).map((line) => INDENT + line),
  ];
  if (refusal.rows.length > 0) lines.push('', ...refusalTable(refusal, width, palette));
  return `${lines.join('\n')}\n`;
}

/** The table alone; a review shows it too. */
export function refusalTable(refusal: Refusal, width: number, palette: Palette): readonly string[] {
  const header = palette.bold(INDENT + pad('CONTROL', TABLE[0]) + pad('NEEDED', TABLE[1]) + pad('PLANNED', TABLE[2]) + 'COULD ENFORCE IT');
  return [header, ...refusal.rows.flatMap((row) => rowLines(row, width, palette))];
}

function rowLines(row: RefusalRow, width: number, palette: Palette): readonly string[] {
  const could = row.couldEnforce.length === 0 ? 'none here' : row.couldEnforce.join(', ');
  const needed = safeLine(row.needed, 200);
  const fits = columnsOf(needed) < TABLE[1];
  const head = INDENT + pad(dimensionTitle(row.dimension), TABLE[0]) + pad(fits ? needed : '', TABLE[1]) + palette.bad(pad(row.planned, TABLE[2])) + could;
  const room = width - INDENT.length * 2 - LABEL;
  const detail = (label: string, lines: readonly string[]): readonly string[] => labelled(label, LABEL, lines, INDENT + INDENT);
  return [
    head.trimEnd(),
    ...(fits ? [] : detail('needed', flowWords(needed, room))),
    ...detail('missing', flowWords(safeLine(row.missing, 600), room)),
    ...(row.change === undefined
      ? []
      : [
          ...detail('change it', flow(safeLine(row.change.command, 2000).split(' '), room, ' ')),
          ...detail('that gives up', flowWords(safeLine(row.change.givesUp, 600), room)),
        ]),
  ];
}
