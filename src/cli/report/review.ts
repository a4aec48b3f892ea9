import type { BundleChanges, DestinationCounters, ReceiptCount, RunBundle } from '../../core/bundle.ts';
import type { Dimension } from '../../core/dimension.ts';
import type { StageState } from '../../core/run.ts';
import { displayPath, safeLine } from '../../core/text-safety.ts';
import type { Verification } from '../../runner/verify.ts';
import { changeRows, tallyNumbers, tallyOf, type ChangeRow } from './changes.ts';
import { columnsOf, flow, flowWords, labelled, pad, spread } from './layout.ts';
import { mismatches, readableGroups, scopeSentences } from './review-facts.ts';
import { nextCommands } from './next-commands.ts';
import type { Palette } from './palette.ts';
import { allowFlags } from './summary.ts';
import { commandWords, countWords, dateWords, dimensionList, dimensionTitle, durationWords, endingDetail, endingWords, friendlyPath, levelTone, modeOn, observed, plural, REPORT_ORDER, shortId, sizeWords } from './words.ts';

export interface ReviewInput {
  readonly bundle: RunBundle;
  /** How the bundle came through `job verify`. */
  readonly verification: Verification;
  /** The change set as it is now, with conflicts looked for again; the bundle's own when nothing has moved on. */
  readonly changes: BundleChanges | null;
  readonly stage: StageState;
  /** How the next commands name the run. */
  readonly selector: string;
  readonly cwd: string;
  readonly home: string | undefined;
  readonly width: number;
  readonly palette: Palette;
}

const LABEL = 11;
const MOST_LISTED = 20;
/** Widths of the control table; the last column takes what is left. */
const TABLE = [14, 16, 13, 11, 12] as const;
/** With a last column such as `12 of 12`; a narrower terminal gets two lines a control. */
const TABLE_WIDTH = 74;

/** The whole account of a run, for `job status --review`; ends with a newline. */
export function reviewText(input: ReviewInput): string {
  const blocks = [headLines(input), controlLines(input), factLines(input), changeLines(input)];
  return `${blocks
    .filter((block) => block.length > 0)
    .map((block) => block.join('\n'))
    .join('\n\n')}\n`;
}

function headLines({ bundle, verification, home, width, palette }: ReviewInput): readonly string[] {
  const { run } = bundle;
  const elapsed = run.startedMs === null || run.endedMs === null ? [] : [durationWords(run.endedMs - run.startedMs)];
  const parts = [palette.bold(shortId(run.id)), commandWords(run.argv, 200), endingWords(run.ending), ...elapsed, dateWords(run.recordedMs), modeOn(run.mode, run.executor)];
  const workspace = displayPath(friendlyPath(run.workspace, undefined, home));
  const seal =
    verification.ok
      ? palette.good(`bundle verified (sha256 ${bundle.sha256.slice(0, 8)})`)
      : palette.bad(`bundle NOT verified: ${plural(verification.problems.length, 'statement')} can't be derived from its receipts`);
  const problems = verification.problems.slice(0, 10).flatMap((problem) => flowWords(safeLine(problem), width - 2).map((line) => `  ${line}`));
  const detail = endingDetail(run.ending);
  return [
    ...flow(parts, width, '  '),
    ...flow([workspace, seal], width, '    '),
    ...problems,
    ...(detail === undefined ? [] : labelled('REASON', LABEL, flowWords(detail, width - LABEL))),
  ];
}

