import { exitCodeRows } from './exit-codes.ts';
import { COMMAND_GROUPS, COMMAND_NAMES, type CommandName, commandRow } from './command-table.ts';
import { FLAG_SECTIONS, type FlagKey, flagRow, flagsOf, flagText } from './flags.ts';
import type { HelpTopic } from './parse.ts';
import { wrapText } from './wrap.ts';

const WIDTH = 80;

/** Help on a topic, or the list of commands. 80 columns, ends with a newline. */
export function formatHelp(topic: HelpTopic | undefined): string {
  if (topic === undefined) {
    return commandList();
  }
  if (topic === 'exit-codes') {
    return exitCodeList();
  }
  if (typeof topic === 'object') {
    return familyHelp(topic.family);
  }
  return commandHelp(topic);
}

function commandList(): string {
  const lines = [
    'Usage: job COMMAND [FLAGS]',
    '',
    ...wrapText(
      'Runs a command that you do not fully trust in a sandbox, stages its file changes, and keeps an account of what was really enforced. You review, then apply or drop.',
      WIDTH,
    ),
    '',
  ];
  for (const group of COMMAND_GROUPS) {
    lines.push(`${group}:`);
    lines.push(
      ...columnLines(
        COMMAND_NAMES.filter((name) => commandRow(name).group === group).map((name) => [name, commandRow(name).summary]),
        18,
      ),
    );
    lines.push('');
  }
  lines.push('Start with:', '  job run --safe -- npm test', '  job status --review last', '  job apply last --path src    or    job drop last', '');
  lines.push('job help COMMAND explains one; job help exit-codes lists them.');
  return `${lines.join('\n')}\n`;
}

function familyHelp(family: string): string {
  const members = COMMAND_NAMES.filter((name) => name.startsWith(`${family} `));
  const lines = [
    `Usage: job ${family} COMMAND [FLAGS]`,
    '',
    ...columnLines(
      members.map((name) => [name, commandRow(name).summary]),
      18,
    ),
    '',
    `job help ${members[0] ?? family} explains one.`,
  ];
  return `${lines.join('\n')}\n`;
}

function commandHelp(name: CommandName): string {
  const row = commandRow(name);
  const usage = row.words.split(' | ').map((words) => `job ${name} [FLAGS]${words === '' ? '' : ` ${words}`}`);
  const lines = [`Usage: ${usage[0] ?? ''}`, ...usage.slice(1).map((line) => `       ${line}`), '', `${row.summary}.`];
  for (const paragraph of row.about) {
    lines.push('', ...wrapText(paragraph, WIDTH));
  }
  const keys = flagsOf(name);
  for (const section of FLAG_SECTIONS) {
    const rows = keys.filter((key) => flagRow(key).section === section);
    if (rows.length > 0) {
      lines.push(
        '',
        `${section}:`,
        ...columnLines(
          rows.map((key) => [flagSynopsis(key), flagHelp(key)]),
          30,
        ),
      );
    }
  }
  if (row.examples.length > 0) {
    lines.push('', 'Examples:');
    for (const [line, meaning] of row.examples) {
      lines.push(`  ${line}`, ...(meaning === '' ? [] : [`      ${meaning}`]));
    }
  }
  return `${lines.join('\n')}\n`;
}

/** `-e, --env NAME[=VALUE]`, or `    --safe`. */
export function flagSynopsis(key: FlagKey): string {
  const { short, value } = flagRow(key);
  return `${short === undefined ? '    ' : `-${short}, `}${flagText(key)}${value.kind === 'none' ? '' : ` ${value.name}`}`;
}

function flagHelp(key: FlagKey): string {
  const row = flagRow(key);
  return row.repeat === true ? `${row.help}; repeatable` : row.help;
}

/** Two columns; a left text that is too wide stands on its own line. */
function columnLines(rows: readonly (readonly [string, string])[], column: number): readonly string[] {
  const indent = ' '.repeat(column + 2);
  return rows.flatMap(([left, right]) => {
    const wrapped = wrapText(right, WIDTH, indent);
    const head = `  ${left}`;
    if (head.length >= column + 1) {
      return [head, ...wrapped];
    }
    return [head.padEnd(column + 2) + (wrapped[0] ?? '').trimStart(), ...wrapped.slice(1)];
  });
}

function exitCodeList(): string {
  const rows = exitCodeRows().map(([code, meaning]) => [code, meaning] as const);
  return `Exit codes of job run, wait and attach are the command's own, or:\n\n${columnLines(rows, 8).join('\n')}\n`;
}
