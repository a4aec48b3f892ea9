import { ProofrunError } from '../core/errors.ts';
import type { RunIo } from '../runner/runner.ts';
import type { ParsedArgs } from './command.ts';
import type { CliContext } from './context.ts';

/** With --json stdout is for the result alone, so what the command says goes to stderr. */
export function ioOf(args: ParsedArgs, context: CliContext): RunIo {
  const { stdin, stdout, stderr } = context.isTerminal;
  const onTerminal = stdin && stdout && stderr;
  if (args.flags.terminal === true && !onTerminal) {
    const without = [...(stdin ? [] : ['stdin']), ...(stdout ? [] : ['stdout']), ...(stderr ? [] : ['stderr'])];
    throw new ProofrunError('ERR_USAGE', {
      message: `-t needs a terminal, and ${without.join(', ')} ${without.length === 1 ? 'is' : 'are'} none`,
      hint: 'leave -t out: the command gets pipes',
    });
  }
  if (onTerminal && args.flags.noTerminal !== true && args.flags.json !== true) return { kind: 'terminal' };
  return { kind: 'pipes', stdin: 'inherit', stdout: args.flags.json === true ? context.stderr : context.stdout, stderr: context.stderr };
}
