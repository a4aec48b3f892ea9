/**
 * The one table of commands and flags. The parser, the help, docs/reference/cli.md and the completion scripts are all made
 * from it; nothing else knows a flag. Plain data, so that reading it costs nothing at start.
 */
import { CONTAINMENT_DIMENSIONS, DIMENSIONS, type Dimension } from '../core/dimension.ts';

/** Groups of the command list in `job help`. */
export const COMMAND_GROUPS = ['Run', 'Review', 'Watch', 'Rules', 'Machine'] as const;
export type CommandGroup = (typeof COMMAND_GROUPS)[number];

export interface CommandRow {
  readonly group: CommandGroup;
  /** One line, no full stop. */
  readonly summary: string;
  /** The words after the command, as in a manual: `[RUN]`, `RUN [PATH...]`. */
  readonly words: string;
  readonly least: number;
  /** Infinity: any number. */
  readonly most: number;
  /** The first word that is no flag ends our flags: it is a program, and what follows belongs to it. */
  readonly endsFlags?: boolean;
  /** What the completion scripts offer for the words. */
  readonly completes?: 'run' | 'program' | 'file' | 'command' | 'shell' | 'schema' | 'rules';
  /** Further paragraphs of `job help COMMAND`. */
  readonly about: readonly string[];
  /** Command lines with what each is for. */
  readonly examples: readonly (readonly [string, string])[];
}

const RUN_WORD = 'RUN is an id, a unique prefix of one, a name, or `last` (the newest of this workspace, and the default).';

