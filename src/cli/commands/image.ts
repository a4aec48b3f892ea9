import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';

/** `job image ...`: each member is a file of its own. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  if (args.command === 'image build') return (await import('./image-build.ts')).run(args, context);
  return (await import('./image-ls.ts')).run(args, context);
}
