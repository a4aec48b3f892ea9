import type { DestinationCounters, RunBundle } from '../../core/bundle.ts';
import type { Change } from '../../core/change.ts';
import { displayPath, safeLine } from '../../core/text-safety.ts';
import { shownPath, tallyOf, tallyWords } from './changes.ts';
import { breakHard, columnsOf, cut, flow, flowWords, labelled, padStart, painted, spread } from './layout.ts';
import { loginLines } from './logins.ts';
import { nextCommands, rerunWith } from './next-commands.ts';
import type { Palette } from './palette.ts';
import { commandWords, countWords, dimensionList, endingClause, endingDetail, friendlyPath, modeOn, plural, shortId, sizeWords } from './words.ts';

export interface SummaryInput {
  readonly bundle: RunBundle;
  /** The command line as typed (after `job`), and the words of it that are the program; for the line that would allow more. */
  readonly argv: readonly string[];
  readonly words: readonly string[];
  /** Where the person is, and their home; paths are shown relative to them. */
  readonly cwd: string;
  readonly home: string | undefined;
  /** How the next commands name the run: `last`, or its id when it isn't the newest. */
  readonly selector: string;
  /** Files that --apply on-success brought into the workspace; undefined: it was not asked for. */
  readonly applied?: number;
  /** Of the profiles in use: what to do where a tool's own sandbox can't nest. Shown when the command failed. */
  readonly hints?: readonly string[];
  readonly width: number;
  readonly palette: Palette;
}

const LABEL = 11;
const INDENT = '  ';
const MOST_PATHS = 8;
const MOST_WARNINGS = 3;

/** The lines after `job run`, for stderr; ends with a newline. */
export function summaryText(input: SummaryInput): string {
  const room = input.width - INDENT.length - LABEL;
  const { palette } = input;
  const lines: string[] = [...headLines(input)];
  const add = (label: string, body: readonly string[], tone: (text: string) => string = palette.dim): void => {
    labelled(label, LABEL, body, INDENT).forEach((line, index) => {
      const head = INDENT.length + label.length;
      lines.push(index === 0 && label !== '' ? INDENT + tone(label) + line.slice(head) : line);
    });
  };

  const detail = endingDetail(input.bundle.run.ending);
  if (detail !== undefined) add('reason', flowWords(detail, room), palette.bad);
  addLevels(input, room, add);
  const { changes, discarded, network, directShares, warnings, hostPaths } = input.bundle;
  if (wroteInPlace(input.bundle)) add('staged', flowWords('nothing: the command wrote your tree itself', room), palette.bad);
  if (changes !== null) add('staged', stagedLines(input, room));
  if (directShares.length > 0) {
    add(
      'direct',
      pathLines(
        directShares.map((share) => share.path),
        input,
        room,
        directShares.every((share) => share.kept !== undefined) ? "the agent's state, kept for this workspace" : 'written without staging',
      ),
      palette.warn,
    );
  }
  const logins = loginLines(input.bundle.credentials.logins ?? [], input.home, room);
  if (logins.lines.length > 0) add('login', logins.lines, logins.bad ? palette.bad : palette.dim);
  if (discarded !== null && discarded.files > 0) {
    add('discarded', flowWords(`${plural(discarded.files, 'file')}, ${sizeWords(discarded.bytes)} written to the private home`, room));
  }
  const hidden = hostPaths.hidden.map(({ path }) => path).filter((path) => path.startsWith(`${input.bundle.run.workspace}/`));
  if (hidden.length > 0) add('hidden', pathLines(hidden, input, room, 'the job saw no such files'));
  const denied = network.destinations?.filter((destination) => (destination.denied ?? 0) > 0) ?? [];
  const refusedByKernel = network.kernelRefused ?? 0;
  if (denied.length > 0) {
    add(
      'denied',
      denied.slice(0, MOST_PATHS).flatMap((destination) => flow(deniedItems(destination), room, '  ')),
      palette.warn,
    );
  } else if (refusedByKernel > 0) add('denied', flowWords(`${plural(refusedByKernel, 'connection')}: no rule allows any network`, room), palette.warn);
  if (denied.length > 0) add('allow it', flowWords(rerunWith(allowFlags(denied), input.argv, input.words), room));
  if (warnings.length > 0) add(warnings.length === 1 ? 'warning' : 'warnings', warningLines(warnings, room), palette.warn);
  const failed = input.bundle.run.ending?.kind === 'exit' && input.bundle.run.ending.code !== 0;
  if (failed) for (const hint of input.hints ?? []) add('hint', flowWords(safeLine(hint, 1200), room));
  add('next', nextLines(input, room));
  return `${lines.join('\n')}\n`;
}

function headLines(input: SummaryInput): readonly string[] {
  const { run } = input.bundle;
  const right = `${shortId(run.id)}  ${modeOn(run.mode, run.executor)}`;
  const elapsed = run.startedMs === null || run.endedMs === null ? null : run.endedMs - run.startedMs;
  const clause = endingClause(run.ending, elapsed);
  // The review has the whole command.
  const command = cut(commandWords(run.argv, 200), Math.max(24, input.width - columnsOf(clause) - 10));
  const left = `job: \`${command}\` ${clause}`;
  const good = run.ending?.kind === 'exit' && run.ending.code === 0;
  const paint = good ? input.palette.good : input.palette.bad;
  // One column is left free: a terminal that is exactly full wraps.
  return painted(spread(left, right, input.width - 1), clause, paint);
}