export const COMMANDS = {
  run: {
    group: 'Run',
    summary: 'Run a command in a sandbox, with its file changes staged',
    words: '[--] COMMAND [ARG...] | JOBFILE',
    least: 1,
    most: Infinity,
    endsFlags: true,
    completes: 'program',
    about: [
      'The first word that is no flag is the program; everything after it belongs to the program. A single word that ends in .yaml, .yml or .json is a job file; write `--` before a program of such a name.',
      'Flags are joined with the job file: grants add up, a mode can only be raised, and the smallest limit wins.',
      "Exit code: the command's own, 128 + n after signal n, or one of Proofrun's own (`job help exit-codes`).",
    ],
    examples: [
      ['job run --safe -- npm test', 'isolated, staged, no network'],
      ['job run --safe --use npm-install -- npm ci', 'with the grants of a profile'],
      ['job run --safe --no-net --timeout 5m -- make', 'with a time limit'],
      ['job run --dry-run --safe -- npm test', 'show the plan and start nothing'],
      ['job run job.yaml', 'from a job file'],
    ],
  },
  status: {
    group: 'Review',
    summary: 'Show a run: its state, or with --review the whole account',
    words: '[RUN]',
    least: 0,
    most: 1,
    completes: 'run',
    about: [RUN_WORD, 'The review is computed from the run bundle, and a bundle without observations of its executor is refused.'],
    examples: [
      ['job status --review', 'controls, warnings and changes of the newest run'],
      ['job status last --review --format markdown', 'the same for a pull request'],
      ['job status last --json', 'for a program'],
    ],
  },
  diff: {
    group: 'Review',
    summary: 'Show the staged changes of a run as a diff',
    words: '[RUN [PATH...]]',
    least: 0,
    most: Infinity,
    completes: 'run',
    about: [RUN_WORD, 'Paths are relative to the current directory. Each names a file or a directory.'],
    examples: [
      ['job diff last src/cart.ts', 'one file'],
      ['job diff last --patch > run.patch', 'a patch that `git apply` reads'],
    ],
  },
  apply: {
    group: 'Review',
    summary: 'Bring staged changes into the workspace',
    words: '[RUN]',
    least: 0,
    most: 1,
    completes: 'run',
    about: [
      RUN_WORD,
      'Without --path and --include everything is selected. All or nothing: one conflict refuses the whole selection and touches nothing. What is not selected stays staged.',
      'A path that your machine would run by itself (a git hook, an editor task) needs --allow-exec for that path.',
    ],
    examples: [
      ['job apply last --path src', 'only what is below src'],
      ['job apply last', 'everything'],
      ['job apply last --allow-exec .husky/pre-commit', 'everything, with a hook that you have read'],
    ],
  },
  drop: {
    group: 'Review',
    summary: 'Throw the staged changes of a run away',
    words: '[RUN]',
    least: 0,
    most: 1,
    completes: 'run',
    about: [RUN_WORD, 'Terminal: a dropped stage cannot be applied. The bundle stays.'],
    examples: [['job drop last', '']],
  },
  ls: {
    group: 'Watch',
    summary: 'List runs',
    words: '',
    least: 0,
    most: 0,
    about: ['Newest first, of this workspace. Runs whose owner died are reconciled first.'],
    examples: [
      ['job ls', ''],
      ['job ls --all --state live', 'live runs of every workspace'],
    ],
  },
  logs: {
    group: 'Watch',
    summary: 'Show the output that was kept of a run',
    words: '[RUN]',
    least: 0,
    most: 1,
    completes: 'run',
    about: [RUN_WORD, 'Head and tail of each stream are kept; what lies between is counted, and the cut is marked.'],
    examples: [['job logs last --follow', 'until the run ends']],
  },
  events: {
    group: 'Watch',
    summary: 'Show the recorded events of a run',
    words: '[RUN]',
    least: 0,
    most: 1,
    completes: 'run',
    about: [RUN_WORD],
    examples: [['job events last --json', 'one JSON object a line']],
  },
  wait: {
    group: 'Watch',
    summary: 'Wait until a run has ended and exit with its code',
    words: '[RUN]',
    least: 0,
    most: 1,
    completes: 'run',
    about: [RUN_WORD, 'Exits with 124 when --timeout passes first; the run goes on.'],
    examples: [['job wait last --timeout 10m', '']],
  },
  attach: {
    group: 'Watch',
    summary: 'Follow the output of a run that was started with -d',
    words: '[RUN]',
    least: 0,
    most: 1,
    completes: 'run',
    about: [RUN_WORD, "Ctrl-C leaves the run alone. Exits with the command's code when it ends."],
    examples: [['job attach last', '']],
  },
  stop: {
    group: 'Watch',
    summary: 'Ask a run to end, then end it',
    words: '[RUN]',
    least: 0,
    most: 1,
    completes: 'run',
    about: [RUN_WORD, 'Sends SIGTERM to the command, and after --timeout (10 seconds) ends the whole tree.'],
    examples: [['job stop last', '']],
  },
  kill: {
    group: 'Watch',
    summary: 'End a run at once, or send it a signal',
    words: '[RUN]',
    least: 0,
    most: 1,
    completes: 'run',
    about: [RUN_WORD],
    examples: [
      ['job kill last', 'SIGKILL to the whole tree'],
      ['job kill last --signal SIGUSR1', 'a signal to the command only'],
    ],
  },
  'policy ls': {
    group: 'Rules',
    summary: 'List the policies and profiles that exist here',
    words: '',
    least: 0,
    most: 0,
    about: ['Presets, the user file (~/.config/proofrun/policy.yaml) and the workspace file (.proofrun/policy.yaml).'],
    examples: [['job policy ls', '']],
  },
  'policy show': {
    group: 'Rules',
    summary: 'Print a policy or profile with its source',
    words: 'NAME|FILE',
    least: 1,
    most: 1,
    completes: 'rules',
    about: [],
    examples: [['job policy show npm-install', '']],
  },
  'policy check': {
    group: 'Rules',
    summary: 'Check policy, profile or job files; name each fault by line',
    words: 'FILE...',
    least: 1,
    most: Infinity,
    completes: 'file',
    about: [],
    examples: [['job policy check .proofrun/policy.yaml', '']],
  },
  'policy explain': {
    group: 'Rules',
    summary: 'Say what a job would be allowed, and which line decides it',
    words: '[--] COMMAND [ARG...] | JOBFILE',
    least: 1,
    most: Infinity,
    endsFlags: true,
    completes: 'program',
    about: ['Takes the rule flags of `job run` and starts nothing. Without a question it shows every default and every rule with the line where it is written.'],
    examples: [
      ['job policy explain --safe --use npm-install -- npm ci', 'all of it'],
      ['job policy explain --safe --why-read ~/.ssh/id_ed25519 -- npm ci', 'one question'],
    ],
  },
  trust: {
    group: 'Rules',
    summary: 'Accept, list or withdraw the grants of a job file in a workspace',
    words: '[JOBFILE]',
    least: 0,
    most: 1,
    completes: 'file',
    about: ['A job file inside a workspace is as untrusted as the rest of it. Its grants are shown once and remembered by the digest of the file; a changed file asks again.'],
    examples: [
      ['job trust job.yaml', 'show the grants, then ask'],
      ['job trust --list', ''],
    ],
  },
  init: {
    group: 'Rules',
    summary: 'Write a job file with comments',
    words: '[FILE]',
    least: 0,
    most: 1,
    completes: 'file',
    about: ['Writes job.yaml in the current directory. An existing file is left alone without --force.'],
    examples: [['job init', '']],
  },
  verify: {
    group: 'Review',
    summary: 'Recompute every derived statement of a run bundle, offline',
    words: '[RUN|FILE]',
    least: 0,
    most: 1,
    completes: 'run',
    about: [RUN_WORD, 'A word with a slash, or that ends in .json, is a bundle file. Exits with 201 when anything differs.'],
    examples: [
      ['job verify last', ''],
      ['job verify ./run-bundle.json', 'a bundle from somewhere else'],
    ],
  },
  doctor: {
    group: 'Machine',
    summary: 'Say what can be enforced on this machine, and what is missing',
    words: '',
    least: 0,
    most: 0,
    about: ['Starts nothing and changes nothing. Exits with 0 when an executor passes --safe here, else with 200.'],
    examples: [['job doctor', '']],
  },
  schema: {
    group: 'Machine',
    summary: 'Print a JSON Schema, or list those that exist',
    words: '[NAME]',
    least: 0,
    most: 1,
    completes: 'schema',
    about: [],
    examples: [['job schema bundle > run-bundle.schema.json', '']],
  },
  prune: {
    group: 'Machine',
    summary: 'Remove records of old runs',
    words: '',
    least: 0,
    most: 0,
    about: ['Never takes a live run. Takes a stage that was neither applied nor dropped only with --staged.'],
    examples: [
      ['job prune --older-than 30d', ''],
      ['job prune --staged --older-than 90d --dry-run', 'say what would go'],
    ],
  },
  completion: {
    group: 'Machine',
    summary: 'Print a completion script for bash, zsh or fish',
    words: 'SHELL',
    least: 1,
    most: 1,
    completes: 'shell',
    about: [],
    examples: [
      ['eval "$(job completion bash)"', 'in ~/.bashrc'],
      ['job completion fish > ~/.config/fish/completions/job.fish', ''],
    ],
  },
  help: {
    group: 'Machine',
    summary: 'Explain a command, or list the exit codes',
    words: '[COMMAND | exit-codes]',
    least: 0,
    most: 2,
    completes: 'command',
    about: [],
    examples: [['job help run', '']],
  },
  version: {
    group: 'Machine',
    summary: 'Print the version',
    words: '',
    least: 0,
    most: 0,
    about: [],
    examples: [['job version', '']],
  },
} as const satisfies Record<string, CommandRow>;

