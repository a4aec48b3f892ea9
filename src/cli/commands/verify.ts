import { join, resolve } from 'node:path';
import { EXIT_CODES } from '../../core/errors.ts';
import { displayPath, safeLine } from '../../core/text-safety.ts';
import { readBundle } from '../../runner/bundle.host.ts';
import { verifyBundle } from '../../runner/verify.ts';
import { ProofrunError } from '../../core/errors.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { jsonLine } from '../report/json.ts';
import { paletteFor } from '../report/palette.ts';
import { dimensionList, plural } from '../report/words.ts';
import { withRunner } from '../with-runner.host.ts';

interface Subject {
  readonly file: string;
  /** The hash that the store recorded; undefined for a file from somewhere else. */
  readonly recorded: string | undefined;
  /** What the event chain of the run says; undefined without a store. */
  readonly chain: string | undefined;
}

/** Recomputes what a bundle derives. 0 when all of it follows, 201 when something doesn't. Throws ERR_BUNDLE_INVALID, ERR_RUN_NOT_FOUND. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const word = args.words[0];
  const subject = word !== undefined && (word.includes('/') || word.endsWith('.json')) ? { file: resolve(context.cwd, word), recorded: undefined, chain: undefined } : await recorded(word, context);
  const bundle = await readBundle(subject.file, subject.recorded);
  const { problems } = verifyBundle(bundle);
  const all = subject.chain === undefined ? problems : [...problems, subject.chain];
  if (args.flags.json === true) {
    context.stdout.write(jsonLine({ file: subject.file, run: bundle.run.id, sha256: bundle.sha256, ok: all.length === 0, problems: all, promise: bundle.safety.promise, enforced: bundle.safety.enforced }));
  } else {
    const palette = paletteFor(context, 'stdout');
    const head = all.length === 0 ? palette.good('verified') : palette.bad(`${plural(all.length, 'statement')} not derivable`);
    const lines = [`${head}  ${bundle.run.id}  sha256 ${bundle.sha256}`, ...all.map((problem) => `  ${safeLine(problem, 400)}`), `  enforced   ${bundle.safety.enforced.length === 0 ? 'nothing' : dimensionList(bundle.safety.enforced)}`, `  bundle     ${displayPath(subject.file)}`];
    context.stdout.write(`${lines.join('\n')}\n`);
  }
  return all.length === 0 ? 0 : EXIT_CODES.evidence;
}

async function recorded(selector: string | undefined, context: CliContext): Promise<Subject> {
  return await withRunner(context, async ({ runner, find }) => {
    const found = find(selector);
    if (found.bundle === null) {
      throw found.lease === null
        ? new ProofrunError('ERR_BUNDLE_INVALID', { message: `${found.id}: no bundle was recorded for it`, hint: `job events ${found.id}` })
        : new ProofrunError('ERR_RUN_STATE', { message: `${found.id}: it is ${found.state}; the bundle is written at the end`, hint: `job wait ${found.id}` });
    }
    const chain = runner.parts.store.checkChain(found.id);
    return Promise.resolve({ file: join(runner.parts.stateDirectory, found.bundle.path), recorded: found.bundle.sha256, chain: chain.ok ? undefined : `event ${chain.seq} of the store ${chain.fact}` });
  });
}
