import { altered } from '../../runner/checkpoint-files.host.ts';
import { verifyCheckpoint } from '../../runner/checkpoint.host.ts';
import { withCheckpoint } from '../checkpoint-word.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { jsonLine } from '../report/json.ts';
import { startProgress } from '../report/progress.ts';

/** Reads all of a checkpoint. ERR_CHECKPOINT_ALTERED names what differs. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  return await withCheckpoint(args, context, async (runs, found) => {
    const progress = startProgress('verifying', context, { json: args.flags.json === true });
    const differences = await verifyCheckpoint(runs.runner.parts, found).finally(() => {
      progress.stop();
    });
    if (differences.length > 0) throw altered(found, differences);
    context.stdout.write(
      args.flags.json === true
        ? jsonLine({ checkpoint: found.id, verified: true, manifest_sha256: found.manifestSha256 })
        : `${found.id}: verified (sha256 ${(found.manifestSha256 ?? '').slice(0, 8)})\n`,
    );
  });
}
