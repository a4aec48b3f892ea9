import { ProofrunError } from '../../core/errors.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { runJob, type Start } from '../run-job.host.ts';

/** Runs a job here, or with -d hands it to a process that outlives the terminal. Exits as the command did, or with a code of Proofrun's own. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  if (args.flags.agent !== undefined) {
    const { runAgent } = await import('../run-agent.host.ts');
    return await runAgent(args, args.flags.agent, context);
  }
  const { on } = args.flags;
  return await runOrDetach(args, context, on === undefined ? undefined : { kind: 'run', selector: on });
}

/** Also for `job fork`. */
export async function runOrDetach(args: ParsedArgs, context: CliContext, start: Start | undefined): Promise<number> {
  if (args.flags.detach !== true) return await runJob(args, context, { start });
  const { detach, isSupervisor, supervision } = await import('../detach.host.ts');
  if (!isSupervisor()) return await detach(args, context);
  const supervised = supervision(context);
  try {
    return await runJob(args, supervised.context, { start, onRunning: supervised.running });
  } catch (error) {
    if (!(error instanceof ProofrunError)) throw error;
    const { reportError } = await import('../report/error.ts');
    return reportError(error, args.flags.json === true, supervised.context);
  }
}
