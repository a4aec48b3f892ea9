import { AGENT_PATIENCE_MS } from '../../runner/agent-client.host.ts';
import { talk } from '../agent-talk.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';

/** Resolves when the program says that it is quiet. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  return await talk(args, context, { op: 'quiesce', timeoutMs: args.flags.timeout ?? AGENT_PATIENCE_MS });
}
