import { talk } from '../agent-talk.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';

/** What the program in a live run says that it does. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  return await talk(args, context, { op: 'status' });
}
