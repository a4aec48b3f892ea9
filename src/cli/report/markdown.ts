import type { RunBundle } from '../../core/bundle.ts';
import type { Refusal } from '../../core/plan.ts';
import { displayPath, safeLine } from '../../core/text-safety.ts';
import { changeRows, tallyNumbers, tallyOf } from './changes.ts';
import { mismatches, readableGroups, scopesOf } from './review-facts.ts';
import type { ReviewInput } from './review.ts';
import { allowFlags, destinationWords } from './summary.ts';
import {
  commandWords,
  countWords,
  dateWords,
  dimensionList,
  dimensionTitle,
  durationWords,
  endingWords,
  friendlyPath,
  modeOn,
  observed,
  REPORT_ORDER,
  shortId,
  sizeWords,
} from './words.ts';

const MOST_LISTED = 20;

/** The review as a comment for a pull request (GitHub-flavoured Markdown). Nothing that the job chose can become markup, a link or a mention. */
export function reviewMarkdown(input: Omit<ReviewInput, 'width' | 'palette'>): string {
  const rest = input.bundle.refusal === null ? [...facts(input), '', ...changes(input)] : refused(input.bundle.refusal);
  return `${[...head(input), '', ...controls(input.bundle), '', ...rest].join('\n')}\n`;
}

function head({ bundle, verification, home }: Omit<ReviewInput, 'width' | 'palette'>): readonly string[] {
  const { run } = bundle;
  const elapsed = run.startedMs === null || run.endedMs === null ? '' : ` after ${durationWords(run.endedMs - run.startedMs)}`;
  const seal = verification.ok
    ? `bundle verified, sha256 ${code(bundle.sha256.slice(0, 8))}`
    : `**bundle not verified**: ${verification.problems.slice(0, 5).map(code).join(', ')}`;
  return [
    `### ${code(commandWords(run.argv, 200))}: ${endingWords(run.ending)}${elapsed}`,
    '',
    `${code(shortId(run.id))}, ${modeOn(run.mode, run.executor)}, ${dateWords(run.recordedMs)}, workspace ${code(displayPath(friendlyPath(run.workspace, undefined, home)))}; ${seal}.`,
  ];
}

function controls(bundle: RunBundle): readonly string[] {
  const rows = REPORT_ORDER.map((dimension) => {
    const safety = bundle.safety.dimensions[dimension];
    const plan = bundle.plan?.dimensions[dimension];
    const count = (owed: { readonly matched: number; readonly owed: number }): string => (owed.owed === 0 ? '-' : `${owed.matched} of ${owed.owed}`);
    const asked = plan?.asked ?? (safety.requested ? 'requested' : '-');
    return `| ${dimensionTitle(dimension)} | ${asked === '-' ? '-' : code(asked)} | ${bundle.plan === null ? '-' : safety.planned} | ${count(safety.installed)} | ${safety.observed === 'enforced' ? '**enforced**' : safety.observed} | ${count(safety.probes)} |`;
  });
  const scopes = bundle.refusal === null ? scopesOf(bundle) : [];
  return [
    '| Control | Requested | Plan | Installed | Observed | Probes |',
    '| --- | --- | --- | --- | --- | --- |',
    ...rows,
    '',
    ...(scopes.length === 0 ? [] : [`Scope: ${scopes.map(({ dimension, scope }) => `${dimensionList([dimension])} ${code(scope)}`).join('; ')}.`, '']),
    ...mismatches(bundle)
      .slice(0, MOST_LISTED)
      .map((line) => `- ${code(line)}`),
    'No line strengthens another. `-`: not observed. `0`: observed, no hits.',
  ];
}

function refused(refusal: Refusal): readonly string[] {
  return [
    `**Refused, nothing was started**: ${code(refusal.reason)}`,
    ...refusal.rows.flatMap((row) => [
      `- **${dimensionTitle(row.dimension)}** needed ${code(row.needed)}, planned ${row.planned}: ${code(row.missing)}`,
      ...(row.change === undefined ? [] : [`  - ${code(row.change.command)} gives up ${code(row.change.givesUp)}`]),
    ]),
  ];
}

