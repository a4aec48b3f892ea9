/**
 * The commands as data: with src/cli/flags.ts the one table that the parser, the help, docs/reference/cli.md and the completion scripts are
 * made from. Plain data, so that reading it costs nothing at start.
 */

/** Groups of the command list in `job help`. */
export const COMMAND_GROUPS = ['Run', 'Review', 'Watch', 'Agents', 'Rules', 'Machine'] as const;
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
  /** How many words of ours come before that program. Default 0. */
  readonly leads?: number;
  /** What the completion scripts offer for the words. */
  readonly completes?: 'run' | 'program' | 'file' | 'command' | 'shell' | 'schema' | 'rules';
  /** Further paragraphs of `job help COMMAND`. */
  readonly about: readonly string[];
  /** Command lines with what each is for. */
  readonly examples: readonly (readonly [string, string])[];
}

const CONTROL_WORD = 'RUN is the id of an agent run (ctl-...), a unique prefix of one, a name, or `last` (the newest of this workspace, and the default).';
const SHOWN_WORD =
  'HASH is the beginning of the hash that `job approvals` shows, at least 12 digits: a decision is on what was shown. Without it the question is shown and asked on the terminal; no answer decides nothing.';

const RUN_WORD = 'RUN is an id, a unique prefix of one, a name, or `last` (the newest of this workspace, and the default).';

