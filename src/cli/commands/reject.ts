import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { decideOn } from '../decide.host.ts';

/** Rejects what was shown. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  return await decideOn(args, context, 'reject', (runtime, request) => runtime.reject(request));
}
