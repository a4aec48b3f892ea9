import { talk } from '../agent-talk.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';

/** Lets a quiet program go on. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  return await talk(args, context, { op: 'continue' });
}
