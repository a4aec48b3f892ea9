import { ProofrunError } from '../../core/errors.ts';
import { displayPath, safeLine } from '../../core/text-safety.ts';
import { prepareJob, type CallerFacts, type Prepared } from '../../policy/prepare.host.ts';
import { acceptTrust, isTrusted, listTrusted, revokeTrust } from '../../policy/trust.host.ts';
import { callerFacts } from '../caller.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { askLine } from '../ask.host.ts';
import { jsonLine } from '../report/json.ts';
import { dateWords } from '../report/words.ts';

type Question = NonNullable<Prepared['trust']>;

/** Shows what a job file of the workspace asks for and records the person's answer. Throws ERR_USAGE, ERR_JOB_FILE, ERR_STORE_UNREADABLE. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const caller = callerFacts(context);
  if (args.flags.list === true) return await list(args, context, caller);
  const file = args.words[0] ?? 'job.yaml';
  const { trust } = await prepareJob({ argv: [], jobFile: file }, caller, 'ignore');
  if (args.flags.revoke === true) return await revoke(args, context, caller, file, trust);
  if (trust === undefined) {
    say(
      args,
      context,
      { file, accepted: false, needed: false },
      `${displayPath(file)} needs no acceptance: it grants nothing, or lies outside the workspace\n`,
    );
    return 0;
  }
  const known = await isTrusted(caller.stateDirectory, caller.uid, trust.file, trust.digest);
  if (!known && args.flags.yes !== true && !(await agreed(context, trust, file))) {
    throw new ProofrunError('ERR_JOB_UNTRUSTED', {
      message: `${displayPath(file)} was not accepted`,
      hint: `job trust --yes ${file} accepts it without asking`,
    });
  }
  if (!known) await acceptTrust(caller.stateDirectory, caller.uid, { file: trust.file, digest: trust.digest, acceptedMs: context.clock() });
  say(
    args,
    context,
    { file: trust.file, digest: trust.digest, accepted: true, needed: true },
    `${known ? 'accepted before' : 'accepted'}: ${displayPath(trust.file)}\n${trust.digest}\n`,
  );
  return 0;
}

/** Prints the grants and asks. False without a terminal: silence is no consent. */
async function agreed(context: CliContext, trust: Question, file: string): Promise<boolean> {
  const grants = trust.grants.map(({ what, line }) => `  ${safeLine(what, 300)}  (line ${line})\n`).join('');
  context.stderr.write(`${displayPath(file)} lies in the workspace and asks for:\n${grants}digest ${trust.digest}\n`);
  if (!context.isTerminal.stdin || !context.isTerminal.stderr) return false;
  const answer = await askLine('Accept this, until the file changes? [y/N] ', context);
  return /^y(es)?$/i.test(answer.trim());
}

async function revoke(args: ParsedArgs, context: CliContext, caller: CallerFacts, file: string, trust: Question | undefined): Promise<number> {
  const known = trust !== undefined && (await revokeTrust(caller.stateDirectory, caller.uid, trust.file));
  say(args, context, { file: trust?.file ?? file, revoked: known }, known ? `withdrawn: ${displayPath(file)}\n` : `${displayPath(file)} was not accepted\n`);
  return 0;
}

async function list(args: ParsedArgs, context: CliContext, caller: CallerFacts): Promise<number> {
  const records = await listTrusted(caller.stateDirectory, caller.uid);
  if (args.flags.json === true) {
    context.stdout.write(jsonLine(records.map((record) => ({ file: record.file, digest: record.digest, accepted_ms: record.acceptedMs }))));
  } else {
    context.stdout.write(
      records.length === 0
        ? 'nothing was accepted\n'
        : records.map((record) => `${dateWords(record.acceptedMs)}  ${displayPath(record.file)}  ${record.digest.slice(0, 19)}\n`).join(''),
    );
  }
  return 0;
}

function say(args: ParsedArgs, context: CliContext, facts: Readonly<Record<string, string | boolean>>, text: string): void {
  context.stdout.write(args.flags.json === true ? jsonLine(facts) : text);
}
