/** The flags as data; see command-table.ts. Nothing else knows a flag. */
import { CONTAINMENT_DIMENSIONS, DIMENSIONS, type Dimension } from '../core/dimension.ts';
import type { CommandName } from './command-table.ts';

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

const PLAN: readonly CommandName[] = ['run', 'fork', 'inspect', 'policy explain'];
const RUN: readonly CommandName[] = ['run', 'fork'];

/** Keys are the flags' names in camelCase; `flagText` gives what is typed. */
export const FLAGS = {
  safe: { value: { kind: 'none' }, help: 'Refuse unless reads, writes, network and processes are contained', commands: PLAN, section: 'Mode and rules' },
  strict: { value: { kind: 'none' }, help: 'As --safe, for every requested dimension, without waiver', commands: PLAN, section: 'Mode and rules' },
  degrade: {
    value: { kind: 'dimension', name: 'DIMENSION' },
    repeat: true,
    help: 'Waive one requested dimension that --safe can do without; recorded',
    commands: PLAN,
    section: 'Mode and rules',
  },
  use: { value: { kind: 'string', name: 'PROFILE' }, repeat: true, help: 'Join the grants of a profile', commands: PLAN, section: 'Mode and rules' },
  policy: { value: { kind: 'string', name: 'POLICY' }, repeat: true, help: 'Narrow by a policy (name or file)', commands: PLAN, section: 'Mode and rules' },
  allowNet: { value: { kind: 'host', name: 'HOST[:PORT]' }, repeat: true, help: 'Allow connections to a host', commands: PLAN, section: 'Mode and rules' },
  denyNet: { value: { kind: 'host', name: 'HOST[:PORT]' }, repeat: true, help: 'Deny connections to a host', commands: PLAN, section: 'Mode and rules' },
  noNet: { value: { kind: 'none' }, help: 'No network at all', commands: PLAN, section: 'Mode and rules' },
  learn: {
    value: { kind: 'path', name: 'FILE' },
    help: 'Refuse and record every other host, and write a profile of them to a new file',
    commands: RUN,
    section: 'Mode and rules',
  },
  allowRead: { value: { kind: 'path', name: 'PATH' }, repeat: true, help: 'Let the job read a path', commands: PLAN, section: 'Mode and rules' },
  denyRead: { value: { kind: 'path', name: 'PATH' }, repeat: true, help: 'Hide a path or glob from the job', commands: PLAN, section: 'Mode and rules' },
  writeDirect: {
    value: { kind: 'path', name: 'PATH' },
    repeat: true,
    help: 'Let the job write a path without staging; listed in review',
    commands: PLAN,
    section: 'Mode and rules',
  },
  env: {
    value: { kind: 'string', name: 'NAME[=VALUE]' },
    short: 'e',
    repeat: true,
    help: 'Pass a variable, with its value here or a given one',
    commands: PLAN,
    section: 'Mode and rules',
  },
  trust: { value: { kind: 'string', name: 'DIGEST' }, help: 'Accept the job file with this digest (for CI)', commands: PLAN, section: 'Mode and rules' },
  memory: { value: { kind: 'size', name: 'SIZE' }, help: 'Memory of the whole tree: 512MiB, 2GiB', commands: PLAN, section: 'Limits' },
  cpus: { value: { kind: 'decimal', name: 'N' }, help: 'Processors of the whole tree: 1.5', commands: PLAN, section: 'Limits' },
  processes: { value: { kind: 'count', name: 'N' }, help: 'Processes and threads at one time', commands: PLAN, section: 'Limits' },
  timeout: {
    value: { kind: 'duration', name: 'TIME' },
    help: 'Time until it ends: 90s, 5m, 1h',
    commands: [...PLAN, 'wait', 'stop', 'checkpoint create', 'agentctl quiesce', 'agentctl cancel'],
    section: 'Limits',
  },
  executor: {
    value: { kind: 'choice', name: 'NAME', of: ['auto', 'native', 'docker', 'host'] },
    help: 'Which executor: auto, native, docker, or host (no isolation)',
    commands: PLAN,
    section: 'The run',
  },
  image: { value: { kind: 'string', name: 'NAME' }, help: 'The container image that the command runs in (docker)', commands: PLAN, section: 'The run' },
  runtime: { value: { kind: 'string', name: 'NAME' }, help: 'The container runtime: runc, crun, runsc (docker)', commands: PLAN, section: 'The run' },
  pull: {
    value: { kind: 'choice', name: 'WHEN', of: ['never', 'missing', 'always'] },
    help: 'When the image is fetched (missing)',
    commands: RUN,
    section: 'The run',
  },
  workspace: {
    value: { kind: 'path', name: 'DIR' },
    help: 'The directory to stage (top of the git work tree, else here)',
    commands: [...PLAN, 'ls', 'checkpoint list'],
    section: 'The run',
  },
  cwd: { value: { kind: 'path', name: 'DIR' }, help: 'Where the command starts, inside the workspace', commands: PLAN, section: 'The run' },
  name: { value: { kind: 'string', name: 'NAME' }, help: 'A name that selects it later', commands: [...RUN, 'checkpoint create'], section: 'The run' },
  on: {
    value: { kind: 'string', name: 'RUN' },
    help: "Start from that run's staged result; applying takes both",
    commands: ['run'],
    section: 'The run',
  },
  apply: {
    value: { kind: 'choice', name: 'WHEN', of: ['on-success'] },
    help: 'on-success: apply all when the command exits with 0',
    commands: RUN,
    section: 'The run',
  },
  detach: { value: { kind: 'none' }, short: 'd', help: 'Print the run id and return; the run goes on', commands: RUN, section: 'The run' },
  terminal: {
    value: { kind: 'none' },
    short: 't',
    help: 'Give the command a terminal (the default on one)',
    commands: [...RUN, 'inspect'],
    section: 'The run',
  },
  noTerminal: { value: { kind: 'none' }, short: 'T', help: 'Give the command pipes', commands: [...RUN, 'inspect'], section: 'The run' },
  dryRun: { value: { kind: 'none' }, help: 'Say what would happen and do nothing', commands: ['run', 'fork', 'prune', 'apply'], section: 'The run' },
  idFile: { value: { kind: 'path', name: 'FILE' }, help: 'Write the run id to a file before the command starts', commands: RUN, section: 'Output' },
  result: { value: { kind: 'path', name: 'FILE' }, help: 'Write the result as JSON to a file at the end', commands: RUN, section: 'Output' },
  journal: { value: { kind: 'path', name: 'FILE' }, help: 'Append lifecycle events as JSON lines to a file', commands: RUN, section: 'Output' },
  quiet: { value: { kind: 'none' }, short: 'q', help: 'Leave out our lines when all went well', commands: RUN, section: 'Output' },
  whyNet: {
    value: { kind: 'string', name: 'HOST[:PORT]' },
    repeat: true,
    help: 'Ask whether a host can be reached, and which line decides',
    commands: ['policy explain'],
    section: 'Selection',
  },
  whyRead: { value: { kind: 'path', name: 'PATH' }, repeat: true, help: 'Ask whether a path can be read', commands: ['policy explain'], section: 'Selection' },
  whyWrite: {
    value: { kind: 'path', name: 'PATH' },
    repeat: true,
    help: 'Ask where a write to a path goes',
    commands: ['policy explain'],
    section: 'Selection',
  },
  whyEnv: {
    value: { kind: 'string', name: 'NAME' },
    repeat: true,
    help: 'Ask whether a variable reaches the job',
    commands: ['policy explain'],
    section: 'Selection',
  },
  whyProgram: {
    value: { kind: 'string', name: 'NAME' },
    repeat: true,
    help: 'Ask whether a program may be started',
    commands: ['policy explain'],
    section: 'Selection',
  },
  review: { value: { kind: 'none' }, help: 'The whole account: controls, network, files, changes', commands: ['status'], section: 'Selection' },
  format: {
    value: { kind: 'choice', name: 'FORM', of: ['text', 'markdown', 'json'] },
    help: 'text, markdown or json',
    commands: ['status'],
    section: 'Output',
  },
  patch: { value: { kind: 'none' }, help: 'Exact bytes, for `git apply`; no colour, nothing made safe for a screen', commands: ['diff'], section: 'Output' },
  stat: { value: { kind: 'none' }, help: 'Only names and numbers of lines', commands: ['diff'], section: 'Output' },
  path: {
    value: { kind: 'path', name: 'PATH' },
    repeat: true,
    help: 'A staged file or directory, relative to here',
    commands: ['apply'],
    section: 'Selection',
  },
  include: {
    value: { kind: 'string', name: 'GLOB' },
    repeat: true,
    help: 'Select by glob, relative to the workspace',
    commands: ['apply'],
    section: 'Selection',
  },
  exclude: {
    value: { kind: 'string', name: 'GLOB' },
    repeat: true,
    help: 'Leave out by glob, relative to the workspace',
    commands: ['apply'],
    section: 'Selection',
  },
  all: {
    value: { kind: 'none' },
    help: 'Everything (apply), or every workspace (ls, show --list)',
    commands: ['apply', 'ls', 'checkpoint list', 'show'],
    section: 'Selection',
  },
  allowExec: {
    value: { kind: 'path', name: 'PATH' },
    repeat: true,
    help: 'Apply a path that this machine would run by itself',
    commands: ['apply'],
    section: 'Selection',
  },
  overwrite: {
    value: { kind: 'path', name: 'PATH' },
    repeat: true,
    help: 'Apply a path although it changed here meanwhile',
    commands: ['apply'],
    section: 'Selection',
  },
  merge: {
    value: { kind: 'none' },
    help: 'Merge text that changed here meanwhile, where what the run saw was kept',
    commands: ['apply'],
    section: 'Selection',
  },
  interactive: { value: { kind: 'none' }, short: 'i', help: 'Ask for each file and hunk, on a terminal', commands: ['apply'], section: 'Selection' },
  target: { value: { kind: 'path', name: 'DIR' }, help: 'Apply to another directory; the changes stay staged', commands: ['apply'], section: 'Selection' },
  batch: { value: { kind: 'string', name: 'ID' }, help: 'Which apply of the run (the newest)', commands: ['undo'], section: 'Selection' },
  state: {
    value: { kind: 'choice', name: 'STATE', of: ['live', 'refused', 'finished', 'failed', 'interrupted', 'staged'] },
    help: 'Only runs in a state',
    commands: ['ls'],
    section: 'Selection',
  },
  limit: { value: { kind: 'count', name: 'N' }, help: 'At most this many (20 runs; all events)', commands: ['ls', 'events', 'show'], section: 'Selection' },
  follow: { value: { kind: 'none' }, short: 'f', help: 'Go on until the run ends', commands: ['logs', 'events'], section: 'Selection' },
  stream: { value: { kind: 'choice', name: 'STREAM', of: ['stdout', 'stderr'] }, help: 'Only one stream', commands: ['logs'], section: 'Selection' },
  signal: { value: { kind: 'string', name: 'SIGNAL' }, help: 'A signal for the command: SIGINT, TERM, 10', commands: ['kill'], section: 'Selection' },
  tree: { value: { kind: 'none' }, help: 'Show which run started from which', commands: ['ls'], section: 'Selection' },
  checkpoints: { value: { kind: 'none' }, help: 'Also checkpoints, and the runs that they keep', commands: ['prune'], section: 'Selection' },
  staged: { value: { kind: 'none' }, help: 'Also stages that were neither applied nor dropped', commands: ['prune'], section: 'Selection' },
  olderThan: {
    value: { kind: 'duration', name: 'TIME' },
    help: 'Only runs that ended longer ago than this: 12h, 30d',
    commands: ['prune'],
    section: 'Selection',
  },
  kind: {
    value: { kind: 'choice', name: 'KIND', of: ['job', 'policy', 'profile'] },
    help: 'What the files are, when their names do not say it',
    commands: ['policy check'],
    section: 'Selection',
  },
  rootfs: {
    value: { kind: 'path', name: 'FILE' },
    help: 'A tar archive of a root filesystem, instead of busybox',
    commands: ['image build'],
    section: 'Selection',
  },
  tag: {
    value: { kind: 'string', name: 'NAME[:TAG]' },
    help: 'Name of the image (proofrun-base:latest)',
    commands: ['image build'],
    section: 'Selection',
  },
  label: {
    value: { kind: 'string', name: 'KEY=VALUE' },
    repeat: true,
    help: 'A label of the image',
    commands: ['image build'],
    section: 'Selection',
  },
  list: { value: { kind: 'none' }, help: 'List them: accepted files (trust), agent runs (show)', commands: ['trust', 'show'], section: 'Selection' },
  revoke: { value: { kind: 'none' }, help: 'Withdraw the acceptance of the file', commands: ['trust'], section: 'Selection' },
  yes: { value: { kind: 'none' }, help: 'Accept without asking', commands: ['trust'], section: 'Selection' },
  force: { value: { kind: 'none' }, help: 'Replace an existing file', commands: ['init'], section: 'Selection' },
  agent: { value: { kind: 'path', name: 'FILE' }, help: 'Let an agent work instead of a command', commands: RUN, section: 'The run' },
  task: { value: { kind: 'string', name: 'TEXT' }, help: 'What is asked of the agent, instead of the task in its file', commands: RUN, section: 'The run' },
  arguments: { value: { kind: 'string', name: 'JSON' }, help: 'Run these arguments instead; both are recorded', commands: ['approve'], section: 'Selection' },
  settled: { value: { kind: 'string', name: 'JSON' }, help: 'It did happen, and this is what it answered', commands: ['approve'], section: 'Selection' },
  note: { value: { kind: 'string', name: 'TEXT' }, help: 'Words that are recorded with it', commands: ['approve', 'reject', 'cancel'], section: 'Selection' },
  page: { value: { kind: 'count', name: 'N' }, help: 'A page of what was written in full', commands: ['approvals'], section: 'Selection' },
  rules: { value: { kind: 'path', name: 'FILE' }, help: 'The tool policy to ask', commands: ['recheck'], section: 'Selection' },
  chain: { value: { kind: 'none' }, help: 'Only follow the chain of events', commands: ['verify'], section: 'Selection' },
  head: {
    value: { kind: 'string', name: 'SEQ:HASH' },
    help: 'An event that was noted earlier must be in the chain',
    commands: ['verify'],
    section: 'Selection',
  },
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
  { flags: ['learn', 'detach'], why: 'the file is written at the end' },
  { flags: ['learn', 'noNet'], why: 'nothing of a network that is not there can be recorded' },
  { flags: ['detach', 'dryRun'], why: 'a dry run starts nothing' },
  { flags: ['strict', 'degrade'], why: '--strict has no waiver' },
  { flags: ['agent', 'detach'], why: 'an agent run is resumed, not detached' },
  { flags: ['agent', 'dryRun'], why: 'what an agent will ask for is not known before' },
  { flags: ['arguments', 'settled'], why: 'it runs, or it is over' },
  { flags: ['patch', 'stat'], why: 'a diff has one form' },
  { flags: ['patch', 'json'], why: 'a patch is not JSON' },
  { flags: ['all', 'path'], why: '--all selects everything already' },
  { flags: ['all', 'include'], why: '--all selects everything already' },
  { flags: ['interactive', 'json'], why: 'questions are for a person' },
  { flags: ['interactive', 'dryRun'], why: 'a dry run asks nothing' },
  { flags: ['merge', 'target'], why: 'only the workspace has what the run saw' },
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
