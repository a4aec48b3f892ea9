import { DIMENSIONS } from '../../core/dimension.ts';
import type { ExecutorCapabilities } from '../../core/plan.ts';
import { safeLine } from '../../core/text-safety.ts';
import { flowWords, labelled, painted, spread } from './layout.ts';
import type { Palette } from './palette.ts';
import { dimensionList } from './words.ts';

/** A fact about the machine or the installation that `job doctor` looked at. */
export interface DoctorCheck {
  readonly name: string;
  readonly ok: boolean;
  readonly found: string;
  /** What to do about it. */
  readonly remedy?: string;
}

export interface DoctorInput {
  readonly version: string;
  readonly checks: readonly DoctorCheck[];
  readonly executors: readonly ExecutorCapabilities[];
  /** Executors that pass --safe here. */
  readonly passSafe: readonly string[];
  readonly width: number;
  readonly palette: Palette;
}

const LABEL = 13;
const INDENT = '  ';

/** What can be enforced here, and what is missing with its remedy; for stdout. */
export function doctorText(input: DoctorInput): string {
  const { width, palette } = input;
  const room = width - LABEL - INDENT.length;
  const [verdict, paint] =
    input.passSafe.length === 0 ? ['--safe is refused here', palette.bad] : [`--safe passes on ${input.passSafe.join(', ')}`, palette.good];
  const lines: string[] = [...painted(spread(`proofrun ${input.version}`, verdict, width), verdict, paint)];
  for (const check of input.checks) {
    lines.push(...labelled(check.name, LABEL, flowWords(safeLine(check.found, 400), room), INDENT).map(check.ok ? (line) => line : palette.bad));
    if (check.remedy !== undefined) lines.push(...remedyLines(check.remedy, room));
  }
  for (const executor of input.executors) {
    lines.push('', `${palette.bold(executor.executor)}  ${executor.available ? safeLine(executor.version, 120) : palette.bad('not available')}`);
    if (executor.reason !== undefined) lines.push(...labelled('why', LABEL, flowWords(safeLine(executor.reason, 600), room), INDENT));
    if (executor.remedy !== undefined) lines.push(...remedyLines(executor.remedy, room));
    if (executor.available) for (const [name, text] of abilities(executor)) lines.push(...labelled(name, LABEL, flowWords(text, room), INDENT));
  }
  return `${lines.join('\n')}\n`;
}

/** A remedy is often a command or a file over several lines: kept as it is, never wrapped. */
function remedyLines(remedy: string, room: number): readonly string[] {
  const lines = remedy.split('\n').map((line) => safeLine(line, 400));
  const [only] = lines;
  return labelled('remedy', LABEL, lines.length === 1 && only !== undefined && !only.includes('  ') ? flowWords(only, room) : lines, INDENT);
}

function abilities(executor: ExecutorCapabilities): readonly (readonly [string, string])[] {
  const { network, subprocess, limits } = executor;
  const yes = (rows: Readonly<Record<string, boolean | string>>): string =>
    Object.entries(rows)
      .flatMap(([name, can]) => (typeof can === 'boolean' ? [`${name} ${can ? 'yes' : 'no'}`] : []))
      .join(', ');
  const by = limits.processesBy === undefined ? '' : `; processes ${safeLine(limits.processesBy, 80)}`;
  return [
    ['runs as', executor.user === 'root' ? 'root' : 'an ordinary user'],
    ['controls', executor.controls.length === 0 ? 'none' : executor.controls.join(', ')],
    ['network', yes(network)],
    ['subprocess', yes(subprocess)],
    ['tree limits', yes({ ...limits }) + by],
    ...(executor.cooperative.length === 0
      ? []
      : [['cooperative', dimensionList(DIMENSIONS.filter((dimension) => executor.cooperative.includes(dimension)))] as const]),
  ];
}
