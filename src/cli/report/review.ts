import type { BundleChanges, DestinationCounters, RunBundle } from '../../core/bundle.ts';
import type { Refusal } from '../../core/plan.ts';
import type { StageState } from '../../core/run.ts';
import { loginLines } from './logins.ts';
import { displayPath, safeLine } from '../../core/text-safety.ts';
import type { Verification } from '../../runner/verify.ts';
import { changeLines } from './change-list.ts';
import { controlLines } from './control-table.ts';
import { runHead } from './head.ts';
import { columnsOf, flow, flowWords, labelled, pad, painted } from './layout.ts';
import type { Palette } from './palette.ts';
import { refusalTable } from './refusal.ts';
import { readableGroups } from './review-facts.ts';
import { allowFlags, destinationWords } from './summary.ts';
import { countWords, durationWords, endingDetail, friendlyPath, lineageWords, observed, plural, sizeWords } from './words.ts';

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

/** The whole account of a run, for `job status --review`; ends with a newline. */
export function reviewText(input: ReviewInput): string {
  const { refusal } = input.bundle;
  const blocks =
    refusal === null
      ? [headLines(input), controlLines(input), factLines(input), changeLines(input)]
      : [headLines(input), controlLines(input), refusedLines(refusal, input)];
  return `${blocks
    .filter((block) => block.length > 0)
    .map((block) => block.join('\n'))
    .join('\n\n')}\n`;
}

function headLines({ bundle, verification, home, width, palette }: ReviewInput): readonly string[] {
  const { run } = bundle;
  const elapsedMs = run.startedMs === null || run.endedMs === null ? null : run.endedMs - run.startedMs;
  const head = runHead({ ...run, elapsedMs }, width, palette);
  const workspace = displayPath(friendlyPath(run.workspace, undefined, home));
  const [seal, paint] = verification.ok
    ? [`bundle verified (sha256 ${bundle.sha256.slice(0, 8)})`, palette.good]
    : [`bundle NOT verified: ${plural(verification.problems.length, 'statement')} can't be derived from its receipts`, palette.bad];
  const problems = verification.problems.slice(0, 10).flatMap((problem) => flowWords(safeLine(problem), width - 2).map((line) => `  ${line}`));
  const detail = bundle.refusal === null ? endingDetail(run.ending) : undefined;
  const from = lineageWords(bundle.lineage);
  return [
    ...head.lines,
    ...painted(flow([workspace, seal], width, '    '), seal, paint),
    ...problems,
    ...(head.cut === undefined ? [] : labelled('COMMAND', LABEL, flowWords(head.cut, width - LABEL))),
    ...(detail === undefined ? [] : labelled('REASON', LABEL, flowWords(detail, width - LABEL))),
    ...(from === undefined ? [] : labelled('STARTED', LABEL, flowWords(from, width - LABEL))),
  ];
}

/** Of a refused job there is nothing else to tell: nothing was started. */
function refusedLines(refusal: Refusal, { width, palette }: ReviewInput): readonly string[] {
  return [
    ...flowWords(`Nothing was started: ${safeLine(refusal.reason, 1000)}.`, width),
    ...(refusal.rows.length === 0 ? [] : ['', ...refusalTable(refusal, width, palette)]),
  ];
}

