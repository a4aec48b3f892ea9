import { COMMAND_NAMES, type CommandName, type CommandRow, commandRow } from './command-table.ts';
import { choicesOf, type FlagKey, flagRow, flagsOf, flagText } from './flags.ts';

export const SHELLS = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof SHELLS)[number];

/** A completion script for a shell, made from the table of flags. It calls `job ls --json` only when a run is being completed. */
export function completionScript(shell: Shell): string {
  switch (shell) {
    case 'bash':
      return bashScript();
    case 'zsh':
      // zsh runs completions written for bash; one script is one thing to keep right.
      return `#compdef job\nautoload -U +X bashcompinit && bashcompinit\n${bashScript()}`;
    case 'fish':
      return fishScript();
  }
}

const FIRST_WORDS = [...new Set(COMMAND_NAMES.map((name) => name.split(' ')[0] ?? name))];
const FAMILIES = FIRST_WORDS.filter((word) => COMMAND_NAMES.some((name) => name.startsWith(`${word} `)));
const RUN_IDS = "job ls --json 2>/dev/null | tr ',{}' '\\n' | sed -n 's/^ *\"id\": *\"\\(run-[0-9A-Z]*\\)\"$/\\1/p'";

function typed(key: FlagKey): readonly string[] {
  const { short } = flagRow(key);
  return short === undefined ? [flagText(key)] : [flagText(key), `-${short}`];
}

function bashScript(): string {
  const lines = [
    '# bash completion for job; made by `job completion`',
    '_job() {',
    '  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]:-} position=2 i flags= files= words=',
    '  COMPREPLY=()',
  ];
  lines.push(
    '  if [ "$COMP_CWORD" -eq 1 ]; then',
    `    COMPREPLY=($(compgen -W '${FIRST_WORDS.join(' ')} --help --version' -- "$current"))`,
    '    return',
    '  fi',
  );
  for (const family of FAMILIES) {
    const members = COMMAND_NAMES.filter((name) => name.startsWith(`${family} `)).map((name) => name.slice(family.length + 1));
    lines.push(
      `  if [ "$command" = ${family} ]; then`,
      '    if [ "$COMP_CWORD" -eq 2 ]; then',
      `      COMPREPLY=($(compgen -W '${members.join(' ')}' -- "$current"))`,
      '      return',
      '    fi',
      '    command="$command ${COMP_WORDS[2]}" position=3',
      '  fi',
    );
  }
  lines.push('  case "$command" in');
  for (const name of COMMAND_NAMES) {
    lines.push(...bashCommand(name));
  }
  lines.push(
    '  esac',
    '  if [[ $current == -* ]]; then',
    '    COMPREPLY=($(compgen -W "$flags" -- "$current"))',
    '  elif [ "$files" = 1 ]; then',
    '    COMPREPLY=($(compgen -f -- "$current"))',
    '  else',
    '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
    '  fi',
    '}',
    'complete -o filenames -o bashdefault -F _job job',
  );
  return `${lines.join('\n')}\n`;
}

function bashCommand(name: CommandName): readonly string[] {
  const row = commandRow(name);
  const keys = flagsOf(name);
  const lines = [`    '${name}')`];
  if (row.endsFlags === true) {
    const taking = keys.filter((key) => flagRow(key).value.kind !== 'none').flatMap(typed);
    // The program and its arguments complete as they would without us.
    lines.push(
      '      for ((i = position; i < COMP_CWORD; i++)); do',
      '        case "${COMP_WORDS[i]}" in',
      '          --) i=$((i + 1)); break ;;',
      `          ${taking.join('|')}) i=$((i + 1)) ;;`,
      '          -*) ;;',
      '          *) break ;;',
      '        esac',
      '      done',
      '      if [ "$i" -lt "$COMP_CWORD" ]; then',
      '        COMPREPLY=($(compgen -f -- "$current"))',
      '        return',
      '      fi',
    );
  }
  lines.push(`      flags='${keys.flatMap(typed).join(' ')}'`);
  const arms = keys.flatMap((key) => bashValue(key));
  if (arms.length > 0) {
    lines.push('      case "$previous" in', ...arms, '      esac');
  }
  lines.push(...bashWords(row.completes), '      ;;');
  return lines;
}

