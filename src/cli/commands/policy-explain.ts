import { resolve } from 'node:path';
import { toSnake } from '../../core/case.ts';
import { ProofrunError } from '../../core/errors.ts';
import type { EffectiveJob } from '../../core/job.ts';
import { composeJob } from '../../policy/compose.ts';
import { explainJob } from '../../policy/explain-job.ts';
import { explainEnv, explainHost, explainProgram, explainRead, explainWrite, type Explanation } from '../../policy/explain.ts';
import { prepareJob } from '../../policy/prepare.host.ts';
import { isTrusted } from '../../policy/trust.host.ts';
import { callerFacts } from '../caller.host.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { jobRequestOf } from '../job-request.ts';
import { explainText } from '../report/explain.ts';
import { jsonLine } from '../report/json.ts';
import { paletteFor } from '../report/palette.ts';

/** Composes the job as `job run` would and says which line decides what. Starts nothing, and asks no executor. */
export async function run(args: ParsedArgs, context: CliContext): Promise<number> {
  const caller = callerFacts(context);
  const { input, trust } = await prepareJob(jobRequestOf(args), caller, 'ignore');
  const job = composeJob(input);
  const questions = asked(args, job, context.cwd);
  const explanations = questions.length > 0 ? questions : explainJob(job);
  const untrusted =
    trust !== undefined && !(await isTrusted(caller.stateDirectory, caller.uid, trust.file, trust.digest))
      ? { file: trust.file, digest: trust.digest }
      : undefined;
  if (args.flags.json === true) {
    context.stdout.write(
      jsonLine({
        argv: job.argv,
        mode: job.mode,
        workspace: job.workspace,
        layers: toSnake(job.layers),
        untrusted: toSnake(untrusted ?? null),
        explanations: toSnake(explanations),
        warnings: job.warnings,
      }),
    );
  } else {
    context.stdout.write(explainText({ job, explanations, untrusted, width: context.columns, palette: paletteFor(context, 'stdout') }));
  }
  return 0;
}

function asked({ flags }: ParsedArgs, job: EffectiveJob, cwd: string): readonly Explanation[] {
  return [
    ...(flags.whyNet ?? []).map((text) => {
      const { host, port } = hostAndPort(text);
      return explainHost(job, host, port);
    }),
    ...(flags.whyRead ?? []).map((path) => explainRead(job, resolve(cwd, path))),
    ...(flags.whyWrite ?? []).map((path) => explainWrite(job, resolve(cwd, path))),
    ...(flags.whyEnv ?? []).map((name) => explainEnv(job, name)),
    ...(flags.whyProgram ?? []).map((name) => explainProgram(job, name)),
  ];
}

/** `example.com`, `example.com:8443`, `[2001:db8::1]:22`, `2001:db8::1`. Without a port: 443. */
function hostAndPort(text: string): { readonly host: string; readonly port: number } {
  const match = /^(?:\[([^\]]+)\]|([^:]+))(?::(\d{1,5}))?$/.exec(text);
  const host = match?.[1] ?? match?.[2] ?? (/^[0-9a-fA-F:.]+$/.test(text) && text.includes('::') ? text : undefined);
  const port = match?.[3] === undefined ? 443 : Number(match[3]);
  if (host === undefined || port < 1 || port > 65535) {
    throw new ProofrunError('ERR_USAGE', {
      message: `--why-net expects HOST[:PORT]; received ${JSON.stringify(text)}`,
      hint: 'write --why-net packages.example.com:443',
    });
  }
  return { host, port };
}
