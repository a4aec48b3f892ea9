import { resolve } from 'node:path';
import { buildImage, openEngine, parseImageName, parseLabel } from '../../../executors/docker/image/index.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { builtImageText, imageJson } from '../report/image.ts';
import { jsonLine } from '../report/json.ts';

const DEFAULT_NAME = 'proofrun-base';

/** Makes an image of this machine's busybox, or of a root filesystem archive, and prints its digest. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const { flags } = args;
  const name = parseImageName(flags.tag ?? DEFAULT_NAME);
  const labels = (flags.label ?? []).map(parseLabel);
  const client = await openEngine();
  const built = await buildImage({
    client,
    name,
    labels,
    source: flags.rootfs === undefined ? { kind: 'busybox' } : { kind: 'rootfs', file: resolve(context.cwd, flags.rootfs) },
  });
  context.stdout.write(
    flags.json === true
      ? jsonLine({ name: built.name, ...imageJson(built.image), source: built.source, entries: built.entries, replaced: built.replaced ?? null })
      : builtImageText(built),
  );
  return 0;
}
