import { VERSION } from '../../core/version.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';

export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const text =
    args.flags.json === true
      ? JSON.stringify({ version: VERSION, node: process.versions.node, platform: `${process.platform}-${process.arch}` })
      : `proofrun ${VERSION}`;
  context.stdout.write(`${text}\n`);
  return Promise.resolve(0);
}
