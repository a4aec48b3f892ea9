import type { ExecutorPlan } from '../../core/plan.ts';
import { safeLine } from '../../core/text-safety.ts';
import { flow, flowWords, labelled, pad, spread } from './layout.ts';
import type { Palette } from './palette.ts';
import { commandWords, dimensionList, dimensionTitle, modeOn, REPORT_ORDER } from './words.ts';

export interface PlanInput {
  readonly plan: ExecutorPlan;
  readonly width: number;
  readonly palette: Palette;
}

const TABLE = [14, 20, 14] as const;

/** `job run --dry-run`: what would be installed, and that none of it is evidence; for stdout. */
export function planText({ plan, width, palette }: PlanInput): string {
  const { job } = plan;
  const lines = [
    ...spread(`plan: \`${commandWords(job.argv, 200)}\``, modeOn(plan.mode, plan.executor), width - 1),
    ...flowWords(`Executor: ${safeLine(plan.executorReason)}.`, width),
    ...(plan.image === undefined ? [] : flowWords(`Image: ${safeLine(plan.image.reference, 200)} (${plan.image.id.slice(0, 19)}).`, width)),
    ...flowWords(`Workspace: ${safeLine(job.workspace)}; starts in ${safeLine(job.cwd)}.`, width),
    '',
    palette.bold(pad('CONTROL', TABLE[0]) + pad('REQUESTED', TABLE[1]) + pad('PLAN', TABLE[2]) + 'NEEDED'),
  ];
  for (const dimension of REPORT_ORDER) {
    const row = plan.dimensions[dimension];
    const needed = plan.needed.includes(dimension) ? 'yes' : plan.waived.includes(dimension) ? 'waived' : 'no';
    const asked = flowWords(safeLine(row.asked, 200), TABLE[1] - 1);
    lines.push((pad(dimensionTitle(dimension), TABLE[0]) + pad(asked[0] ?? '-', TABLE[1]) + pad(row.level, TABLE[2]) + needed).trimEnd());
    lines.push(...asked.slice(1).map((line) => ' '.repeat(TABLE[0]) + line));
  }
  lines.push('');
  for (const dimension of REPORT_ORDER) {
    const { scope, reason, controls, requested, level } = plan.dimensions[dimension];
    if (!requested && !plan.needed.includes(dimension) && level === 'unsupported') continue;
    const words = [level === 'unsupported' ? '' : scope, reason ?? ''].filter((text) => text !== '').map((text) => safeLine(text, 400));
    const body = [...words.flatMap((text) => flowWords(text, width - TABLE[0])), ...flow(controls, width - TABLE[0], ' ').map(palette.dim)];
    lines.push(...labelled(dimensionTitle(dimension), TABLE[0], body));
  }
  if (job.layers.length > 0) lines.push(...hanging('Rules from: ', job.layers.map((layer) => `${layer.kind} ${safeLine(layer.name, 80)}`).join(', '), width));
  if (plan.waived.length > 0) lines.push(...flowWords(`Waived by --degrade: ${dimensionList(plan.waived)}.`, width).map(palette.warn));
  for (const hint of job.hints ?? []) lines.push(...hanging('Hint: ', safeLine(hint, 1200), width));
  for (const warning of [...new Set([...job.warnings, ...plan.warnings])]) lines.push(...hanging('Warning: ', safeLine(warning, 600), width).map(palette.warn));
  lines.push(...flow(['Nothing was started.', 'A plan is not evidence.'], width, ' ').map(palette.dim));
  return `${lines.join('\n')}\n`;
}

function hanging(label: string, text: string, width: number): readonly string[] {
  return flowWords(text, width - 2).length === 1 && label.length + text.length <= width
    ? [label + text]
    : flowWords(label + text, width - 2).map((line, index) => (index === 0 ? line : `  ${line}`));
}
