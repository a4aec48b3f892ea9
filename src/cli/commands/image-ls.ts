import { IMAGE_LABEL, openEngine } from '../../../executors/docker/image/index.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { imageJson, imageListText } from '../report/image.ts';
import { jsonLine } from '../report/json.ts';

/** Lists the images that `job image build` made on this engine. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const client = await openEngine();
  const images = [...(await client.listImages(IMAGE_LABEL))].sort((a, b) => b.createdMs - a.createdMs);
  context.stdout.write(args.flags.json === true ? jsonLine(images.map(imageJson)) : imageListText(images, context.clock()));
  return 0;
}