function factLines(input: ReviewInput): readonly string[] {
  const { bundle, width, palette, home } = input;
  const room = width - LABEL;
  const lines: string[] = [];
  const add = (label: string, body: readonly string[]): void => {
    lines.push(...labelled(label, LABEL, body));
  };
  const shown = (paths: readonly string[]): readonly string[] => listedPaths(paths, input);
  const whole = (paths: readonly string[]): readonly string[] => listedPaths(paths, input, null);

  readableGroups(bundle.hostPaths.readable).forEach(({ paths, meaning }, index) => {
    add(index === 0 ? 'READABLE' : '', flow([...whole(paths), `(${meaning})`], room, ' '));
  });
  if (bundle.hostPaths.readable.length === 0) add('READABLE', ['-']);
  lines.push(...hiddenLines(input, room));
  if (bundle.hostPaths.possiblyRead !== null && bundle.hostPaths.possiblyRead.length > 0) {
    add('READ?', flow([...shown(bundle.hostPaths.possiblyRead), '(appeared under a hidden name; perhaps read)'], room, '  ').map(palette.warn));
  }
  add(
    'DIRECT',
    bundle.directShares.length === 0
      ? flowWords('none: nothing bypassed the stage', room)
      : bundle.directShares.flatMap((share) =>
          flow(
            share.kept === undefined
              ? [...shown([share.path]), `(${safeLine(share.origin, 200)})`]
              : [...whole([share.path]), `(${safeLine(share.origin, 200)}; kept for this workspace in`, ...whole([share.kept]).map((path) => `${path})`)],
            room,
            '  ',
          ).map(palette.warn),
        ),
  );
  const logins = loginLines(bundle.credentials.logins ?? [], home, room);
  if (logins.lines.length > 0) add('LOGIN', logins.bad ? logins.lines.map(palette.bad) : logins.lines);
  add('NETWORK', networkLines(input, room));
  add('FILE OPS', flow(['-', 'the changes below are the record, not counts'], room, '   '));
  add('DISCARDED', flowWords(discardedWords(bundle), room));
  const use = resourceWords(bundle);
  if (use !== undefined) add('RESOURCES', flowWords(use, room));
  add(
    'WARNINGS',
    warningLines(bundle, room).map((line) => (bundle.warnings.length + bundle.killed.length > 0 ? palette.warn(line) : line)),
  );
  return lines;
}

/** Relative to the workspace; with `workspace` null as a person knows the place on the host. */
function listedPaths(paths: readonly string[], { bundle, home }: ReviewInput, workspace: string | null = bundle.run.workspace): readonly string[] {
  const shown = paths.slice(0, MOST_LISTED).map((path) => displayPath(friendlyPath(path, workspace ?? undefined, home)));
  return paths.length > MOST_LISTED ? [...shown, `and ${countWords(paths.length - MOST_LISTED)} more`] : shown;
}

/** HIDDEN and VISIBLE CREDENTIALS share a line when both are short. */
function hiddenLines(input: ReviewInput, room: number): readonly string[] {
  const { bundle, palette } = input;
  const hidden =
    bundle.hostPaths.hidden.length === 0
      ? ['none']
      : listedPaths(
          bundle.hostPaths.hidden.map(({ path }) => path),
          input,
        );
  const logins = listedPaths(
    (bundle.credentials.logins ?? []).map(({ path }) => path),
    input,
    null,
  );
  const visible = [...[...bundle.credentials.visible, ...bundle.credentials.agentSockets].map((name) => safeLine(name, 200)), ...logins];
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
  const counters = [
    `allowed ${observed(network.allowed)}`,
    `denied ${observed(network.denied)}`,
    `failed ${observed(network.failed)}`,
    `bytes out ${network.bytesOut === null ? '-' : network.bytesOut === 0 ? '0' : sizeWords(network.bytesOut)}`,
  ];
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
  const hits = (
    [
      ['', destination.denied],
      ['allowed ', destination.allowed],
      ['failed ', destination.failed],
    ] as const
  )
    .filter(([, count]) => count !== null && count > 0)
    .map(([word, count]) => `${word}${observed(count)}`);
  return [destinationWords(destination), hits.length === 0 ? '-' : hits.join(' '), ...(destination.rule === null ? [] : [safeLine(destination.rule, 200)])];
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
  const words = [
    ...(parts.length === 0 ? [] : [`peak: ${parts.join(', ')}`]),
    ...(hits.length === 0 ? [] : [`limits hit: ${hits.map((hit) => safeLine(hit, 80)).join(', ')}`]),
  ];
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
