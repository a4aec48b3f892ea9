import { readFileSync, statSync } from 'node:fs';
import { ProofrunError, errnoOf } from '../core/errors.ts';
import { fromFile } from './caller-paths.ts';
import type { JobFile } from './job-file.ts';
import { parseSecretFlag, type JobRequest } from './request.ts';

/** Values of secrets that enter the job: `env:` and `file:`. Others are refused: nothing here runs a command. */
export function readSecrets(
  request: JobRequest,
  job: JobFile | undefined,
  jobDirectory: string,
  currentDirectory: string,
  env: Readonly<Record<string, string>>,
  home: string,
): Readonly<Record<string, string>> {
  const values: Record<string, string> = {};
  const flags = (request.secrets ?? []).flatMap((text) => {
    const flag = parseSecretFlag(text);
    return flag.kind === 'ok' ? [{ ...flag.secret, directory: currentDirectory, where: `--secret ${flag.secret.name}` }] : [];
  });
  const own = (job?.permissions.credentials?.secrets ?? []).flatMap(({ value, line }) =>
    value.from === undefined
      ? []
      : [{ name: value.name, from: value.from, inject: value.inject, directory: jobDirectory, where: `${job?.file ?? ''}:${String(line)}` }],
  );
  for (const secret of [...own, ...flags]) {
    // Read when the run begins, and by what adds it to requests.
    if (secret.inject !== undefined) continue;
    const colon = secret.from.indexOf(':');
    const [kind, rest] = [secret.from.slice(0, colon), secret.from.slice(colon + 1)];
    if (kind === 'env') {
      const value = env[rest];
      if (value !== undefined) values[secret.name] = value;
    } else if (kind === 'file') {
      values[secret.name] = readSecretFile(fromFile(secret.directory, rest, home), secret.where);
    } else {
      throw new ProofrunError('ERR_USAGE', {
        message: `${secret.where}: secrets from ${kind}: are not supported by this version`,
        hint: 'use env:NAME or file:PATH',
      });
    }
  }
  return values;
}

const MAX_SECRET_BYTES = 65536;

function readSecretFile(path: string, where: string): string {
  const fail = (reason: string, cause?: unknown): never => {
    throw new ProofrunError('ERR_USAGE', { message: `${where}: ${path} ${reason}`, ...(cause === undefined ? {} : { cause }) });
  };
  try {
    const entry = statSync(path);
    if (entry.isFile() && entry.size <= MAX_SECRET_BYTES) return readFileSync(path, 'utf8').replace(/\r?\n$/, '');
  } catch (cause) {
    return fail(`can't be read (${errnoOf(cause) ?? 'unknown'})`, cause);
  }
  return fail('is no regular file of at most 64 KiB');
}
