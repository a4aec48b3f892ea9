import { execFile } from 'node:child_process';
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { ProofrunError, errnoOf } from '../core/errors.ts';
import type { EffectiveJob, SecretGrant } from '../core/job.ts';
import { HEADERS_THAT_CARRY_NOTHING, type InjectedSecret } from '../overlaynet/injection.ts';
import { canonicalHost } from '../policy/decide.ts';

/** A value has to fit into a header beside others. */
const MOST_BYTES = 16_384;
/** A shorter one can't be told apart from other text. */
const LEAST_CHARACTERS = 8;
const COMMAND_MS = 10_000;

/**
 * The injected secrets of a job with their real values, read now. `env:` is read from this process's own environment; `command:` runs words
 * split at spaces, without a shell, for 10 s at most; `keyring:` asks secret-tool for `attribute=value,...`. Rejects with ERR_USAGE, naming the
 * secret and never its value: no such source, empty, shorter than 8 characters, more than 16 KiB, anything but visible ASCII and spaces, a
 * file that others can read or write, a value that the job would hold anyway by its environment or its command.
 */
export async function readInjectedSecrets(job: EffectiveJob, env: Readonly<Record<string, string | undefined>>): Promise<readonly InjectedSecret[]> {
  const { secrets, environment } = job.permissions.credentials;
  const read: InjectedSecret[] = [];
  for (const secret of secrets) {
    if (secret.inject === undefined) continue;
    const host = canonicalHost(secret.inject.host);
    const header = secret.inject.header.toLowerCase();
    if (host === undefined) fail(secret, `is for ${JSON.stringify(secret.inject.host)}, which is no host`);
    if (HEADERS_THAT_CARRY_NOTHING.has(header)) fail(secret, `can't be added as the header ${header}: it concerns one connection only`);
    if (secret.inject.format.split('{}').length !== 2 || /[^\x20-\x7e]/.test(secret.inject.format)) {
      fail(secret, `has the format ${JSON.stringify(secret.inject.format)}: expected visible text with one {}`);
    }
    const value = checked(secret, await valueOf(secret, env));
    const holder = Object.entries(environment).find(([, text]) => text.includes(value))?.[0];
    if (holder !== undefined) {
      fail(secret, `is also the value of ${holder}, which the job gets`, 'name the variables that the job needs: permissions.credentials.pass_env');
    }
    if (job.argv.some((word) => word.includes(value))) fail(secret, 'is also a word of the command', 'leave it out of the command');
    const placeholder = environment[secret.name];
    if (placeholder === undefined) fail(secret, 'has no placeholder');
    read.push({ name: secret.name, host: host.host, header, format: secret.inject.format, placeholder, value });
  }
  return read;
}

async function valueOf(secret: SecretGrant, env: Readonly<Record<string, string | undefined>>): Promise<string> {
  const colon = secret.from.indexOf(':');
  const rest = secret.from.slice(colon + 1);
  switch (secret.from.slice(0, colon)) {
    case 'env':
      return env[rest] ?? fail(secret, `could not be read: ${rest} is not set`, `set ${rest} before the run`);
    case 'file':
      return readPrivateFile(secret, rest);
    case 'command':
      return await output(
        secret,
        rest.split(' ').filter((word) => word !== ''),
      );
    case 'keyring': {
      const pairs = rest.split(',').map((pair) => pair.split('='));
      if (pairs.some((pair) => pair.length !== 2 || pair.includes(''))) {
        fail(secret, `has the source ${JSON.stringify(secret.from)}: expected keyring:attribute=value,...`);
      }
      return await output(secret, ['secret-tool', 'lookup', ...pairs.flat()]);
    }
    default:
      return fail(secret, `has the source ${JSON.stringify(secret.from)}: expected env:NAME, file:PATH, command:WORDS or keyring:ATTRIBUTE=VALUE`);
  }
}

function readPrivateFile(secret: SecretGrant, path: string): string {
  let fd: number;
  try {
    // A pipe must not hold up the run.
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    return fail(secret, `could not be read from ${path} (${errnoOf(error) ?? 'unknown'})`, 'check that the file exists and that you may read it');
  }
  try {
    const { uid, mode } = fstatSync(fd);
    if ((mode & constants.S_IFMT) !== constants.S_IFREG) fail(secret, `could not be read: ${path} is no regular file`);
    if (uid !== 0 && uid !== process.getuid?.()) fail(secret, `could not be read: ${path} belongs to another user`);
    if ((mode & 0o026) !== 0) fail(secret, `could not be read: others can read or write ${path}`, `chmod 600 ${path}`);
    const bytes = Buffer.alloc(MOST_BYTES + 3);
    const length = readSync(fd, bytes, 0, bytes.length, 0);
    return bytes.subarray(0, length).toString('latin1');
  } finally {
    closeSync(fd);
  }
}

function output(secret: SecretGrant, [file = '', ...args]: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = execFile(file, args, { timeout: COMMAND_MS, killSignal: 'SIGKILL', maxBuffer: MOST_BYTES + 3, encoding: 'latin1' }, (error, stdout) => {
      if (error === null) return resolve(stdout);
      // Its output and message may hold the value.
      const how =
        error.killed === true
          ? `was ended: more than ${String(COMMAND_MS / 1000)} s or ${String(MOST_BYTES)} bytes`
          : `failed (${String(error.code ?? error.signal ?? 'unknown')})`;
      reject(refusal(secret, `could not be read: ${file} ${how}`, `run it by hand to see why`));
    });
    child.stdin?.end();
  });
}

function checked(secret: SecretGrant, text: string): string {
  const value = text.replace(/\r?\n$/, '');
  if (value === '') fail(secret, `is empty in ${sourceWords(secret)}`);
  if (value.length > MOST_BYTES) fail(secret, `is longer than ${String(MOST_BYTES)} bytes in ${sourceWords(secret)}`);
  if (value.length < LEAST_CHARACTERS) fail(secret, `is shorter than ${String(LEAST_CHARACTERS)} characters in ${sourceWords(secret)}`);
  if (!/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value)) {
    fail(secret, `holds a line break, a control character or something beside ASCII, or begins or ends with a space, in ${sourceWords(secret)}`);
  }
  return value;
}

function sourceWords({ from }: SecretGrant): string {
  return from.slice(0, from.indexOf(':')) === 'command' ? 'the output of its command' : from;
}

function refusal({ name }: SecretGrant, what: string, hint?: string): ProofrunError {
  return new ProofrunError('ERR_USAGE', { message: `the secret ${name} ${what}`, ...(hint === undefined ? {} : { hint }) });
}

function fail(secret: SecretGrant, what: string, hint?: string): never {
  throw refusal(secret, what, hint);
}
