import { ProofrunError } from '../core/errors.ts';
import type { JsonObject } from '../core/json.ts';
import { safeLine } from '../core/text-safety.ts';
import { askAgent } from '../runner/agent-client.host.ts';
import type { AgentRequest } from '../runner/agent-protocol.ts';
import { runPaths } from '../runner/state-directory.ts';
import type { ParsedArgs } from './command.ts';
import type { CliContext } from './context.ts';
import { openRuns } from './open-runs.host.ts';
import { jsonLine } from './report/json.ts';

/** Asks the owner of the run that the first word names, and prints what it answers. */
export async function talk(args: ParsedArgs, context: CliContext, request: AgentRequest): Promise<number> {
  const runs = await openRuns(context);
  try {
    const found = runs.find(args.words[0]);
    if (found.lease === null) throw new ProofrunError('ERR_RUN_STATE', { message: `${found.id}: it is over`, hint: `job status ${found.id}` });
    const facts = await askAgent(runPaths(runs.runner.parts.stateDirectory, found.id).directory, found.id, request);
    context.stdout.write(args.flags.json === true ? jsonLine(facts) : statusText(found.id, facts));
    return 0;
  } finally {
    runs.close();
  }
}

function statusText(id: string, facts: JsonObject): string {
  const said = facts.said_by_guest;
  const of = (key: string): string => {
    const value = typeof said === 'object' && said !== null && key in said ? (said as JsonObject)[key] : undefined;
    return typeof value === 'string' ? safeLine(value, 100) : '-';
  };
  const directive = typeof facts.directive === 'string' ? facts.directive : '-';
  return `${id}\nsaid by the job   agent ${of('agent')}, state ${of('state')}\nlast directive    ${directive}\n`;
}
