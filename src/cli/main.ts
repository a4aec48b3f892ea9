import { ProofrunError } from '../core/errors.ts';
import type { CommandModule, ParsedArgs } from './command.ts';
import type { CliContext } from './context.ts';
import type { CommandName } from './command-table.ts';
import { parseCommandLine } from './parse.ts';

/** Each command is a file of its own, loaded when it is asked for: what `job run` doesn't need costs it nothing. */
const MODULES: Readonly<Record<Exclude<CommandName, 'help'>, () => Promise<CommandModule>>> = {
  run: () => import('./commands/run.ts'),
  fork: () => import('./commands/fork.ts'),
  inspect: () => import('./commands/inspect.ts'),
  'checkpoint create': () => import('./commands/checkpoint-create.ts'),
  'checkpoint list': () => import('./commands/checkpoint-list.ts'),
  'checkpoint show': () => import('./commands/checkpoint-show.ts'),
  'checkpoint verify': () => import('./commands/checkpoint-verify.ts'),
  'checkpoint delete': () => import('./commands/checkpoint-delete.ts'),
  'agentctl status': () => import('./commands/agentctl-status.ts'),
  'agentctl quiesce': () => import('./commands/agentctl-quiesce.ts'),
  'agentctl continue': () => import('./commands/agentctl-continue.ts'),
  'agentctl cancel': () => import('./commands/agentctl-cancel.ts'),
  status: () => import('./commands/status.ts'),
  diff: () => import('./commands/diff.ts'),
  apply: () => import('./commands/apply.ts'),
  undo: () => import('./commands/undo.ts'),
  drop: () => import('./commands/drop.ts'),
  ls: () => import('./commands/ls.ts'),
  logs: () => import('./commands/logs.ts'),
  events: () => import('./commands/events.ts'),
  wait: () => import('./commands/wait.ts'),
  attach: () => import('./commands/attach.ts'),
  stop: () => import('./commands/stop.ts'),
  kill: () => import('./commands/kill.ts'),
  approvals: () => import('./commands/approvals.ts'),
  approve: () => import('./commands/approve.ts'),
  reject: () => import('./commands/reject.ts'),
  resume: () => import('./commands/resume.ts'),
  cancel: () => import('./commands/cancel.ts'),
  show: () => import('./commands/show.ts'),
  recheck: () => import('./commands/recheck.ts'),
  'policy ls': () => import('./commands/policy.ts'),
  'policy show': () => import('./commands/policy.ts'),
  'policy check': () => import('./commands/policy.ts'),
  'policy explain': () => import('./commands/policy.ts'),
  trust: () => import('./commands/trust.ts'),
  init: () => import('./commands/init.ts'),
  verify: () => import('./commands/verify.ts'),
  doctor: () => import('./commands/doctor.ts'),
  'image build': () => import('./commands/image.ts'),
  'image ls': () => import('./commands/image.ts'),
  schema: () => import('./commands/schema.ts'),
  prune: () => import('./commands/prune.ts'),
  completion: () => import('./commands/completion.ts'),
  version: () => import('./commands/version.ts'),
};

/**
 * Runs one command line (the arguments after `job`) and resolves to its exit code. Never rejects: whatever is thrown becomes
 * text on stderr, or JSON on stdout with --json, and the code of its kind.
 */
export async function main(argv: readonly string[], context: CliContext): Promise<number> {
  let args: ParsedArgs | undefined;
  try {
    const line = parseCommandLine(argv);
    if (line.kind === 'help') {
      const { formatHelp } = await import('./help.ts');
      const bare = argv.length === 0;
      (bare ? context.stderr : context.stdout).write(formatHelp(line.topic));
      return bare ? 2 : 0;
    }
    ({ args } = line);
    return await runCommand(args, context);
  } catch (error) {
    const { reportError } = await import('./report/error.ts');
    return reportError(error, wantsJson(argv), context, args);
  }
}

async function runCommand(args: ParsedArgs, context: CliContext): Promise<number> {
  if (args.command === 'help') {
    throw new ProofrunError('ERR_INTERNAL', { message: 'help reached the dispatcher' });
  }
  const module = await MODULES[args.command]();
  return module.run(args, context);
}

/** Whether --json was asked for, also on a command line that the parser refused. */
function wantsJson(argv: readonly string[]): boolean {
  const dashes = argv.indexOf('--');
  return (dashes === -1 ? argv : argv.slice(0, dashes)).includes('--json');
}
