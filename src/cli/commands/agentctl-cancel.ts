import { AGENT_PATIENCE_MS } from '../../runner/agent-client.host.ts';
import { talk } from '../agent-talk.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';

/** Asks the program to end; the run is stopped when it doesn't. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  return await talk(args, context, { op: 'cancel', graceMs: args.flags.timeout ?? AGENT_PATIENCE_MS });
}