export type CommandName = keyof typeof COMMANDS;
export const COMMAND_NAMES = Object.keys(COMMANDS) as CommandName[];

/** How the text after a flag is read. */
export type ValueKind =
  | { readonly kind: 'none' }
  /** Any text. `name`: how help calls it. */
  | { readonly kind: 'string'; readonly name: string }
  /** A path; kept as typed. */
  | { readonly kind: 'path'; readonly name: string }
  /** A host rule: `example.com`, `*.example.com`, `example.com:8443`, `10.0.0.0/8`. */
  | { readonly kind: 'host'; readonly name: string }
  /** `512MiB`: becomes bytes. */
  | { readonly kind: 'size'; readonly name: string }
  /** `90s`, `5m`: becomes milliseconds. */
  | { readonly kind: 'duration'; readonly name: string }
  /** A whole number from 1. */
  | { readonly kind: 'count'; readonly name: string }
  /** A number above 0 with a fraction: `1.5`. */
  | { readonly kind: 'decimal'; readonly name: string }
  | { readonly kind: 'dimension'; readonly name: string }
  | { readonly kind: 'choice'; readonly name: string; readonly of: readonly string[] };

export interface FlagRow {
  readonly value: ValueKind;
  readonly short?: string;
  readonly repeat?: true;
  /** One line, no full stop. */
  readonly help: string;
  readonly commands: readonly CommandName[] | 'every';
  /** Where the flag is listed: rules before limits before the rest. */
  readonly section: FlagSection;
}

export const FLAG_SECTIONS = ['Mode and rules', 'Limits', 'The run', 'Selection', 'Output'] as const;
export type FlagSection = (typeof FLAG_SECTIONS)[number];

