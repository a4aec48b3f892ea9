import { ProofrunError } from '../../core/errors.ts';
import type { ParsedArgs } from '../command.ts';
import { completionScript, SHELLS } from '../completion.ts';
import type { CliContext } from '../context.ts';

export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const word = args.words[0];
  const shell = SHELLS.find((name) => name === word);
  if (shell === undefined) {
    throw new ProofrunError('ERR_USAGE', {
      message: `\`job completion\` expects one of ${SHELLS.join(', ')}; received ${JSON.stringify(word ?? '')}`,
      hint: 'eval "$(job completion bash)"',
    });
  }
  context.stdout.write(completionScript(shell));
  return Promise.resolve(0);
}
