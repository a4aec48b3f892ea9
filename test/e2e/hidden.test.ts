import { chownSync, lstatSync, statSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { users } from '../support/accounts.ts';
import { jobLab, runsOf, untilOutput, type JobLab } from '../support/job-lab.host.ts';
import { describeUsers } from '../support/users.host.ts';

const KEY = '-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n';
const CERTIFICATE = '-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n';

interface HostPaths {
  readonly hidden: readonly { readonly path: string; readonly rule: string }[];
  readonly possibly_read: readonly string[] | null;
}

async function hostPaths(lab: JobLab): Promise<HostPaths> {
  const review = await lab.job(['status', '--review', '--json']);
  return (JSON.parse(review.stdout) as { bundle: { host_paths: HostPaths } }).bundle.host_paths;
}

/** A file of the workspace whose name is not UTF-8. */
function writeOddName(lab: JobLab, name: Buffer, text: string): Buffer {
  const path = Buffer.concat([Buffer.from(`${lab.workspace}/`), name]);
  writeFileSync(path, text);
  chownSync(path, lab.user.uid, lab.user.gid);
  return path;
}

describeUsers('names that hold secrets', (user) => {
  test('read as absent under --safe; a certificate and an example stay; the review lists them with their rule', async () => {
    const lab = jobLab(user);
    lab.write('.env', 'TOKEN=canary\n');
    lab.write('.env.example', 'TOKEN=\n');
    lab.write('deep/down/.env.local', 'canary\n');
    lab.write('certs/dev.key', KEY);
    lab.write('certs/dev.pem', CERTIFICATE);
    const ended = await lab.job(['run', '--safe', '--', 'sh', '-c', 'find . -type f | sort; cat .env certs/dev.key deep/down/.env.local']);
    expect(ended.stdout).toBe('./.env.example\n./certs/dev.pem\n');
    expect(ended.stderr).not.toContain('canary');
    expect(ended.stderr).toMatch(/hidden +(?:\.env|certs\/dev\.key)/);
    const { hidden, possibly_read: possiblyRead } = await hostPaths(lab);
    expect(hidden.map(({ path }) => path.slice(lab.workspace.length + 1)).sort()).toEqual(['.env', 'certs/dev.key', 'deep/down/.env.local']);
    expect(hidden.find(({ path }) => path.endsWith('/.env'))?.rule).toMatch(/^sensitive\.yaml:\d+ \*\*\/\.env$/);
    expect(possiblyRead).toEqual([]);
    expect(await runsOf(lab)).toMatchObject([{ stage_state: 'none' }]);
  });

  test('what a rule of the person hides is hidden without --safe too, in the workspace and outside', async () => {
    const lab = jobLab(user);
    lab.write('plain.txt', 'seen\n');
    lab.write('notes/private.md', 'canary\n');
    writeFileSync(join(lab.home, 'diary.md'), 'canary\n');
    chownSync(join(lab.home, 'diary.md'), user.uid, user.gid);
    const ended = await lab.job([
      'run',
      '--deny-read',
      '**/*.md',
      '--deny-read',
      '~/*.md',
      '--',
      'sh',
      '-c',
      'cat plain.txt; cat notes/private.md ~/diary.md; ls notes ~',
    ]);
    expect(ended.stdout).toMatch(/^seen\n/);
    expect(ended.stdout + ended.stderr).not.toContain('canary');
    expect(ended.stdout).not.toMatch(/\.md/);
  });

  test('a name that appears during the run is told as possibly read', async () => {
    const lab = jobLab(user);
    const started = await lab.job(['run', '-d', '--safe', '--', 'sh', '-c', 'trap "go=1" USR1; echo begun; while [ -z "$go" ]; do :; done']);
    const id = started.stdout.trim();
    await untilOutput(lab, id);
    const late = lab.write('config/.env', 'late\n');
    expect((await lab.job(['kill', '--signal', 'USR1', id])).code).toBe(0);
    expect((await lab.job(['wait', id])).code).toBe(0);
    expect((await hostPaths(lab)).possibly_read).toEqual([late]);
  });

  test('a name that is not UTF-8 disables nothing, unless it would have to be hidden', async () => {
    const lab = jobLab(user);
    writeOddName(lab, Buffer.from([0xff, ...Buffer.from('.pem')]), CERTIFICATE);
    writeOddName(lab, Buffer.from([0xfe, ...Buffer.from('.txt')]), 'x');
    expect((await lab.job(['run', '--safe', '-q', '--', 'true'])).code).toBe(0);
    const key = writeOddName(lab, Buffer.from([0xff, ...Buffer.from('.key')]), KEY);
    const ended = await lab.job(['run', '--safe', '--', 'true']);
    expect(ended.code).toBe(203);
    expect(ended.stderr).toMatch(/is not\s+UTF-8/);
    unlinkSync(key);
    expect((await lab.job(['run', '--safe', '-q', '--', 'true'])).code).toBe(0);
  });
});

const { root, user: ordinary } = users();

test.skipIf(typeof root === 'string' || typeof ordinary === 'string')(
  'root runs a job in the workspace of another user: as that user, and what is applied is theirs',
  async () => {
    if (typeof root === 'string' || typeof ordinary === 'string') return;
    const lab = jobLab(root);
    for (const path of [lab.base, lab.workspace]) chownSync(path, ordinary.uid, ordinary.gid);
    lab.write('old.txt', 'old\n');
    chownSync(join(lab.workspace, 'old.txt'), ordinary.uid, ordinary.gid);
    const ended = await lab.job(['run', '--safe', '--', 'sh', '-c', 'id -u; id -g; echo new > new.txt; echo more >> old.txt; mkdir d; echo x > d/y']);
    expect(ended.code, ended.stderr).toBe(0);
    expect(ended.stdout).toBe(`${ordinary.uid}\n${ordinary.gid}\n`);
    expect((await lab.job(['apply', '--all'])).code).toBe(0);
    for (const name of ['new.txt', 'old.txt', 'd', 'd/y']) {
      const { uid, gid } = lstatSync(join(lab.workspace, name));
      expect([name, uid, gid]).toEqual([name, ordinary.uid, ordinary.gid]);
    }
    expect(statSync(lab.workspace).uid).toBe(ordinary.uid);
  },
);