const PLAN: readonly CommandName[] = ['run', 'policy explain'];
const RUN: readonly CommandName[] = ['run'];

/** Keys are the flags' names in camelCase; `flagText` gives what is typed. */
export const FLAGS = {
  safe: { value: { kind: 'none' }, help: 'Refuse unless reads, writes, network and processes are contained', commands: PLAN, section: 'Mode and rules' },
  strict: { value: { kind: 'none' }, help: 'As --safe, for every requested dimension, without waiver', commands: PLAN, section: 'Mode and rules' },
  degrade: { value: { kind: 'dimension', name: 'DIMENSION' }, repeat: true, help: 'Waive one requested dimension that --safe can do without; recorded', commands: PLAN, section: 'Mode and rules' },
  use: { value: { kind: 'string', name: 'PROFILE' }, repeat: true, help: 'Join the grants of a profile', commands: PLAN, section: 'Mode and rules' },
  policy: { value: { kind: 'string', name: 'POLICY' }, repeat: true, help: 'Narrow by a policy (name or file)', commands: PLAN, section: 'Mode and rules' },
  allowNet: { value: { kind: 'host', name: 'HOST[:PORT]' }, repeat: true, help: 'Allow connections to a host', commands: PLAN, section: 'Mode and rules' },
  denyNet: { value: { kind: 'host', name: 'HOST[:PORT]' }, repeat: true, help: 'Deny connections to a host', commands: PLAN, section: 'Mode and rules' },
  noNet: { value: { kind: 'none' }, help: 'No network at all', commands: PLAN, section: 'Mode and rules' },
  allowRead: { value: { kind: 'path', name: 'PATH' }, repeat: true, help: 'Let the job read a path', commands: PLAN, section: 'Mode and rules' },
  denyRead: { value: { kind: 'path', name: 'PATH' }, repeat: true, help: 'Hide a path or glob from the job', commands: PLAN, section: 'Mode and rules' },
  writeDirect: { value: { kind: 'path', name: 'PATH' }, repeat: true, help: 'Let the job write a path without staging; listed in review', commands: PLAN, section: 'Mode and rules' },
  env: { value: { kind: 'string', name: 'NAME[=VALUE]' }, short: 'e', repeat: true, help: 'Pass a variable, with its value here or a given one', commands: PLAN, section: 'Mode and rules' },
  trust: { value: { kind: 'string', name: 'DIGEST' }, help: 'Accept the job file with this digest (for CI)', commands: PLAN, section: 'Mode and rules' },
  memory: { value: { kind: 'size', name: 'SIZE' }, help: 'Memory of the whole tree: 512MiB, 2GiB', commands: PLAN, section: 'Limits' },
  cpus: { value: { kind: 'decimal', name: 'N' }, help: 'Processors of the whole tree: 1.5', commands: PLAN, section: 'Limits' },
  processes: { value: { kind: 'count', name: 'N' }, help: 'Processes and threads at one time', commands: PLAN, section: 'Limits' },
  timeout: { value: { kind: 'duration', name: 'TIME' }, help: 'Time until it ends: 90s, 5m, 1h', commands: [...PLAN, 'wait', 'stop'], section: 'Limits' },
  executor: { value: { kind: 'choice', name: 'NAME', of: ['auto', 'native', 'host'] }, help: 'Which executor: auto, native, or host (no isolation)', commands: PLAN, section: 'The run' },
  workspace: { value: { kind: 'path', name: 'DIR' }, help: 'The directory to stage (top of the git work tree, else here)', commands: [...PLAN, 'ls'], section: 'The run' },
  cwd: { value: { kind: 'path', name: 'DIR' }, help: 'Where the command starts, inside the workspace', commands: PLAN, section: 'The run' },
  name: { value: { kind: 'string', name: 'NAME' }, help: 'A name that selects the run later', commands: RUN, section: 'The run' },
  apply: { value: { kind: 'choice', name: 'WHEN', of: ['on-success'] }, help: 'on-success: apply all when the command exits with 0', commands: RUN, section: 'The run' },
  detach: { value: { kind: 'none' }, short: 'd', help: 'Print the run id and return; the run goes on', commands: RUN, section: 'The run' },
  terminal: { value: { kind: 'none' }, short: 't', help: 'Give the command a terminal (the default on one)', commands: RUN, section: 'The run' },
  noTerminal: { value: { kind: 'none' }, short: 'T', help: 'Give the command pipes', commands: RUN, section: 'The run' },
  dryRun: { value: { kind: 'none' }, help: 'Say what would happen and do nothing', commands: ['run', 'prune'], section: 'The run' },
  idFile: { value: { kind: 'path', name: 'FILE' }, help: 'Write the run id to a file before the command starts', commands: RUN, section: 'Output' },
  result: { value: { kind: 'path', name: 'FILE' }, help: 'Write the result as JSON to a file at the end', commands: RUN, section: 'Output' },
  journal: { value: { kind: 'path', name: 'FILE' }, help: 'Append lifecycle events as JSON lines to a file', commands: RUN, section: 'Output' },
  quiet: { value: { kind: 'none' }, short: 'q', help: 'Leave out our lines when all went well', commands: RUN, section: 'Output' },
  whyNet: { value: { kind: 'string', name: 'HOST[:PORT]' }, repeat: true, help: 'Ask whether a host can be reached, and which line decides', commands: ['policy explain'], section: 'Selection' },
  whyRead: { value: { kind: 'path', name: 'PATH' }, repeat: true, help: 'Ask whether a path can be read', commands: ['policy explain'], section: 'Selection' },
  whyWrite: { value: { kind: 'path', name: 'PATH' }, repeat: true, help: 'Ask where a write to a path goes', commands: ['policy explain'], section: 'Selection' },
  whyEnv: { value: { kind: 'string', name: 'NAME' }, repeat: true, help: 'Ask whether a variable reaches the job', commands: ['policy explain'], section: 'Selection' },
  whyProgram: { value: { kind: 'string', name: 'NAME' }, repeat: true, help: 'Ask whether a program may be started', commands: ['policy explain'], section: 'Selection' },
  review: { value: { kind: 'none' }, help: 'The whole account: controls, network, files, changes', commands: ['status'], section: 'Selection' },
  format: { value: { kind: 'choice', name: 'FORM', of: ['text', 'markdown', 'json'] }, help: 'text, markdown or json', commands: ['status'], section: 'Output' },
  patch: { value: { kind: 'none' }, help: 'Exact bytes, for `git apply`; no colour, nothing made safe for a screen', commands: ['diff'], section: 'Output' },
  stat: { value: { kind: 'none' }, help: 'Only names and numbers of lines', commands: ['diff'], section: 'Output' },
  path: { value: { kind: 'path', name: 'PATH' }, repeat: true, help: 'A staged file or directory, relative to here', commands: ['apply'], section: 'Selection' },
  include: { value: { kind: 'string', name: 'GLOB' }, repeat: true, help: 'Select by glob, relative to the workspace', commands: ['apply'], section: 'Selection' },
  exclude: { value: { kind: 'string', name: 'GLOB' }, repeat: true, help: 'Leave out by glob, relative to the workspace', commands: ['apply'], section: 'Selection' },
  all: { value: { kind: 'none' }, help: 'Everything (apply; the default), or every workspace (ls)', commands: ['apply', 'ls'], section: 'Selection' },
  allowExec: { value: { kind: 'path', name: 'PATH' }, repeat: true, help: 'Apply a path that this machine would run by itself', commands: ['apply'], section: 'Selection' },
  overwrite: { value: { kind: 'path', name: 'PATH' }, repeat: true, help: 'Apply a path although it changed here meanwhile', commands: ['apply'], section: 'Selection' },
  state: { value: { kind: 'choice', name: 'STATE', of: ['live', 'refused', 'finished', 'failed', 'interrupted', 'staged'] }, help: 'Only runs in a state', commands: ['ls'], section: 'Selection' },
  limit: { value: { kind: 'count', name: 'N' }, help: 'At most this many (20 runs; all events)', commands: ['ls', 'events'], section: 'Selection' },
  follow: { value: { kind: 'none' }, short: 'f', help: 'Go on until the run ends', commands: ['logs', 'events'], section: 'Selection' },
  stream: { value: { kind: 'choice', name: 'STREAM', of: ['stdout', 'stderr'] }, help: 'Only one stream', commands: ['logs'], section: 'Selection' },
  signal: { value: { kind: 'string', name: 'SIGNAL' }, help: 'A signal for the command: SIGINT, TERM, 10', commands: ['kill'], section: 'Selection' },
  staged: { value: { kind: 'none' }, help: 'Also stages that were neither applied nor dropped', commands: ['prune'], section: 'Selection' },
  olderThan: { value: { kind: 'duration', name: 'TIME' }, help: 'Only runs that ended longer ago than this: 12h, 30d', commands: ['prune'], section: 'Selection' },
  kind: { value: { kind: 'choice', name: 'KIND', of: ['job', 'policy', 'profile'] }, help: 'What the files are, when their names do not say it', commands: ['policy check'], section: 'Selection' },
  list: { value: { kind: 'none' }, help: 'List the accepted files', commands: ['trust'], section: 'Selection' },
  revoke: { value: { kind: 'none' }, help: 'Withdraw the acceptance of the file', commands: ['trust'], section: 'Selection' },
  yes: { value: { kind: 'none' }, help: 'Accept without asking', commands: ['trust'], section: 'Selection' },
  force: { value: { kind: 'none' }, help: 'Replace an existing file', commands: ['init'], section: 'Selection' },
  json: { value: { kind: 'none' }, help: 'Write JSON (snake_case keys) to stdout', commands: 'every', section: 'Output' },
  help: { value: { kind: 'none' }, short: 'h', help: 'Explain the command', commands: 'every', section: 'Output' },
} as const satisfies Record<string, FlagRow>;

