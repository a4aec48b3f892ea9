import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { resumeAgent } from '../run-agent.host.ts';

/** Goes on with an agent run. Exits as `job run --agent` does. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  return await resumeAgent(args, context);
}
