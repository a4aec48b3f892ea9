import { ProofrunError } from '../core/errors.ts';
import type { DecisionRequest } from '../runtime/decisions.host.ts';
import type { ControlRuntime } from '../runtime/runtime.host.ts';
import type { ApprovalRow } from '../store/index.ts';
import { askLine } from './ask.host.ts';
import type { ParsedArgs } from './command.ts';
import type { CliContext } from './context.ts';
import { decider, openControl } from './open-control.host.ts';
import { approvalJson, approvalText } from './report/control.ts';
import { jsonLine } from './report/json.ts';

/**
 * A decision on what was shown: with the hash on the command line, or shown here and answered with `y` on a terminal. The end of the input is no
 * answer, and neither is anything else.
 */
export async function decideOn(
  args: ParsedArgs,
  context: CliContext,
  verb: 'approve' | 'reject',
  decide: (runtime: ControlRuntime, request: DecisionRequest) => ApprovalRow,
): Promise<number> {
  const [word = '', hash] = args.words;
  const control = await openControl(context);
  try {
    const row = control.runs.runner.parts.store.control.findApproval(word);
    const shown = hash ?? (await ask(row, context, verb, control.runtime));
    const note = args.flags.note === undefined ? {} : { note: args.flags.note };
    const decided = decide(control.runtime, { approval: row.id, shown, decider: decider(hash === undefined ? 'terminal' : 'command'), ...note });
    context.stdout.write(args.flags.json === true ? jsonLine(approvalJson(decided)) : `${decided.id}: ${decided.state}\njob resume ${decided.run_id}\n`);
    return 0;
  } finally {
    await control.close();
  }
}

async function ask(row: ApprovalRow, context: CliContext, verb: string, runtime: ControlRuntime): Promise<string> {
  const late = runtime.view(row.run_id).steps.find((step) => step.number === row.step)?.late ?? null;
  context.stderr.write(approvalText(row, late, undefined));
  if (!context.isTerminal.stdin || !context.isTerminal.stderr) {
    throw new ProofrunError('ERR_USAGE', {
      message: `${row.id}: without a terminal a decision names what was shown`,
      hint: `job ${verb} ${row.id} ${row.shown_sha256.slice(0, 12)}`,
    });
  }
  const answer = await askLine(`${verb} this? [y/N] `, context);
  if (/^y(es)?$/i.test(answer.trim())) return row.shown_sha256;
  throw new ProofrunError('ERR_RUN_STATE', { message: `${row.id}: nothing was decided`, hint: `job approvals ${row.id}` });
}
