import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { EffectiveJob, SecretGrant } from '../../src/core/job.ts';
import { readInjectedSecrets } from '../../src/runner/secret-source.host.ts';
import { SAMPLE_SAFE_JOB } from '../../src/cli/sample-job.ts';

const VALUE = 'real-value-7Zq31x';
const directory = mkdtempSync(join(tmpdir(), 'proofrun-secret-'));
afterAll(() => {
  rmSync(directory, { recursive: true });
});

function file(name: string, text: string, mode = 0o600): string {
  const path = join(directory, name);
  writeFileSync(path, text);
  chmodSync(path, mode);
  return `file:${path}`;
}

function job(
  from: string,
  more: {
    readonly env?: Record<string, string>;
    readonly argv?: readonly [string, ...string[]];
    readonly inject?: Partial<NonNullable<SecretGrant['inject']>>;
  } = {},
): EffectiveJob {
  const secret: SecretGrant = {
    name: 'TOKEN',
    from,
    inject: { host: 'good.test', header: 'Authorization', format: 'Bearer {}', ...more.inject },
    origin: { layer: 'job', name: 'job.yaml' },
  };
  const { permissions } = SAMPLE_SAFE_JOB;
  const credentials = { ...permissions.credentials, secrets: [secret], environment: { TOKEN: 'proofrun-placeholder-1', ...more.env } };
  return { ...SAMPLE_SAFE_JOB, argv: more.argv ?? SAMPLE_SAFE_JOB.argv, permissions: { ...permissions, credentials } };
}

describe('sources of injected secrets', () => {
  it.each([
    ['a variable', () => 'env:T', VALUE],
    ['a file, less its last line end', () => file('plain', `${VALUE}\r\n`), VALUE],
    ['the output of a command', () => `command:echo ${VALUE}`, VALUE],
    ['text with spaces within', () => file('spaces', `a ${VALUE} b`), `a ${VALUE} b`],
  ])('%s', async (_what, from, value) => {
    const [secret] = await readInjectedSecrets(job(from()), { T: VALUE });
    expect(secret).toMatchObject({ name: 'TOKEN', host: 'good.test', header: 'authorization', placeholder: 'proofrun-placeholder-1', value });
  });

  it.each([
    ['a variable that is not set', () => job('env:NONE'), /NONE is not set/],
    ['an empty variable', () => job('env:EMPTY'), /is empty/],
    ['a short one', () => job('env:SHORT'), /shorter than 8/],
    ['a file that is not there', () => job(`file:${directory}/none`), /ENOENT/],
    ['a directory', () => job(`file:${directory}`), /no regular file/],
    ['a file that others can read', () => job(file('open', VALUE, 0o644)), /others can read or write/],
    ['a file that the group can write', () => job(file('group', VALUE, 0o620)), /others can read or write/],
    ['a file that is too large', () => job(file('large', 'x'.repeat(20_000))), /longer than 16384/],
    ['a line break within', () => job(file('lines', `${VALUE}\nX-Other: 1`)), /line break/],
    ['a CR within', () => job(file('cr', `${VALUE}\rX-Other: 1`)), /line break/],
    ['two line ends', () => job(file('ends', `${VALUE}\n\n`)), /line break/],
    ['NUL', () => job(file('nul', `${VALUE}\0`)), /control character/],
    ['a command that fails', () => job('command:false'), /false failed \(1\)/],
    ['a command that is not there', () => job('command:no-such-program-here'), /ENOENT/],
    ['a command that says too much', () => job('command:head -c 100000 /dev/zero'), /failed|was ended/],
    ['a keyring without an attribute', () => job('keyring:nothing'), /attribute=value/],
    ['a value that the job holds anyway', () => job('env:T', { env: { OTHER: `x${VALUE}` } }), /also the value of OTHER/],
    ['a value in the command', () => job('env:T', { argv: ['echo', VALUE] }), /word of the command/],
    ['a format without {}', () => job('env:T', { inject: { format: 'Bearer' } }), /with one \{\}/],
    ['a format with a line break', () => job('env:T', { inject: { format: '{}\r\nX: 1' } }), /with one \{\}/],
    ['a header that frames the message', () => job('env:T', { inject: { header: 'Content-Length' } }), /one connection only/],
    ['a host that is none', () => job('env:T', { inject: { host: '*.test' } }), /no host/],
  ])('%s is refused, and the value is not told', async (_what, made, message) => {
    const refused = await readInjectedSecrets(made(), { T: VALUE, EMPTY: '', SHORT: 'abc' }).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: 'ERR_USAGE', message: expect.stringMatching(message) as string });
    expect(JSON.stringify(refused) + String(refused)).not.toContain(VALUE);
  });
});
