import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { runOrDetach } from './run.ts';

/** As `job run`, on a checkpoint. The command line stays as typed, for hints and for the process that outlives the terminal. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const [selector = '', ...words] = args.words;
  return await runOrDetach({ ...args, words }, context, { kind: 'checkpoint', selector });
}
