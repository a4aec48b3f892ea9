import { join, resolve } from 'node:path';
import { BUNDLE_FILE, type RunBundle } from '../../core/bundle.ts';
import { EXIT_CODES } from '../../core/errors.ts';
import { displayPath, safeLine } from '../../core/text-safety.ts';
import { readBundle } from '../../runner/bundle.host.ts';
import { readRunBundle } from '../../runner/run-bundle.host.ts';
import { runPaths } from '../../runner/state-directory.ts';
import { verifyBundle } from '../../runner/verify.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { openRuns } from '../open-runs.host.ts';
import { jsonLine } from '../report/json.ts';
import { paletteFor } from '../report/palette.ts';
import { dimensionList, plural } from '../report/words.ts';

interface Subject {
  readonly bundle: RunBundle;
  readonly file: string;
  /** What is wrong with the run's events in the store; undefined when nothing is, and for a bundle from somewhere else. */
  readonly chain: string | undefined;
}

/** Recomputes what a bundle derives. 0 when all of it follows, 201 when something doesn't. Throws ERR_BUNDLE_INVALID, ERR_RUN_NOT_FOUND. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const word = args.words[0];
  if (args.flags.chain === true || args.flags.head !== undefined) {
    const { verifyChain } = await import('../verify-chain.host.ts');
    return await verifyChain(args, context);
  }
  const { bundle, file, chain } =
    word !== undefined && (word.includes('/') || word.endsWith('.json')) ? await fromFile(resolve(context.cwd, word)) : await recorded(word, context);
  const { problems } = verifyBundle(bundle);
  const all = chain === undefined ? problems : [...problems, chain];
  if (args.flags.json === true) {
    context.stdout.write(
      jsonLine({
        file,
        run: bundle.run.id,
        sha256: bundle.sha256,
        ok: all.length === 0,
        problems: all,
        promise: bundle.safety.promise,
        enforced: bundle.safety.enforced,
      }),
    );
  } else {
    const palette = paletteFor(context, 'stdout');
    const head = all.length === 0 ? palette.good('verified') : palette.bad(`${plural(all.length, 'statement')} not derivable`);
    const lines = [
      `${head}  ${bundle.run.id}  sha256 ${bundle.sha256}`,
      ...all.map((problem) => `  ${safeLine(problem, 400)}`),
      `  enforced   ${bundle.safety.enforced.length === 0 ? 'nothing' : dimensionList(bundle.safety.enforced)}`,
      `  bundle     ${displayPath(file)}`,
    ];
    context.stdout.write(`${lines.join('\n')}\n`);
  }
  return all.length === 0 ? 0 : EXIT_CODES.evidence;
}

async function fromFile(file: string): Promise<Subject> {
  return { bundle: await readBundle(file), file, chain: undefined };
}

/** The bundle of a run, held to the hash that the store has, and the chain of its events. */
async function recorded(selector: string | undefined, context: CliContext): Promise<Subject> {
  const runs = await openRuns(context);
  try {
    const { stateDirectory, store } = runs.runner.parts;
    const found = runs.find(selector);
    const bundle = await readRunBundle(stateDirectory, found);
    const chain = store.checkChain(found.id);
    return {
      bundle,
      file: join(runPaths(stateDirectory, found.id).directory, BUNDLE_FILE),
      chain: chain.ok ? undefined : `event ${chain.seq} of the store ${chain.fact}`,
    };
  } finally {
    runs.close();
  }
}
