import type { ReceiptCount } from '../../core/bundle.ts';
import type { Dimension } from '../../core/dimension.ts';
import { safeLine } from '../../core/text-safety.ts';
import { flow, flowWords, labelled, pad } from './layout.ts';
import { mismatches, scopesOf } from './review-facts.ts';
import type { ReviewInput } from './review.ts';
import { countWords, dimensionList, dimensionTitle, levelTone, REPORT_ORDER } from './words.ts';

const MOST_LISTED = 20;
/** Widths of the control table; the last column takes what is left. */
const TABLE = [14, 16, 13, 11, 12] as const;
/** With a last column such as `12 of 12`; a narrower terminal gets two lines a control. */
const TABLE_WIDTH = 74;

/** The control table with its scopes, and every owed receipt that is missing or differs. */
export function controlLines(input: ReviewInput): readonly string[] {
  const { bundle, width, palette } = input;
  const lines = [...controlTable(input)];
  const scopes = bundle.refusal === null ? scopesOf(bundle) : [];
  const [only, ...more] = scopes;
  if (only !== undefined && more.length === 0) lines.push(...flowWords(`Scope: ${dimensionList([only.dimension])}: ${only.scope}.`, width));
  else if (only !== undefined) {
    lines.push(
      'Scope:',
      ...scopes.flatMap(({ dimension, scope }) => labelled(dimensionTitle(dimension), TABLE[0], flowWords(scope, width - TABLE[0] - 2), '  ')),
    );
  }
  const wrong = mismatches(bundle);
  for (const line of wrong.slice(0, MOST_LISTED)) lines.push(...flowWords(line, width).map(palette.bad));
  if (wrong.length > MOST_LISTED) lines.push(palette.bad(`and ${countWords(wrong.length - MOST_LISTED)} more: job status ${input.selector} --json`));
  if (bundle.safety.promise === 'broken') {
    lines.push(...flowWords(`Needed by --${bundle.run.mode} and not enforced: ${dimensionList(bundle.safety.missing)}.`, width).map(palette.bad));
  }
  if (bundle.plan !== null && bundle.plan.waived.length > 0) {
    lines.push(...flowWords(`Waived by --degrade: ${dimensionList(bundle.plan.waived)}.`, width).map(palette.warn));
  }
  lines.push(...flow(['No line strengthens another.', '"-" not observed', '"0" observed, no hits'], width, '   ').map(palette.dim));
  return lines;
}

interface ControlRow {
  readonly title: string;
  readonly asked: string;
  readonly plan: string;
  readonly installed: string;
  readonly observed: string;
  readonly probes: string;
  readonly paint: (text: string) => string;
}

function controlRow(dimension: Dimension, { bundle, palette }: ReviewInput): ControlRow {
  const safety = bundle.safety.dimensions[dimension];
  const plan = bundle.plan?.dimensions[dimension];
  const tone = levelTone(safety.observed, safety.requested || safety.needed);
  return {
    title: dimensionTitle(dimension),
    asked: safeLine(plan?.asked ?? (safety.requested ? 'requested' : '-'), 120),
    plan: bundle.plan === null ? '-' : safety.planned,
    installed: countOf(safety.installed),
    observed: safety.observed,
    probes: countOf(safety.probes),
    paint: tone === 'none' ? (text) => text : palette[tone],
  };
}

function controlTable(input: ReviewInput): readonly string[] {
  const rows = REPORT_ORDER.map((dimension) => controlRow(dimension, input));
  if (input.width < TABLE_WIDTH) return narrowTable(rows, input);
  const [title, asked, plan, installed, observedWidth] = TABLE;
  const header = pad('CONTROL', title) + pad('REQUESTED', asked) + pad('PLAN', plan) + pad('INSTALLED', installed) + pad('OBSERVED', observedWidth) + 'PROBES';
  return [
    input.palette.bold(header),
    ...rows.flatMap((row) => {
      const [first = '-', ...rest] = flowWords(row.asked, asked - 1);
      const line =
        pad(row.title, title) +
        pad(first, asked) +
        pad(row.plan, plan) +
        pad(row.installed, installed) +
        row.paint(pad(row.observed, observedWidth)) +
        row.probes;
      return [line.trimEnd(), ...rest.map((more) => ' '.repeat(title) + more)];
    }),
  ];
}

/** Two lines a control: what was proved, and below it what was asked and planned. */
function narrowTable(rows: readonly ControlRow[], { palette, width }: ReviewInput): readonly string[] {
  const [title, , , installed] = TABLE;
  return [
    palette.bold(`${pad('CONTROL', title)}${pad('OBSERVED', 12)}${pad('INSTALLED', installed)}PROBES`),
    ...rows.flatMap((row) => [
      `${pad(row.title, title)}${row.paint(pad(row.observed, 12))}${pad(row.installed, installed)}${row.probes}`.trimEnd(),
      ...flow([`requested ${row.asked}`, row.plan], width - 2, ', ').map((line) => palette.dim(`  ${line}`)),
    ]),
  ];
}

/** `19 of 19`, numbers right-aligned to two digits; `-` where nothing was owed. */
function countOf(count: ReceiptCount): string {
  return count.owed === 0 ? '-' : `${String(count.matched).padStart(2)} of ${count.owed}`;
}
