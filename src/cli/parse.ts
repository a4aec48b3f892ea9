import { parseArgs } from 'node:util';
import { ProofrunError } from '../core/errors.ts';
import { didYouMean, nearNames } from '../policy/near-names.ts';
import type { ParsedArgs } from './command.ts';
import { COMMAND_NAMES, commandRow, type CommandName } from './command-table.ts';
import { choicesOf, EXCLUSIVE, FLAG_KEYS, type FlagKey, type FlagValues, flagRow, flagsOf, flagText, longName, type ValueKind } from './flags.ts';
import { readValue } from './value.ts';

export type ParsedLine =
  | { readonly kind: 'command'; readonly args: ParsedArgs }
  /** `topic` undefined: the list of commands. A family is the first word of two-word commands. */
  | { readonly kind: 'help'; readonly topic: HelpTopic | undefined };

export type HelpTopic = CommandName | 'exit-codes' | { readonly family: string };

/**
 * Reads the arguments after `job`. Throws ERR_USAGE: unknown command or flag (with near names), missing or malformed value
 * (what was expected, what came), flags that contradict. Source of the tokens: util.parseArgs of Node.
 */
export function parseCommandLine(argv: readonly string[]): ParsedLine {
  const first = argv[0];
  if (first === undefined || first === '--help' || first === '-h') {
    return { kind: 'help', topic: undefined };
  }
  if (first === '--version' || first === '-V') {
    return { kind: 'command', args: { command: 'version', flags: {}, words: [], afterDashes: false, argv } };
  }
  if (first.startsWith('-')) {
    throw usage(`a command comes before flags; received ${quote(first)}`, 'write `job run [flags] -- COMMAND`; `job help` lists the commands');
  }
  const { command, rest } = commandOf(argv);
  if (command === undefined) {
    return { kind: 'help', topic: { family: first } };
  }
  const scanned = scan(command, rest);
  if (scanned.flags.help === true) {
    return { kind: 'help', topic: command };
  }
  refuseContradictions(scanned.flags, command);
  if (command === 'help') {
    return { kind: 'help', topic: topicOf(scanned.words) };
  }
  refuseWords(command, scanned.words, scanned.flags);
  return { kind: 'command', args: { command, ...scanned, argv } };
}

/** The command by its one or two words. Undefined: a bare `job policy --help`. */
function commandOf(argv: readonly string[]): { command: CommandName | undefined; rest: readonly string[] } {
  const [first = '', second = ''] = argv;
  const single = COMMAND_NAMES.find((name) => name === first);
  if (single !== undefined) {
    return { command: single, rest: argv.slice(1) };
  }
  const double = COMMAND_NAMES.find((name) => name === `${first} ${second}`);
  if (double !== undefined) {
    return { command: double, rest: argv.slice(2) };
  }
  const family = COMMAND_NAMES.filter((name) => name.startsWith(`${first} `));
  if (family.length > 0) {
    if (second === '--help' || second === '-h') {
      return { command: undefined, rest: [] };
    }
    const received = second === '' ? 'nothing' : quote(second);
    throw usage(`\`job ${first}\` needs one of ${family.map((name) => name.slice(first.length + 1)).join(', ')}; received ${received}`, `job help ${first}`);
  }
  const words = [...new Set(COMMAND_NAMES.map((name) => name.split(' ')[0] ?? name))];
  throw usage(`unknown command ${quote(first)}${didYouMean(first, words)}`, `to run a program: job run --safe -- ${first}; \`job help\` lists the commands`);
}

function topicOf(words: readonly string[]): HelpTopic | undefined {
  if (words.length === 0) {
    return undefined;
  }
  const topic = words.join(' ');
  if (topic === 'exit-codes') {
    return topic;
  }
  const known = COMMAND_NAMES.find((name) => name === topic);
  if (known !== undefined) {
    return known;
  }
  if (COMMAND_NAMES.some((name) => name.startsWith(`${topic} `))) {
    return { family: topic };
  }
  throw usage(`no help on ${quote(topic)}${didYouMean(topic, COMMAND_NAMES)}`, 'job help');
}

/** Options for util.parseArgs, of one command. */
function optionsOf(keys: readonly FlagKey[]): Record<string, { type: 'string' | 'boolean'; short?: string; multiple: true }> {
  const options: Record<string, { type: 'string' | 'boolean'; short?: string; multiple: true }> = {};
  for (const key of keys) {
    const row = flagRow(key);
    options[longName(key)] = {
      type: row.value.kind === 'none' ? 'boolean' : 'string',
      multiple: true,
      ...(row.short === undefined ? {} : { short: row.short }),
    };
  }
  return options;
}

