import type { EffectiveJob } from '../../core/job.ts';
import { displayPath, safeLine } from '../../core/text-safety.ts';
import type { Explanation } from '../../policy/explain.ts';
import { formatOrigin } from '../../policy/rules.ts';
import { flow, flowWords, labelled, pad } from './layout.ts';
import type { Palette } from './palette.ts';
import { commandWords, countWords, dimensionTitle, friendlyPath, REPORT_ORDER } from './words.ts';

export interface ExplainInput {
  readonly job: EffectiveJob;
  readonly explanations: readonly Explanation[];
  /** What a job file of the workspace asks for, when nobody has accepted it yet. */
  readonly untrusted: { readonly file: string; readonly digest: string } | undefined;
  readonly width: number;
  readonly palette: Palette;
}

const OUTCOME = 10;
const INDENT = '  ';
/** Subjects of one rule group that are shown. */
const MOST = 12;

/** `job policy explain`: every default and rule with the line that decides, by dimension; for stdout. */
export function explainText(input: ExplainInput): string {
  const { job, explanations, width, palette } = input;
  const lines = [
    ...flowWords(`\`${commandWords(job.argv, 200)}\` in ${job.mode} mode, workspace ${displayPath(friendlyPath(job.workspace, undefined, job.home))}`, width),
    ...(job.layers.length === 0 ? [] : flowWords(`Layers: ${job.layers.map((layer) => `${layer.kind} ${safeLine(layer.name, 80)}`).join(', ')}.`, width)),
  ];
  for (const dimension of REPORT_ORDER) {
    const rows = explanations.filter((row) => row.dimension === dimension);
    if (rows.length === 0) continue;
    lines.push('', palette.bold(dimensionTitle(dimension)));
    for (const group of groups(rows)) lines.push(...groupLines(group, input));
  }
  if (input.untrusted !== undefined) {
    lines.push('', ...flowWords(`Nobody has accepted this job file yet: job trust ${displayPath(input.untrusted.file)}`, width).map(palette.warn));
  }
  for (const warning of job.warnings) lines.push(...flowWords(`Warning: ${safeLine(warning, 400)}`, width).map(palette.warn));
  return `${lines.join('\n')}\n`;
}

/** Rows that say the same of several subjects, from one file: one group. A question has a group of its own. */
function groups(rows: readonly Explanation[]): readonly (readonly Explanation[])[] {
  const found = new Map<string, Explanation[]>();
  for (const row of rows) {
    const place = row.origin === undefined ? '' : `${row.origin.layer} ${row.origin.file ?? row.origin.name}`;
    const key = [row.outcome, row.reason, place, row.subject === '*' || row.allowWith !== undefined ? row.subject : ''].join('\0');
    found.set(key, [...(found.get(key) ?? []), row]);
  }
  return [...found.values()];
}

function groupLines(group: readonly Explanation[], { job, width, palette }: ExplainInput): readonly string[] {
  const [first] = group;
  if (first === undefined) return [];
  const room = width - INDENT.length - OUTCOME;
  const subjects = group
    .slice(0, MOST)
    .flatMap((row) =>
      row.subject === '*' ? [] : [row.subject.startsWith('/') ? displayPath(friendlyPath(row.subject, job.workspace, job.home)) : safeLine(row.subject, 400)],
    );
  const more = group.length > MOST ? [`and ${countWords(group.length - MOST)} more`] : [];
  const body = [...flow([...subjects, ...more], room, '  '), ...flowWords(safeLine(first.reason, 400), room)];
  const where = originWords(group);
  if (where !== undefined) body.push(...flowWords(where, room).map(palette.dim));
  if (first.allowWith !== undefined) body.push(...flowWords(`would allow: ${safeLine(first.allowWith, 400)}`, room));
  const paint = first.outcome === 'denied' ? palette.bad : first.outcome === 'allowed' ? palette.good : palette.warn;
  return labelled(first.outcome, OUTCOME, body, INDENT).map((line, index) =>
    index === 0 ? INDENT + paint(pad(first.outcome, OUTCOME)) + line.slice(INDENT.length + OUTCOME) : line,
  );
}

/** `safe.yaml:12 default_action: deny (mode)`; of a group the first and last line of its file. */
function originWords(group: readonly Explanation[]): string | undefined {
  const [first] = group;
  if (first?.origin === undefined) return undefined;
  const lines = group.flatMap((row) => row.origin?.line ?? []);
  const [low, high] = [Math.min(...lines), Math.max(...lines)];
  const place = lines.length > 0 && low !== high && first.origin.file !== undefined ? `${first.origin.file}:${low}-${high}` : formatOrigin(first.origin);
  const rule =
    group.length === 1 && first.rule !== undefined && first.rule !== first.subject && first.rule !== first.origin.name ? ` ${safeLine(first.rule, 200)}` : '';
  return `${safeLine(place, 300)}${rule} (${first.origin.layer})`;
}
