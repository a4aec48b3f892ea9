import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';

/** `job policy ...`: each member is a file of its own, so that `ls` loads no YAML. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  switch (args.command) {
    case 'policy show':
      return (await import('./policy-show.ts')).run(args, context);
    case 'policy check':
      return (await import('./policy-check.ts')).run(args, context);
    case 'policy explain':
      return (await import('./policy-explain.ts')).run(args, context);
    default:
      return (await import('./policy-ls.ts')).run(args, context);
  }
}