function scan(command: CommandName, rest: readonly string[]): { flags: FlagValues; words: readonly string[]; afterDashes: boolean } {
  const keys = flagsOf(command);
  const byName = new Map(keys.map((key) => [longName(key), key]));
  const endsFlags = commandRow(command).endsFlags === true;
  const { tokens } = parseArgs({ args: [...rest], options: optionsOf(keys), strict: false, allowPositionals: true, tokens: true });
  const given = new Map<FlagKey, (string | number | true)[]>();
  const words: string[] = [];
  for (const token of tokens) {
    if (token.kind === 'option-terminator') {
      return { flags: flagValues(given), words: [...words, ...rest.slice(token.index + 1)], afterDashes: true };
    }
    if (token.kind === 'positional') {
      if (endsFlags && words.length >= (commandRow(command).leads ?? 0)) {
        return { flags: flagValues(given), words: [...words, ...rest.slice(token.index)], afterDashes: false };
      }
      words.push(token.value);
      continue;
    }
    const key = byName.get(token.name);
    if (key === undefined) {
      throw unknownFlag(command, token.rawName, keys);
    }
    const value = optionValue(key, token.rawName, token.value, token.inlineValue === true);
    const row = flagRow(key);
    const values = given.get(key) ?? [];
    if (values.length > 0 && row.repeat !== true && row.value.kind !== 'none') {
      throw usage(`${flagText(key)} is given twice`, `keep one ${flagText(key)}`);
    }
    given.set(key, [...values, value]);
  }
  return { flags: flagValues(given), words, afterDashes: false };
}

function optionValue(key: FlagKey, rawName: string, text: string | undefined, inline: boolean): string | number | true {
  const { value } = flagRow(key);
  if (value.kind === 'none') {
    if (text !== undefined) {
      throw usage(`${rawName} takes no value; received ${quote(text)}`, `write ${rawName} alone`);
    }
    return true;
  }
  if (text === undefined || (!inline && text.startsWith('-') && text.length > 1)) {
    const received = text === undefined ? 'nothing' : quote(text);
    throw usage(
      `${rawName} needs a value (${value.name}); received ${received}`,
      `write ${flagText(key)} ${exampleOf(value)}${text === undefined ? '' : `, or ${flagText(key)}=${text} if that is meant`}`,
    );
  }
  return readValue(flagText(key), value, text);
}

function exampleOf(value: ValueKind): string {
  switch (value.kind) {
    case 'size':
      return '512MiB';
    case 'duration':
      return '5m';
    case 'count':
      return '64';
    case 'decimal':
      return '1.5';
    case 'host':
      return 'packages.example.com';
    case 'choice':
    case 'dimension':
      return (choicesOf(value) ?? []).join('|');
    case 'none':
      return '';
    case 'string':
    case 'path':
      return value.name;
  }
}

function flagValues(given: ReadonlyMap<FlagKey, readonly (string | number | true)[]>): FlagValues {
  const flags: Partial<Record<FlagKey, unknown>> = {};
  for (const [key, values] of given) {
    flags[key] = flagRow(key).repeat === true ? values : values.at(-1);
  }
  // readValue made each value after the kind in the table, from which FlagValues is computed.
  return flags as FlagValues;
}

function refuseContradictions(flags: FlagValues, command: CommandName): void {
  for (const group of EXCLUSIVE) {
    const together = group.flags.filter((key) => flags[key] !== undefined);
    if (together.length > 1) {
      throw usage(`${together.map(flagText).join(' and ')} contradict each other: ${group.why}`, `keep one of them; job help ${command}`);
    }
  }
}

function refuseWords(command: CommandName, words: readonly string[], flags: FlagValues): void {
  const row = commandRow(command);
  if (flags.agent !== undefined) {
    if (words.length > 0) throw usage(`--agent takes no command; received ${words.map(quote).join(' ')}`, 'the agent file names the commands of its tools');
    return;
  }
  if (words.length < row.least) {
    throw usage(
      `\`job ${command}\` needs ${row.words}; received nothing`,
      row.endsFlags === true ? `job ${command} --safe -- npm test` : `job help ${command}`,
    );
  }
  if (words.length > row.most) {
    const extra = words.slice(row.most).map(quote).join(' ');
    throw usage(`\`job ${command}\` takes ${row.most === 0 ? 'no words' : row.words}; received ${extra} as well`, `job help ${command}`);
  }
}

function unknownFlag(command: CommandName, rawName: string, keys: readonly FlagKey[]): ProofrunError {
  const bare = rawName.replace(/^-+/, '');
  const elsewhere = FLAG_KEYS.find((key) => longName(key) === bare);
  const owners = elsewhere === undefined ? [] : COMMAND_NAMES.filter((name) => flagsOf(name).includes(elsewhere));
  if (owners.length > 0) {
    return usage(
      `\`job ${command}\` has no flag ${quote(rawName)}; it belongs to ${owners.map((name) => `\`job ${name}\``).join(', ')}`,
      `job help ${command}`,
    );
  }
  const near = nearNames(bare, keys.map(longName)).map((name) => `\`--${name}\``);
  return usage(
    `\`job ${command}\` has no flag ${quote(rawName)}${near.length > 0 ? `; did you mean ${near.join(' or ')}?` : ''}`,
    commandRow(command).endsFlags === true
      ? `a flag of the program goes after it: job ${command} -- COMMAND ${rawName}; our flags: job help ${command}`
      : `job help ${command}`,
  );
}

function usage(message: string, hint: string): ProofrunError {
  return new ProofrunError('ERR_USAGE', { message, hint });
}

/** JSON form: control characters of what was typed become escapes. */
function quote(text: string): string {
  return JSON.stringify(text);
}