/** The command ran where no stage could be planned: what it changed is changed. */
export function wroteInPlace({ plan, run, changes }: RunBundle): boolean {
  return changes === null && run.startedMs !== null && plan !== null && plan.dimensions.file_write.level !== 'planned';
}

type Add = (label: string, body: readonly string[], tone?: (text: string) => string) => void;

function addLevels(input: SummaryInput, room: number, add: Add): void {
  const { safety, plan } = input.bundle;
  if (plan === null) return;
  const notAsked = safety.notAsked.length === 0 ? '' : `not asked: ${dimensionList(safety.notAsked)}`;
  const enforced = safety.enforced.length === 0 ? ['nothing'] : flowWords(dimensionList(safety.enforced), room);
  const last = enforced.at(-1) ?? '';
  const gap = room - 1 - columnsOf(last) - columnsOf(notAsked);
  const body =
    notAsked === ''
      ? enforced
      : gap >= 2
        ? [...enforced.slice(0, -1), last + ' '.repeat(gap) + notAsked]
        : [...enforced, ...flowWords(notAsked, room).map((line) => padStart(line, room - 1))];
  add('enforced', body, safety.enforced.length === 0 ? input.palette.bad : input.palette.good);
  if (safety.cooperative.length > 0) {
    add('bypassable', flowWords(`${dimensionList(safety.cooperative)} (cooperative: the command can go around it)`, room), input.palette.warn);
  }
  if (safety.unenforced.length > 0) add('unenforced', flowWords(dimensionList(safety.unenforced), room), input.palette.bad);
  if (plan.waived.length > 0) add('waived', flowWords(`${dimensionList(plan.waived)} by --degrade`, room), input.palette.warn);
}

function stagedLines(input: SummaryInput, room: number): readonly string[] {
  const { changes, run } = input.bundle;
  if (changes === null) return [];
  const tally = tallyOf(changes);
  const outcome = input.applied === undefined ? 'your tree is unchanged' : `${countWords(input.applied)} applied to your tree`;
  const lines = [...flowWords(tally.files + tally.directories === 0 ? 'nothing' : `${tallyWords(tally)}; ${outcome}`, room)];
  const { executes } = nextCommands(changes, run.workspace, input.cwd);
  if (executes.length > 0) {
    const paths = executes.slice(0, MOST_PATHS).map((change: Change) => shownPath(change, changes, run.workspace, input.home));
    const more = executes.length > MOST_PATHS ? [`and ${countWords(executes.length - MOST_PATHS)} more`] : [];
    const words = `${countWords(executes.length)} would run by ${executes.length === 1 ? 'itself' : 'themselves'} on your machine:`;
    lines.push(...flow([words, ...paths, ...more], room, ' ').map(input.palette.warn));
  }
  if (tally.conflicts > 0) lines.push(...flowWords(`${plural(tally.conflicts, 'conflict')}: changed here since the run began`, room).map(input.palette.bad));
  return lines;
}

function pathLines(paths: readonly string[], input: SummaryInput, room: number, meaning: string): readonly string[] {
  const { workspace } = input.bundle.run;
  const shown = paths.slice(0, MOST_PATHS).map((path) => displayPath(friendlyPath(path, workspace, input.home)));
  const more = paths.length > MOST_PATHS ? [`and ${countWords(paths.length - MOST_PATHS)} more`] : [];
  const line = [...shown, ...more].join('  ');
  return columnsOf(line) + 5 + meaning.length <= room ? [`${line}     ${meaning}`] : [...flow([...shown, ...more], room, '  '), meaning];
}

function deniedItems(destination: DestinationCounters): readonly string[] {
  const times = destination.denied === 1 ? 'once' : `${countWords(destination.denied ?? 0)} times`;
  const why = destination.rule === null || destination.rule.includes('default_action') ? 'no rule allows it' : safeLine(destination.rule, 200);
  return [destinationWords(destination), `${times}: ${why}`];
}

/** `host:port`, or the name alone when it was only looked up. */
export function destinationWords({ host, port }: DestinationCounters): string {
  return port === null ? safeLine(host, 300) : `${safeLine(host, 300)}:${port}`;
}

/** Ports 80 and 443 are what a rule without a port means. */
export function allowFlags(destinations: readonly DestinationCounters[]): readonly string[] {
  const rules = destinations.map(({ host, port }) => (port === null || port === 80 || port === 443 ? host : `${host}:${port}`));
  return [...new Set(rules)].slice(0, 4).flatMap((rule) => ['--allow-net', rule]);
}

function warningLines(warnings: readonly string[], room: number): readonly string[] {
  const lines = warnings.slice(0, MOST_WARNINGS).flatMap((warning) => flowWords(safeLine(warning, 400), room));
  return warnings.length > MOST_WARNINGS ? [...lines, `and ${countWords(warnings.length - MOST_WARNINGS)} more in the review`] : lines;
}

function nextLines(input: SummaryInput, room: number): readonly string[] {
  const { changes, run } = input.bundle;
  const lines = [`job status --review ${input.selector}`];
  if (changes === null || input.applied !== undefined) return lines;
  const { applyPath } = nextCommands(changes, run.workspace, input.cwd);
  if (changes.changes.length === 0) return lines;
  const apply = `job apply ${input.selector}${applyPath === undefined ? '' : ` --path ${applyPath}`}`;
  const both = `${apply}    or    job drop ${input.selector}`;
  return columnsOf(both) <= room ? [...lines, both] : [...lines, ...breakHard(apply, room), `job drop ${input.selector}`];
}
