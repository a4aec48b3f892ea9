import { resolve } from 'node:path';
import { EXIT_CODES, ProofrunError } from '../../core/errors.ts';
import { safeLine } from '../../core/text-safety.ts';
import { loadToolPolicy } from '../../runtime/agent-file.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openControl } from '../open-control.host.ts';
import { jsonLine } from '../report/json.ts';

/** What another tool policy would have said. 205 when any decision would have been another. Runs nothing. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const { rules } = args.flags;
  if (rules === undefined) {
    throw new ProofrunError('ERR_USAGE', { message: '`job recheck` needs --rules FILE; received none', hint: 'job recheck last --rules tools.yaml' });
  }
  const control = await openControl(context);
  try {
    const policy = await loadToolPolicy(resolve(context.cwd, rules), rules, control.runs.caller.uid);
    const id = await control.find(args.words[0]);
    const results = await control.runtime.recheck(id, [policy]);
    const changed = results.filter((one) => one.changed).length;
    if (args.flags.json === true) context.stdout.write(jsonLine({ run: id, policy_sha256: policy.digest, changed, steps: results.map((one) => ({ ...one })) }));
    else {
      const lines = results.map(
        (one) => `${one.changed ? '!' : ' '} step ${one.step}  ${safeLine(one.tool, 64)}  ${one.recorded ?? '-'} -> ${one.now}  ${safeLine(one.detail, 200)}`,
      );
      context.stdout.write(`${[...lines, `${changed} of ${results.length} would have been decided otherwise`].join('\n')}\n`);
    }
    return changed === 0 ? 0 : EXIT_CODES.conflict;
  } finally {
    await control.close();
  }
}