function controlLines(input: ReviewInput): readonly string[] {
  const { bundle, width, palette } = input;
  const lines = [...controlTable(input)];
  const scopes = scopeSentences(bundle);
  if (scopes.length > 0) lines.push(...flowWords(`Scope: ${scopes.join('; ')}.`, width));
  const wrong = mismatches(bundle);
  for (const line of wrong.slice(0, MOST_LISTED)) lines.push(...flowWords(line, width).map(palette.bad));
  if (wrong.length > MOST_LISTED) lines.push(palette.bad(`and ${countWords(wrong.length - MOST_LISTED)} more: job status ${input.selector} --json`));
  if (bundle.safety.missing.length > 0) lines.push(...flowWords(`Needed by --${bundle.run.mode} and not enforced: ${dimensionList(bundle.safety.missing)}.`, width).map(palette.bad));
  if (bundle.plan !== null && bundle.plan.waived.length > 0) lines.push(...flowWords(`Waived by --degrade: ${dimensionList(bundle.plan.waived)}.`, width).map(palette.warn));
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
      const line = pad(row.title, title) + pad(first, asked) + pad(row.plan, plan) + pad(row.installed, installed) + row.paint(pad(row.observed, observedWidth)) + row.probes;
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

function factLines(input: ReviewInput): readonly string[] {
  const { bundle, width, palette } = input;
  const room = width - LABEL;
  const lines: string[] = [];
  const add = (label: string, body: readonly string[]): void => {
    lines.push(...labelled(label, LABEL, body));
  };
  const shown = (paths: readonly string[]): readonly string[] => listedPaths(paths, input);

  readableGroups(bundle.hostPaths.readable).forEach(({ paths, meaning }, index) => {
    add(index === 0 ? 'READABLE' : '', flow([...shown(paths), `(${meaning})`], room, ' '));
  });
  if (bundle.hostPaths.readable.length === 0) add('READABLE', ['-']);
  lines.push(...hiddenLines(input, room));
  if (bundle.hostPaths.possiblyRead !== null && bundle.hostPaths.possiblyRead.length > 0) {
    add('READ?', flow([...shown(bundle.hostPaths.possiblyRead), '(appeared under a hidden name; perhaps read)'], room, '  ').map(palette.warn));
  }
  add('DIRECT', bundle.directShares.length === 0 ? flowWords('none: nothing bypassed the stage', room) : bundle.directShares.flatMap((share) => flow([...shown([share.path]), `(${safeLine(share.origin, 200)})`], room, '  ').map(palette.warn)));
  add('NETWORK', networkLines(input, room));
  add('FILE OPS', flow(['-', 'the changes below are the record, not counts'], room, '   '));
  add('DISCARDED', flowWords(discardedWords(bundle), room));
  const use = resourceWords(bundle);
  if (use !== undefined) add('RESOURCES', flowWords(use, room));
  add('WARNINGS', warningLines(bundle, room).map((line) => (bundle.warnings.length + bundle.killed.length > 0 ? palette.warn(line) : line)));
  return lines;
}

function listedPaths(paths: readonly string[], { bundle, home }: ReviewInput): readonly string[] {
  const shown = paths.slice(0, MOST_LISTED).map((path) => displayPath(friendlyPath(path, bundle.run.workspace, home)));
  return paths.length > MOST_LISTED ? [...shown, `and ${countWords(paths.length - MOST_LISTED)} more`] : shown;
}

/** HIDDEN and VISIBLE CREDENTIALS share a line when both are short. */
function hiddenLines(input: ReviewInput, room: number): readonly string[] {
  const { bundle, palette } = input;
  const hidden = bundle.hostPaths.hidden.length === 0 ? ['none'] : listedPaths(bundle.hostPaths.hidden.map(({ path }) => path), input);
  const visible = [...bundle.credentials.visible, ...bundle.credentials.agentSockets].map((name) => safeLine(name, 200));
  const left = labelled('HIDDEN', LABEL, flow(hidden, room, '  '));
  const right = `VISIBLE CREDENTIALS  ${visible.length === 0 ? 'none' : visible.join(' ')}`;
  const [only, ...more] = left;
  if (only !== undefined && more.length === 0 && columnsOf(only) <= 37 && 38 + columnsOf(right) <= input.width) {
    return [pad(only, 38) + (visible.length === 0 ? right : palette.warn(right))];
  }
  const names = flow(['VISIBLE CREDENTIALS ', ...(visible.length === 0 ? ['none'] : visible)], input.width, ' ');
  return [...left, ...(visible.length === 0 ? names : names.map(palette.warn))];
}

function networkLines({ bundle, palette }: ReviewInput, room: number): readonly string[] {
  const { network } = bundle;
  const counters = [`allowed ${observed(network.allowed)}`, `denied ${observed(network.denied)}`, `failed ${observed(network.failed)}`, `bytes out ${network.bytesOut === null ? '-' : network.bytesOut === 0 ? '0' : sizeWords(network.bytesOut)}`];
  if (network.kernelRefused !== null) counters.push(`refused by the kernel ${countWords(network.kernelRefused)}`);
  const lines = [...flow(counters, room, '   ')];
  if (network.kind === 'public') lines.push(...flowWords('public: nothing was filtered', room).map(palette.warn));
  const destinations = network.destinations ?? [];
  for (const destination of destinations.slice(0, MOST_LISTED)) lines.push(...flow(destinationItems(destination), room, '  '));
  if (destinations.length > MOST_LISTED) lines.push(`and ${plural(destinations.length - MOST_LISTED, 'more destination')}`);
  const denied = destinations.filter((destination) => (destination.denied ?? 0) > 0);
  if (denied.length > 0) lines.push(...flow(['would allow:', ...pairs(allowFlags(denied))], room, ' '));
  for (const route of network.gatewayRoutes ?? []) lines.push(`${route.kind}: ${safeLine(route.name, 200)}  ${observed(route.calls)}`);
  return lines;
}

function destinationItems(destination: DestinationCounters): readonly string[] {
  const hits = ([['', destination.denied], ['allowed ', destination.allowed], ['failed ', destination.failed]] as const).filter(([, count]) => count !== null && count > 0).map(([word, count]) => `${word}${observed(count)}`);
  return [`${safeLine(destination.host, 300)}:${destination.port}`, hits.length === 0 ? '-' : hits.join(' '), ...(destination.rule === null ? [] : [safeLine(destination.rule, 200)])];
}

/** `--allow-net a --allow-net b` as two items, so that a line break never parts a flag from its value. */
function pairs(flags: readonly string[]): readonly string[] {
  const items: string[] = [];
  for (let index = 0; index < flags.length; index += 2) items.push(`${flags[index] ?? ''} ${safeLine(flags[index + 1] ?? '', 300)}`);
  return items;
}

function discardedWords({ discarded }: RunBundle): string {
  if (discarded === null) return '-';
  const top = discarded.top.slice(0, 4).map(({ path, files }) => `${displayPath(path)} ${countWords(files)}`);
  return `${plural(discarded.files, 'file')}, ${sizeWords(discarded.bytes)}${top.length === 0 ? '' : ` (${top.join(', ')})`}`;
}

/** Peaks and limits that were hit; undefined when nobody observed any. */
function resourceWords({ resources }: RunBundle): string | undefined {
  const { peak, hits } = resources;
  const parts = [
    ...(peak.memoryBytes === null ? [] : [`memory ${sizeWords(peak.memoryBytes)}`]),
    ...(peak.processes === null ? [] : [plural(peak.processes, 'process', 'processes')]),
    ...(peak.cpuTimeMs === null ? [] : [`processor time ${durationWords(peak.cpuTimeMs)}`]),
  ];
  const words = [...(parts.length === 0 ? [] : [`peak: ${parts.join(', ')}`]), ...(hits.length === 0 ? [] : [`limits hit: ${hits.map((hit) => safeLine(hit, 80)).join(', ')}`])];
  return words.length === 0 ? undefined : words.join('; ');
}

function warningLines(bundle: RunBundle, room: number): readonly string[] {
  const named = new Set(bundle.warnings);
  const killed = bundle.killed.map(({ pid, name }) => `${name} (pid ${pid}) outlived the command; killed`).filter((warning) => !named.has(warning));
  const all = [...bundle.warnings, ...killed].map((warning) => safeLine(warning, 400));
  const [only] = all;
  if (only === undefined) return ['none'];
  if (all.length === 1) return flowWords(`1: ${only}`, room);
  const lines = all.slice(0, MOST_LISTED).flatMap((warning) => flowWords(warning, room - 2).map((line, index) => (index === 0 ? `- ${line}` : `  ${line}`)));
  return [`${countWords(all.length)}:`, ...lines, ...(all.length > MOST_LISTED ? [`and ${countWords(all.length - MOST_LISTED)} more`] : [])];
}

function changeLines(input: ReviewInput): readonly string[] {
  const { bundle, changes, width, palette, selector } = input;
  if (changes === null) return [...labelled('CHANGES', LABEL, ['-   the stage was not read'])];
  const tally = tallyOf(changes);
  const stage = input.stage === 'staged' || input.stage === 'none' ? '' : ` (${input.stage.replace('_', ' ')})`;
  const head = `${pad('CHANGES', LABEL)}${tally.files + tally.directories === 0 ? 'none' : tallyNumbers(tally)}${stage}`;
  const lines: string[] = spread(head, `conflicts ${tally.conflicts}`, Math.min(width, 63)).map(palette.bold);
  if (changes.changes.length === 0) return lines;
  const { rows, leftOut } = changeRows(changes, bundle.run.workspace, input.home);
  lines.push(...layoutRows(rows, width, palette));
  if (leftOut > 0) lines.push(...flowWords(`and ${countWords(leftOut)} more: job diff ${selector} --stat`, width));
  lines.push(...flowWords("Apply can't undo remote calls, database writes or messages.", width));
  if (input.stage === 'staged' || input.stage === 'partly_applied') lines.push(...decisionLines(input, changes, tally.files + tally.directories));
  return lines;
}

/** Rows in columns: mark, letter, path, numbers, note. A long path keeps its line; numbers and note go below it. */
export function layoutRows(rows: readonly ChangeRow[], width: number, palette: Palette): readonly string[] {
  const widest = Math.max(26, ...rows.map((row) => columnsOf(row.path)));
  const column = Math.max(12, Math.min(widest + 2, 30, width - 22));
  const addedWidth = Math.max(3, ...rows.map((row) => String(row.added ?? 0).length + 1)) + 1;
  const removedWidth = Math.max(3, ...rows.map((row) => String(row.removed ?? 0).length + 1)) + 2;
  return rows.flatMap((row) => {
    const head = `${row.mark} ${row.letter} `;
    const added = row.added === null || row.added === 0 ? '' : `+${row.added}`;
    const removed = row.removed === null || row.removed === 0 ? '' : `-${row.removed}`;
    const numbers = row.added === null && row.removed === null ? '' : pad(added, addedWidth) + pad(removed, removedWidth);
    const offset = 4 + column;
    const room = width - offset - numbers.length;
    const beside = room >= 16 && row.note !== '' ? flowWords(row.note, room) : [];
    const below = room < 16 && row.note !== '' ? flowWords(row.note, width - 6).map((line) => `      ${line}`) : [];
    const tail = [`${numbers}${beside[0] ?? ''}`.trimEnd(), ...beside.slice(1).map((line) => ' '.repeat(numbers.length) + line)];
    const pathLines = flow([row.path], width - 4, '');
    const paint = row.mark === '!' || row.mark === '>' ? palette.warn : row.mark === 'C' || row.mark === 'x' ? palette.bad : (text: string): string => text;
    const [first = '', ...rest] = pathLines;
    if (rest.length === 0 && columnsOf(first) <= column - 1) {
      return [`${paint(head)}${pad(first, column)}${tail[0] ?? ''}`.trimEnd(), ...tail.slice(1).map((line) => ' '.repeat(offset) + line), ...below];
    }
    return [`${paint(head)}${first}`, ...rest.map((line) => `    ${line}`), ...tail.filter((line) => line !== '').map((line) => ' '.repeat(offset) + line), ...below];
  });
}

function decisionLines(input: ReviewInput, changes: BundleChanges, count: number): readonly string[] {
  const { selector, width, bundle, cwd } = input;
  const next = nextCommands(changes, bundle.run.workspace, cwd);
  const commands = [
    ...(next.diffPath === undefined ? [] : [`job diff ${selector} ${next.diffPath}`]),
    ...(next.applyPath === undefined ? [] : [`job apply ${selector} --path ${next.applyPath}`]),
    `job drop ${selector}`,
  ];
  const all = `all ${countWords(count)}: job apply ${selector}${next.allowExec === '' ? '' : ` ${next.allowExec}`}`;
  return [...flow(commands, width, ' | '), ...flowWords(all, width)];
}