function bashValue(key: FlagKey): readonly string[] {
  const { value } = flagRow(key);
  if (value.kind === 'none') return [];
  const pattern = typed(key).join('|');
  const choices = choicesOf(value);
  if (choices !== undefined) return [`        ${pattern}) COMPREPLY=($(compgen -W '${choices.join(' ')}' -- "$current")); return ;;`];
  if (value.kind === 'path' || key === 'policy') return [`        ${pattern}) COMPREPLY=($(compgen -f -- "$current")); return ;;`];
  return [`        ${pattern}) return ;;`];
}

function bashWords(completes: CommandRow['completes']): readonly string[] {
  switch (completes) {
    case 'run':
      return [`      words="last $(${RUN_IDS})"`];
    case 'program':
      return ['      words=$(compgen -c -- "$current")'];
    case 'file':
    case 'rules':
      return ['      files=1'];
    case 'command':
      return [`      words='${FIRST_WORDS.join(' ')} exit-codes'`];
    case 'shell':
      return [`      words='${SHELLS.join(' ')}'`];
    case 'schema':
      return ["      words=$(job schema 2>/dev/null | sed -n 's/^\\([a-z-]*\\) .*/\\1/p')"];
    case undefined:
      return [];
  }
}

function fishScript(): string {
  const lines = ['# fish completion for job; made by `job completion`', 'complete -c job -f'];
  for (const word of FIRST_WORDS) {
    const summary = COMMAND_NAMES.find((name) => name === word);
    lines.push(`complete -c job -n __fish_use_subcommand -a ${word} -d ${fishQuote(summary === undefined ? `job ${word} ...` : commandRow(summary).summary)}`);
  }
  for (const name of COMMAND_NAMES) {
    const [first = name, second] = name.split(' ');
    const condition =
      second === undefined ? `__fish_seen_subcommand_from ${first}` : `__fish_seen_subcommand_from ${first}; and __fish_seen_subcommand_from ${second}`;
    if (second !== undefined) {
      lines.push(`complete -c job -n ${fishQuote(`__fish_seen_subcommand_from ${first}`)} -a ${second} -d ${fishQuote(commandRow(name).summary)}`);
    }
    for (const key of flagsOf(name)) {
      lines.push(fishFlag(key, condition));
    }
    lines.push(...fishWords(commandRow(name).completes, condition));
  }
  return `${lines.join('\n')}\n`;
}

function fishFlag(key: FlagKey, condition: string): string {
  const row = flagRow(key);
  const choices = choicesOf(row.value);
  const value =
    row.value.kind === 'none'
      ? ''
      : choices !== undefined
        ? ` -x -a ${fishQuote(choices.join(' '))}`
        : row.value.kind === 'path' || key === 'policy'
          ? ' -r -F'
          : ' -x';
  return `complete -c job -n ${fishQuote(condition)} -l ${flagText(key).slice(2)}${row.short === undefined ? '' : ` -s ${row.short}`}${value} -d ${fishQuote(row.help)}`;
}

function fishWords(completes: CommandRow['completes'], condition: string): readonly string[] {
  const offer = (words: string): readonly string[] => [`complete -c job -n ${fishQuote(condition)} -a ${fishQuote(words)}`];
  switch (completes) {
    case 'run':
      return offer(`last (${RUN_IDS})`);
    case 'program':
      return offer('(__fish_complete_command)');
    case 'file':
    case 'rules':
      return [`complete -c job -n ${fishQuote(condition)} -F`];
    case 'command':
      return offer(`${FIRST_WORDS.join(' ')} exit-codes`);
    case 'shell':
      return offer(SHELLS.join(' '));
    case 'schema':
      return offer("(job schema 2>/dev/null | string match -r '^[a-z-]+')");
    case undefined:
      return [];
  }
}

function fishQuote(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}