export type FlagKey = keyof typeof FLAGS;
export const FLAG_KEYS = Object.keys(FLAGS) as FlagKey[];

type One<V extends ValueKind> = V['kind'] extends 'none'
  ? true
  : V['kind'] extends 'size' | 'duration' | 'count' | 'decimal'
    ? number
    : V['kind'] extends 'dimension'
      ? Dimension
      : V extends { readonly of: readonly (infer Choice)[] }
        ? Choice
        : string;

/** What the parser gives: one value a flag, a list for those that repeat; absent when not given. */
export type FlagValues = {
  readonly [K in FlagKey]?: (typeof FLAGS)[K] extends { readonly repeat: true } ? readonly One<(typeof FLAGS)[K]['value']>[] : One<(typeof FLAGS)[K]['value']>;
};

/** Flags that contradict each other: at most one of each group. */
export const EXCLUSIVE: readonly { readonly flags: readonly FlagKey[]; readonly why: string }[] = [
  { flags: ['noNet', 'allowNet'], why: '--no-net leaves nothing to allow' },
  { flags: ['terminal', 'noTerminal'], why: 'a command has a terminal or pipes' },
  { flags: ['detach', 'terminal'], why: 'a detached run has no terminal' },
  { flags: ['detach', 'dryRun'], why: 'a dry run starts nothing' },
  { flags: ['strict', 'degrade'], why: '--strict has no waiver' },
  { flags: ['patch', 'stat'], why: 'a diff has one form' },
  { flags: ['patch', 'json'], why: 'a patch is not JSON' },
  { flags: ['all', 'path'], why: '--all selects everything already' },
  { flags: ['all', 'include'], why: '--all selects everything already' },
  { flags: ['list', 'revoke'], why: 'one thing at a time' },
  { flags: ['list', 'yes'], why: 'one thing at a time' },
  { flags: ['revoke', 'yes'], why: 'one thing at a time' },
];

/** `--allow-net` for `allowNet`. */
export function flagText(key: FlagKey): string {
  return `--${longName(key)}`;
}

/** `allow-net` for `allowNet`. */
export function longName(key: FlagKey): string {
  return key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

/** The row with its optional fields visible to the type checker. */
export function flagRow(key: FlagKey): FlagRow {
  return FLAGS[key];
}

export function commandRow(name: CommandName): CommandRow {
  return COMMANDS[name];
}

/** Keys of the flags that a command takes, in the order of the table. */
export function flagsOf(command: CommandName): readonly FlagKey[] {
  return FLAG_KEYS.filter((key) => {
    const { commands } = flagRow(key);
    return commands === 'every' || commands.includes(command);
  });
}

/** The words that a flag's value may be, when they are a closed list. */
export function choicesOf(value: ValueKind): readonly string[] | undefined {
  if (value.kind === 'choice') {
    return value.of;
  }
  return value.kind === 'dimension' ? WAIVABLE : undefined;
}

/** What `--degrade` may name: the four dimensions of containment cannot be waived. */
const WAIVABLE: readonly Dimension[] = DIMENSIONS.filter((dimension) => !CONTAINMENT_DIMENSIONS.some((needed) => needed === dimension));
