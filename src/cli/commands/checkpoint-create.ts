import { toSnake } from '../../core/case.ts';
import type { JsonValue } from '../../core/json.ts';
import { AGENT_PATIENCE_MS, askAgent } from '../../runner/agent-client.host.ts';
import { createCheckpoint } from '../../runner/checkpoint.host.ts';
import { runPaths } from '../../runner/state-directory.ts';
import type { StoredRun } from '../../store/index.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openRuns, type OpenRuns } from '../open-runs.host.ts';
import { jsonLine } from '../report/json.ts';
import { startProgress } from '../report/progress.ts';

/** Keeps what a run has staged; prints the id. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const runs = await openRuns(context);
  const progress = startProgress('checkpoint', context, { json: args.flags.json === true });
  let made: JsonValue;
  try {
    made = await create(args, runs, runs.find(args.words[0]));
  } finally {
    progress.stop();
    runs.close();
  }
  const id = typeof made === 'object' && made !== null && 'id' in made && typeof made.id === 'string' ? made.id : '';
  context.stdout.write(args.flags.json === true ? jsonLine(made) : `${id}\n`);
  return 0;
}

/** Of a live run its owner makes it, when the program says that it is quiet. */
async function create(args: ParsedArgs, { runner: { parts } }: OpenRuns, run: StoredRun): Promise<JsonValue> {
  const name = args.flags.name ?? null;
  if (run.lease === null) return toSnake(await createCheckpoint(parts, run, name));
  const { directory } = runPaths(parts.stateDirectory, run.id);
  return await askAgent(directory, run.id, { op: 'checkpoint', timeoutMs: args.flags.timeout ?? AGENT_PATIENCE_MS, name });
}