export const COMMANDS = {
  run: {
    group: 'Run',
    summary: 'Run a command in a sandbox, with its file changes staged',
    words: '[--] COMMAND [ARG...] | JOBFILE | --agent FILE',
    least: 1,
    most: Infinity,
    endsFlags: true,
    completes: 'program',
    about: [
      'The first word that is no flag is the program; everything after it belongs to the program. A single word that ends in .yaml, .yml or .json is a job file; write `--` before a program of such a name.',
      'Flags are joined with the job file: grants add up, a mode can only be raised, and the smallest limit wins.',
      "Exit code: the command's own, 128 + n after signal n, or one of Proofrun's own (`job help exit-codes`).",
      'With --agent an agent works instead of a command: each tool call that its policy allows is a run of its own under these flags, --safe at least. It exits with 208 when it waits for an approval.',
    ],
    examples: [
      ['job run --safe -- npm test', 'isolated, staged, no network'],
      ['job run --safe --use npm-install -- npm ci', 'with the grants of a profile'],
      ['job run --safe --no-net --timeout 5m -- make', 'with a time limit'],
      ['job run --dry-run --safe -- npm test', 'show the plan and start nothing'],
      ['job run job.yaml', 'from a job file'],
      ['job run --safe --on last -- npm test', 'on what the newest run left staged'],
      ['job run --agent agent.yaml --name fix', 'an agent'],
    ],
  },
  fork: {
    group: 'Run',
    summary: 'Run a command on a checkpoint, as a run of its own',
    words: 'CHECKPOINT [--] COMMAND [ARG...]',
    least: 2,
    most: Infinity,
    endsFlags: true,
    leads: 1,
    completes: 'program',
    about: [
      'CHECKPOINT is an id, a unique prefix of one, a name, or `last` (the newest of this workspace).',
      'Takes the flags of `job run`; they come between the checkpoint and the command. The checkpoint is verified first, and stays as it is: any number of runs may be forked from it, and checkpoints of them forked again.',
    ],
    examples: [['job fork before-upgrade --safe -- npm test', '']],
  },
  inspect: {
    group: 'Review',
    summary: 'Run a command over a read-only view of what a run staged',
    words: 'RUN [--] COMMAND [ARG...]',
    least: 2,
    most: Infinity,
    endsFlags: true,
    leads: 1,
    completes: 'run',
    about: [
      RUN_WORD,
      'The command sees the workspace with the staged changes in it, can write nothing there, and has no network unless a flag grants it. --safe is implied. Nothing is recorded. The exit code is that of the command.',
    ],
    examples: [['job inspect last -- npm test', 'the tests, on the result']],
  },
  'checkpoint create': {
    group: 'Review',
    summary: 'Keep what a run has staged, to start other runs from it',
    words: '[RUN]',
    least: 0,
    most: 1,
    completes: 'run',
    about: [
      RUN_WORD,
      'Keeps files of the workspace: no process memory, no private home, nothing outside. Of a run that is over at once; of a live one when its program says over AgentCtl that it is quiet, within --timeout (30 seconds).',
    ],
    examples: [['job checkpoint create last --name before-upgrade', '']],
  },
  'checkpoint list': {
    group: 'Review',
    summary: 'List checkpoints',
    words: '',
    least: 0,
    most: 0,
    about: ['Newest first, of this workspace.'],
    examples: [['job checkpoint list --all', 'of every workspace']],
  },
  'checkpoint show': {
    group: 'Review',
    summary: 'Show a checkpoint and the runs that were forked from it',
    words: '[CHECKPOINT]',
    least: 0,
    most: 1,
    about: ['CHECKPOINT is an id, a unique prefix of one, a name, or `last` (the newest of this workspace, and the default).'],
    examples: [['job checkpoint show before-upgrade', '']],
  },
  'checkpoint verify': {
    group: 'Review',
    summary: 'Read all of a checkpoint and compare it with its hashes',
    words: '[CHECKPOINT]',
    least: 0,
    most: 1,
    about: ['Finds every changed byte, mode, owner, time and name. Exits with 201 when anything differs.'],
    examples: [['job checkpoint verify last', '']],
  },
  'checkpoint delete': {
    group: 'Review',
    summary: 'Remove a checkpoint',
    words: 'CHECKPOINT',
    least: 1,
    most: 1,
    about: ['Runs that were forked from it, and later checkpoints, keep what they have.'],
    examples: [['job checkpoint delete before-upgrade', '']],
  },
  'agentctl status': {
    group: 'Watch',
    summary: 'Show what the program in a live run says that it does',
    words: '[RUN]',
    least: 0,
    most: 1,
    completes: 'run',
    about: [RUN_WORD, 'What it says is its word, and no evidence. Programs speak AgentCtl over the socket that PROOFRUN_AGENTCTL names.'],
    examples: [['job agentctl status last', '']],
  },
  'agentctl quiesce': {
    group: 'Watch',
    summary: 'Ask the program in a live run to come to rest, and wait until it says so',
    words: '[RUN]',
    least: 0,
    most: 1,
    completes: 'run',
    about: [RUN_WORD, 'Waits for --timeout (30 seconds), and takes the request back when nobody answered. The program rests until `job agentctl continue`.'],
    examples: [['job agentctl quiesce last', '']],
  },
  'agentctl continue': {
    group: 'Watch',
    summary: 'Let a program go on that was asked to come to rest',
    words: '[RUN]',
    least: 0,
    most: 1,
    completes: 'run',
    about: [RUN_WORD],
    examples: [['job agentctl continue last', '']],
  },
  'agentctl cancel': {
    group: 'Watch',
    summary: 'Ask the program in a live run to end, then stop the run',
    words: '[RUN]',
    least: 0,
    most: 1,
    completes: 'run',
    about: [RUN_WORD, 'When the command has not ended after --timeout (30 seconds) the run is stopped as by `job stop`.'],
    examples: [['job agentctl cancel last --timeout 1m', '']],
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
      'Says what: --path, --include, --exclude or --all. All or nothing: one conflict refuses the whole selection and touches nothing. What is not selected stays staged.',
      'A path that your machine would run by itself (a git hook, an editor task) needs --allow-exec for that path.',
      'What was there before is kept: `job undo` takes the apply back while its files are as applied.',
    ],
    examples: [
      ['job apply last --path src', 'only what is below src'],
      ['job apply last --interactive', 'file by file, hunk by hunk'],
      ['job apply last --all --dry-run', 'say what would happen'],
      ['job apply last --all', 'everything'],
      ['job apply last --all --allow-exec .husky/pre-commit', 'with a hook that you have read'],
    ],
  },
  undo: {
    group: 'Review',
    summary: 'Take an apply back, while its files are as applied',
    words: '[RUN]',
    least: 0,
    most: 1,
    completes: 'run',
    about: [
      RUN_WORD,
      'Takes back the newest apply of the run, or the one that --batch names: all of it or nothing. What was applied is staged again. Repeating it does nothing.',
    ],
    examples: [
      ['job undo last', ''],
      ['job undo last --batch apply-01KC4Q8Z', 'an earlier one'],
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
      ['job ls --tree', 'runs below the ones that they started from'],
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
    about: [RUN_WORD, 'Also of an agent run, by its id (ctl-...) or a prefix that begins with ctl-.'],
    examples: [
      ['job events last --json', 'one JSON object a line'],
      ['job events ctl-01KC4Q8Z --follow', 'an agent run, until it ends'],
    ],
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
  approvals: {
    group: 'Agents',
    summary: 'List what waits for a decision, or show one question in full',
    words: '[APPROVAL]',
    least: 0,
    most: 1,
    about: [
      'APPROVAL is an id (apr-...) or a unique prefix of one. A question is shown with the hash that a decision has to name. What an agent, a model or a server wrote is quoted line by line.',
    ],
    examples: [
      ['job approvals', ''],
      ['job approvals apr-01KC4Q8Z --page 2', 'the next page of long arguments'],
    ],
  },
  approve: {
    group: 'Agents',
    summary: 'Approve exactly what was shown',
    words: 'APPROVAL [HASH]',
    least: 1,
    most: 2,
    about: [
      SHOWN_WORD,
      'Nothing runs yet: `job resume` asks schema, policy and limits again, and then runs it once. --arguments runs other arguments instead; both are recorded. --settled says that an execution whose end nobody saw did happen, and what it answered.',
    ],
    examples: [
      ['job approve apr-01KC4Q8Z 9b41c7e02a55', ''],
      [`job approve apr-01KC4Q8Z 9b41c7e02a55 --arguments '{"path":"a"}'`, 'with other arguments'],
    ],
  },
  reject: {
    group: 'Agents',
    summary: 'Reject what was shown',
    words: 'APPROVAL [HASH]',
    least: 1,
    most: 2,
    about: [SHOWN_WORD, 'The call is denied and the agent told, or the run ends, as the policy says. --note goes to the agent too.'],
    examples: [['job reject apr-01KC4Q8Z 9b41c7e02a55', '']],
  },
  resume: {
    group: 'Agents',
    summary: 'Go on with an agent run that was decided on, or whose process died',
    words: '[RUN]',
    least: 0,
    most: 1,
    about: [
      CONTROL_WORD,
      'Reads the agent file again and asks its schemas, its policy and every limit as they are now. Flags are those of the first `job run --agent`. A run that another process works on is refused.',
    ],
    examples: [['job resume last', '']],
  },
  cancel: {
    group: 'Agents',
    summary: 'End an agent run',
    words: '[RUN]',
    least: 0,
    most: 1,
    about: [CONTROL_WORD, 'Whoever works on it stops; what a tool that was on its way still did is recorded.'],
    examples: [['job cancel last', '']],
  },
  show: {
    group: 'Agents',
    summary: 'Show an agent run, or list them',
    words: '[RUN]',
    least: 0,
    most: 1,
    about: [CONTROL_WORD, 'With --list: the runs of this workspace, newest first.'],
    examples: [
      ['job show last', ''],
      ['job show --list', ''],
    ],
  },
  recheck: {
    group: 'Agents',
    summary: 'Say what another tool policy would have decided about a recorded run',
    words: '[RUN]',
    least: 0,
    most: 1,
    about: [CONTROL_WORD, 'Runs nothing. Exits with 205 when a decision would have been another.'],
    examples: [['job recheck last --rules tools.yaml', '']],
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
    about: [
      'Takes the rule flags of `job run` and starts nothing. Without a question it shows every default and every rule with the line where it is written.',
    ],
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
    about: [
      'A job file inside a workspace is as untrusted as the rest of it. Its grants are shown once and remembered by the digest of the file; a changed file asks again.',
    ],
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
    about: [
      RUN_WORD,
      'A word with a slash, or that ends in .json, is a bundle file. Exits with 201 when anything differs.',
      'With --chain only the chain of events is followed, of a run or of an agent run (ctl-...), to every row that it speaks of. --head holds it to an event that was noted earlier: a chain that was cut back or written anew fails.',
    ],
    examples: [
      ['job verify --chain ctl-01KC4Q8Z', 'events and rows of an agent run'],
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
  'image build': {
    group: 'Machine',
    summary: 'Make an image on a container engine from this machine, with no registry',
    words: '',
    least: 0,
    most: 0,
    about: [
      'Packs the static busybox of this machine with the few files and directories that a root filesystem needs, or takes an archive of one, has the engine import it, and prints its digest. The same busybox gives the same content.',
      'DOCKER_HOST names the engine; without it the default socket is used. An archive is read from end to end before the engine sees it.',
    ],
    examples: [
      ['job image build', 'proofrun-base:latest, of busybox'],
      ['job image build --rootfs debian.tar --tag debian:12', 'of an archive'],
    ],
  },
  'image ls': {
    group: 'Machine',
    summary: 'List the images that `job image build` made on the engine',
    words: '',
    least: 0,
    most: 0,
    about: [],
    examples: [['job image ls', '']],
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
    about: [
      'Never takes a live run. Takes a stage that was neither applied nor dropped only with --staged, and a checkpoint only with --checkpoints. A run stays as long as a checkpoint of it, or a run that started from it, stays.',
    ],
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

/** The row with its optional fields visible to the type checker. */
export function commandRow(name: CommandName): CommandRow {
  return COMMANDS[name];
}
