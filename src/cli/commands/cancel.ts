import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { decider, openControl } from '../open-control.host.ts';
import { jsonLine } from '../report/json.ts';

/** Ends an agent run, whoever works on it. ERR_RUN_STATE when it is over. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const control = await openControl(context);
  try {
    const id = await control.find(args.words[0]);
    control.runtime.cancel(id, decider('command'), args.flags.note);
    context.stdout.write(args.flags.json === true ? jsonLine({ run: id, state: 'cancelled' }) : `${id}: cancelled\n`);
    return 0;
  } finally {
    await control.close();
  }
}
