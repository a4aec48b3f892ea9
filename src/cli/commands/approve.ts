import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { decideOn } from '../decide.host.ts';

/** Approves exactly what was shown, with --arguments something else instead, or with --settled says how an execution went. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const { arguments: edited, settled } = args.flags;
  return await decideOn(args, context, 'approve', (runtime, request) =>
    settled === undefined
      ? runtime.approve({ ...request, ...(edited === undefined ? {} : { edited }) })
      : runtime.settleUnknown({ ...request, observation: settled }),
  );
}
