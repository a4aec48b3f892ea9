import { constants } from 'node:os';
import { ProofrunError } from '../../core/errors.ts';
import { askOwner, waitForRun } from '../../runner/wait-run.host.ts';
import { didYouMean } from '../../policy/near-names.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openRuns } from '../open-runs.host.ts';
import { jsonLine, runJson } from '../report/json.ts';
import { endingWords } from '../report/words.ts';

/** Ends the whole tree and waits for the end, or sends the command a signal and returns. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const signal = args.flags.signal === undefined ? undefined : signalNamed(args.flags.signal);
  const runs = await openRuns(context);
  try {
    const found = runs.find(args.words[0]);
    const { parts } = runs.runner;
    if (signal !== undefined) {
      await askOwner(parts, found.id, { op: 'signal', signal });
      if (args.flags.json === true) context.stdout.write(jsonLine({ run: found.id, signal }));
      return 0;
    }
    await askOwner(parts, found.id, { op: 'kill' });
    const ended = await waitForRun(parts, found.id);
    context.stdout.write(args.flags.json === true ? jsonLine(runJson(ended)) : `${ended.id}: ${endingWords(ended.ending)}\n`);
    return 0;
  } finally {
    runs.close();
  }
}

/** SIGUSR1, USR1, usr1, 10. ERR_USAGE. */
function signalNamed(text: string): NodeJS.Signals {
  const names = Object.keys(constants.signals) as NodeJS.Signals[];
  const upper = text.toUpperCase();
  const found = names.find((name) => name === upper || name === `SIG${upper}` || String(constants.signals[name]) === text);
  if (found !== undefined) return found;
  throw new ProofrunError('ERR_USAGE', {
    message: `--signal expects a name or number of a signal; received ${JSON.stringify(text)}${didYouMean(upper.startsWith('SIG') ? upper : `SIG${upper}`, names)}`,
    hint: 'write --signal SIGUSR1',
  });
}
