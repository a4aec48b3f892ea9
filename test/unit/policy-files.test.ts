import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmod, chown, mkdir, mkdtemp, readFile, readdir, realpath, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readJobFile, readPolicyFile } from '../../src/policy/policy-file.host.ts';
import { acceptTrust, isTrusted, listTrusted, revokeTrust } from '../../src/policy/trust.host.ts';

const UID = process.getuid?.() ?? 0;
let top: string;
let file: string;

beforeEach(async () => {
  top = await realpath(await mkdtemp(join(tmpdir(), 'proofrun-policy-')));
  file = join(top, 'policy.yaml');
  await writeFile(file, 'version: 1\n', { mode: 0o644 });
  await chmod(file, 0o644);
});
afterEach(async () => {
  await rm(top, { recursive: true, force: true });
});

describe('a policy file', () => {
  it('that is fine is read, with the digest of its bytes', async () => {
    expect(readPolicyFile(file, [UID])).toEqual({ text: 'version: 1\n', sha256: createHash('sha256').update('version: 1\n').digest('hex') });
  });

  it('that is not there is none', async () => {
    expect(readPolicyFile(join(top, 'none.yaml'), [UID])).toBeUndefined();
    expect(readPolicyFile(join(file, 'x.yaml'), [UID])).toBeUndefined();
  });

  it.each([
    [0o666, 'the world'],
    [0o664, 'the group'],
    [0o602, 'the world alone'],
  ])('of mode %o is refused: writable by %s', async (mode) => {
    await chmod(file, mode);
    expect(() => readPolicyFile(file, [UID])).toThrow(
      expect.objectContaining({
        code: 'ERR_POLICY_FILE',
        message: `${file}: is writable by others (mode ${mode.toString(8).padStart(4, '0')})`,
        hint: `chmod go-w ${file}`,
        exitCode: 200,
      }),
    );
  });

  it('that is a link is refused, also to a file that is fine', async () => {
    await symlink('policy.yaml', join(top, 'link.yaml'));
    expect(() => readPolicyFile(join(top, 'link.yaml'), [UID])).toThrow(
      expect.objectContaining({
        code: 'ERR_POLICY_FILE',
        message: `${join(top, 'link.yaml')}: is a symbolic link`,
      }),
    );
  });

  it('that is a directory or a FIFO is refused, and a FIFO does not hold the run', async () => {
    await mkdir(join(top, 'dir.yaml'));
    execFileSync('mkfifo', [join(top, 'fifo.yaml')]);
    for (const name of ['dir.yaml', 'fifo.yaml']) {
      expect(() => readPolicyFile(join(top, name), [UID])).toThrow(
        expect.objectContaining({
          code: 'ERR_POLICY_FILE',
          message: expect.stringMatching(/is not a regular file/) as unknown,
        }),
      );
    }
  });

  it('over 1 MiB is refused', async () => {
    await writeFile(file, '#'.repeat(1024 * 1024 + 1));
    expect(() => readPolicyFile(file, [UID])).toThrow(expect.objectContaining({ code: 'ERR_POLICY_FILE', message: `${file}: is larger than 1 MiB` }));
  });

  it('of another owner is refused', async () => {
    expect(() => readPolicyFile(file, [UID + 1])).toThrow(
      expect.objectContaining({
        code: 'ERR_POLICY_FILE',
        message: `${file}: is owned by uid ${String(UID)}, expected uid ${String(UID + 1)}`,
      }),
    );
  });

  it.runIf(UID === 0)('as root: of another owner is refused when somebody gives it away', async () => {
    await chown(file, 1500, 1500);
    expect(() => readPolicyFile(file, [0])).toThrow(expect.objectContaining({ code: 'ERR_POLICY_FILE' }));
    expect(readPolicyFile(file, [0, 1500])).toMatchObject({ text: 'version: 1\n' });
  });
});

describe('a job file', () => {
  it('may be a link: the person named it', async () => {
    await symlink('policy.yaml', join(top, 'job.yaml'));
    expect(readJobFile(join(top, 'job.yaml'), 'job.yaml').text).toBe('version: 1\n');
  });

  it('that is missing, a directory, or no UTF-8 is an error', async () => {
    await writeFile(join(top, 'bad.yaml'), Buffer.of(0xff));
    expect(() => readJobFile(join(top, 'none.yaml'), 'none.yaml')).toThrow(
      expect.objectContaining({ code: 'ERR_JOB_FILE', message: 'none.yaml: there is no such file' }),
    );
    expect(() => readJobFile(top, 'dir')).toThrow(expect.objectContaining({ code: 'ERR_JOB_FILE', message: 'dir: is not a regular file' }));
    expect(() => readJobFile(join(top, 'bad.yaml'), 'bad.yaml')).toThrow(
      expect.objectContaining({ code: 'ERR_JOB_FILE', message: 'bad.yaml: not UTF-8 text' }),
    );
  });
});

describe('remembered acceptances', () => {
  const record = (name: string, digest: string) => ({ file: `/w/${name}`, digest, acceptedMs: 1 });

  it('are for one file and one digest, replaced by a later one, and withdrawn', async () => {
    const state = join(top, 'state');
    expect(await listTrusted(state, UID)).toEqual([]);
    await acceptTrust(state, UID, record('job.yaml', 'sha256:a'));
    await acceptTrust(state, UID, record('other.yaml', 'sha256:b'));
    await acceptTrust(state, UID, record('job.yaml', 'sha256:c'));
    expect(await isTrusted(state, UID, '/w/job.yaml', 'sha256:c')).toBe(true);
    expect(await isTrusted(state, UID, '/w/job.yaml', 'sha256:a')).toBe(false);
    expect(await isTrusted(state, UID, '/w/x.yaml', 'sha256:c')).toBe(false);
    expect(await revokeTrust(state, UID, '/w/job.yaml')).toBe(true);
    expect(await revokeTrust(state, UID, '/w/job.yaml')).toBe(false);
    expect((await listTrusted(state, UID)).map((one) => one.file)).toEqual(['/w/other.yaml']);
  });

  it.each([0, 0o777])('lie in a file of mode 0600 under umask %o, and leave nothing beside it', async (mask) => {
    await mkdir(join(top, 'state'), { mode: 0o700 });
    const before = process.umask(mask);
    try {
      await acceptTrust(join(top, 'state'), UID, record('job.yaml', 'sha256:a'));
    } finally {
      process.umask(before);
    }
    expect((await stat(join(top, 'state', 'trust.json'))).mode & 0o777).toBe(0o600);
    expect(await readdir(join(top, 'state'))).toEqual(['trust.json']);
  });

  it.each<readonly [string, (path: string) => Promise<void>]>([
    ['readable by others', async (path) => chmod(path, 0o644)],
    ['damaged', async (path) => writeFile(path, '{"version":1,"accepted":[{}]}')],
    ['cut off', async (path) => writeFile(path, (await readFile(path, 'utf8')).slice(0, 10))],
    [
      'a link',
      async (path) => {
        await rm(path);
        await symlink('/dev/null', path);
      },
    ],
  ])('that are %s accept nothing: an error, not an empty list', async (_what, spoil) => {
    const state = join(top, 'state');
    await acceptTrust(state, UID, record('job.yaml', 'sha256:a'));
    await spoil(join(state, 'trust.json'));
    await expect(listTrusted(state, UID)).rejects.toMatchObject({ code: 'ERR_STORE_UNREADABLE' });
  });
});
