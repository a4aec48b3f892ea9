import { toSnake } from '../../core/case.ts';
import { ProofrunError } from '../../core/errors.ts';
import { createCheckpoint, deleteCheckpoint, verifyCheckpoint } from '../../runner/checkpoint.host.ts';
import { altered } from '../../runner/checkpoint-files.host.ts';
import { askAgent } from '../../runner/agent-client.host.ts';
import { runPaths } from '../../runner/state-directory.ts';
import type { StoredCheckpoint, StoredRun } from '../../store/index.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openRuns, type OpenRuns } from '../open-runs.host.ts';
import { AGENT_PATIENCE_MS } from './agentctl.ts';
import { checkpointList, checkpointText } from '../report/checkpoint.ts';
import { jsonLine } from '../report/json.ts';
import { paletteFor } from '../report/palette.ts';
import { startProgress } from '../report/progress.ts';

/** `job checkpoint create|list|show|verify|delete`. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const runs = await openRuns(context, args.flags.workspace);
  try {
    switch (args.command) {
      case 'checkpoint create':
        return await create(args, context, runs);
      case 'checkpoint list':
        return await list(args, context, runs);
      case 'checkpoint show':
        return await show(args, context, runs);
      case 'checkpoint verify':
        return await verify(args, context, runs);
      case 'checkpoint delete': {
        const found = await find(args, runs);
        await deleteCheckpoint(runs.runner.parts, found);
        context.stdout.write(args.flags.json === true ? jsonLine({ checkpoint: found.id, deleted: true }) : `${found.id}: deleted\n`);
        return 0;
      }
      default:
        throw new ProofrunError('ERR_INTERNAL', { message: `${args.command} is no command of checkpoints` });
    }
  } finally {
    runs.close();
  }
}

async function find(args: ParsedArgs, runs: OpenRuns): Promise<StoredCheckpoint> {
  return runs.runner.parts.store.findCheckpoint(args.words[0] ?? 'last', await runs.workspace());
}

async function create(args: ParsedArgs, context: CliContext, runs: OpenRuns): Promise<number> {
  const { parts } = runs.runner;
  const run = await runs.find(args.words[0]);
  const progress = startProgress('checkpoint', context, args.flags.json === true);
  let made: StoredCheckpoint;
  try {
    const name = args.flags.name ?? null;
    if (run.lease !== null) return await createLive(args, context, runs, run, name);
    made = await createCheckpoint(parts, run, name);
  } finally {
    progress.stop();
  }
  context.stdout.write(args.flags.json === true ? jsonLine(toSnake(made)) : `${made.id}\n`);
  return 0;
}

/** Of a live run its owner makes it, when the program says that it is quiet. */
async function createLive(args: ParsedArgs, context: CliContext, runs: OpenRuns, run: StoredRun, name: string | null): Promise<number> {
  const { directory } = runPaths(runs.runner.parts.stateDirectory, run.id);
  const made = await askAgent(directory, run.id, { op: 'checkpoint', timeoutMs: args.flags.timeout ?? AGENT_PATIENCE_MS, name });
  context.stdout.write(args.flags.json === true ? jsonLine(made) : `${typeof made.id === 'string' ? made.id : ''}\n`);
  return 0;
}

async function list(args: ParsedArgs, context: CliContext, runs: OpenRuns): Promise<number> {
  const everywhere = args.flags.all === true && args.flags.workspace === undefined;
  const found = runs.runner.parts.store.listCheckpoints(everywhere ? {} : { workspace: await runs.workspace() });
  context.stdout.write(
    args.flags.json === true
      ? jsonLine(toSnake(found))
      : checkpointList({ checkpoints: found, nowMs: context.clock(), width: context.columns, palette: paletteFor(context, 'stdout') }),
  );
  return 0;
}

async function show(args: ParsedArgs, context: CliContext, runs: OpenRuns): Promise<number> {
  const found = await find(args, runs);
  const forks = runs.runner.parts.store
    .lineage()
    .filter((one) => one.checkpoint === found.id)
    .map((one) => one.runId);
  context.stdout.write(args.flags.json === true ? jsonLine(toSnake({ ...found, forks })) : checkpointText(found, forks));
  return 0;
}

async function verify(args: ParsedArgs, context: CliContext, runs: OpenRuns): Promise<number> {
  const found = await find(args, runs);
  const progress = startProgress('verifying', context, args.flags.json === true);
  const differences = await verifyCheckpoint(runs.runner.parts, found).finally(() => {
    progress.stop();
  });
  if (differences.length > 0) throw altered(found, differences);
  context.stdout.write(
    args.flags.json === true
      ? jsonLine({ checkpoint: found.id, verified: true, manifest_sha256: found.manifestSha256 })
      : `${found.id}: verified (sha256 ${(found.manifestSha256 ?? '').slice(0, 8)})\n`,
  );
  return 0;
}
