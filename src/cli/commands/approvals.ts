import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openControl } from '../open-control.host.ts';
import { approvalJson, approvalListText, approvalText } from '../report/control.ts';
import { jsonLine } from '../report/json.ts';

/** What waits for a decision, or one question in full. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const control = await openControl(context);
  try {
    const store = control.runs.runner.parts.store.control;
    const word = args.words[0];
    if (word === undefined) {
      const pending = store.pending();
      context.stdout.write(args.flags.json === true ? jsonLine(pending.map(approvalJson)) : approvalListText(pending, context.clock()));
      return 0;
    }
    const row = store.findApproval(word);
    const late = control.runtime.view(row.run_id).steps.find((step) => step.number === row.step)?.late ?? null;
    context.stdout.write(args.flags.json === true ? jsonLine({ ...approvalJson(row), late }) : approvalText(row, late, args.flags.page));
    return 0;
  } finally {
    await control.close();
  }
}