function facts({ bundle, home }: Omit<ReviewInput, 'width' | 'palette'>): readonly string[] {
  const { hostPaths, directShares, network, discarded, credentials } = bundle;
  const paths = (list: readonly string[]): string => {
    const shown = list.slice(0, MOST_LISTED).map((path) => code(displayPath(friendlyPath(path, bundle.run.workspace, home))));
    return [...shown, ...(list.length > MOST_LISTED ? [`and ${countWords(list.length - MOST_LISTED)} more`] : [])].join(' ');
  };
  const denied = network.destinations?.filter((destination) => (destination.denied ?? 0) > 0) ?? [];
  const visible = [...credentials.visible, ...credentials.agentSockets, ...(credentials.logins ?? []).map(({ path }) => path)];
  const warnings = [...bundle.warnings, ...bundle.killed.map(({ pid, name }) => `${name} (pid ${pid}) outlived the command; killed`)];
  return [
    `- **Readable**: ${
      readableGroups(hostPaths.readable)
        .map((group) => `${paths(group.paths)} (${group.meaning})`)
        .join('; ') || '-'
    }`,
    `- **Hidden**: ${hostPaths.hidden.length === 0 ? 'none' : paths(hostPaths.hidden.map(({ path }) => path))}`,
    `- **Visible credentials**: ${visible.length === 0 ? 'none' : visible.map(code).join(' ')}`,
    `- **Direct**: ${directShares.length === 0 ? 'none: nothing bypassed the stage' : directShares.map((share) => `${paths([share.path])} (${code(share.origin)})`).join(', ')}`,
    `- **Network**: allowed ${observed(network.allowed)}, denied ${observed(network.denied)}, failed ${observed(network.failed)}, bytes out ${observed(network.bytesOut)}`,
    ...denied
      .slice(0, MOST_LISTED)
      .map(
        (destination) =>
          `  - ${code(destinationWords(destination))} denied ${observed(destination.denied)}${destination.rule === null ? '' : `: ${code(destination.rule)}`}`,
      ),
    ...(denied.length === 0 ? [] : [`  - would allow: ${code(allowFlags(denied).join(' '))}`]),
    `- **Discarded**: ${discarded === null ? '-' : `${countWords(discarded.files)} files, ${sizeWords(discarded.bytes)}`}`,
    `- **Warnings**: ${warnings.length === 0 ? 'none' : ''}`,
    ...warnings.slice(0, MOST_LISTED).map((warning) => `  - ${code(warning)}`),
  ].map((line) => line.trimEnd());
}

function changes({ bundle, changes: set, selector, home }: Omit<ReviewInput, 'width' | 'palette'>): readonly string[] {
  if (set === null) return ['**Changes**: -'];
  const tally = tallyOf(set);
  const title = `**Changes**: ${set.changes.length === 0 ? 'none' : tallyNumbers(tally)}, conflicts ${tally.conflicts}`;
  if (set.changes.length === 0) return [title];
  const { rows, leftOut } = changeRows(set, bundle.run.workspace, home);
  const marks = { ' ': '', '!': 'runs by itself', C: 'conflict', '>': 'leaves the workspace', x: 'not applicable' } as const;
  return [
    title,
    '',
    '| | Path | Lines | Note |',
    '| --- | --- | --- | --- |',
    ...rows.map((row) => {
      const lines = row.added === null && row.removed === null ? '' : `+${row.added ?? 0} -${row.removed ?? 0}`;
      const note = [...(marks[row.mark] === '' ? [] : [`**${marks[row.mark]}**`]), ...(row.note === '' ? [] : [code(row.note)])].join(' ');
      return `| ${row.letter} | ${code(row.path)} | ${lines} | ${note} |`;
    }),
    ...(leftOut === 0 ? [] : ['', `and ${countWords(leftOut)} more`]),
    '',
    "Apply can't undo remote calls, database writes or messages.",
    '',
    `${code(`job status --review ${selector}`)}, ${code(`job apply ${selector} --path PATH`)} or ${code(`job drop ${selector}`)}.`,
  ];
}

/** A code span that holds any text: a longer fence than the text has, and no `|` that would end a table cell. */
function code(text: string): string {
  const safe = safeLine(text, 1200);
  const longest = Math.max(0, ...[...safe.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = '`'.repeat(longest + 1);
  const inner = safe.replaceAll('|', '\\|');
  return longest > 0 || inner.startsWith(' ') ? `${fence} ${inner} ${fence}` : `${fence}${inner}${fence}`;
}
