import { chmodSync, chownSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { jobCommand } from '../support/job-command.host.ts';
import { jobLab, type JobLab } from '../support/job-lab.host.ts';
import { outcomes } from '../support/native-attack.host.ts';
import { apart, NativeDriver, NativeLab } from '../support/native-lab.host.ts';
import { asUser, describeUsers } from '../support/users.host.ts';

const asRoot = process.getuid?.() === 0;
/** A group that the ordinary user isn't in, and a user that nobody is. */
const GROUP = 29;
const OTHER = 65534;

/** One line for each attempt. */
const ATTEMPTS = `
try() { what=$1; shift; if "$@" 2> /dev/null; then echo "$what ok"; else echo "$what refused"; fi; }
try 'create in group/' sh -c 'echo n > group/new'
try 'write group/file' sh -c 'echo n >> group/file'
try 'chmod group/file' chmod 600 group/file
try 'remove group/file' rm group/file
try 'make group/made' mkdir group/made
try 'rename group/sub' mv group/sub group/moved
try 'create in open/' sh -c 'echo n > open/new'
try 'write open/file' sh -c 'echo n >> open/file'
try 'remove open/file' rm -f open/file
try 'remove group/' rm -r group`;

function plant(lab: JobLab): void {
  const place = (path: string, uid: number, gid: number, mode: number, text?: string): void => {
    const full = join(lab.workspace, path);
    if (text === undefined) mkdirSync(full);
    else writeFileSync(full, text);
    chownSync(full, uid, gid);
    chmodSync(full, mode);
  };
  const { uid } = lab.user;
  place('group', uid, GROUP, 0o2775);
  place('group/file', uid, GROUP, 0o664, 'group\n');
  place('group/sub', uid, GROUP, 0o2775);
  place('group/sub/file', uid, GROUP, 0o664, 'sub\n');
  place('open', OTHER, OTHER, 0o777);
  place('open/file', OTHER, OTHER, 0o666, 'open\n');
  place('own-file', uid, GROUP, 0o664, 'foreign file\n');
}

describeUsers('files of another user or group', (user) => {
  test.skipIf(!asRoot)('can be changed inside where they can be outside, and the tree keeps its owners', async () => {
    const lab = jobLab(user);
    plant(lab);
    const bare = jobLab(user);
    plant(bare);
    // Control arm: the same script, the same user, no sandbox.
    const expected = outcomes((await asUser(user, ['/bin/sh', '-c', ATTEMPTS], { cwd: bare.workspace })).stdout);
    const ran = await lab.job(['run', '--safe', '-q', '--', 'sh', '-c', ATTEMPTS]);
    expect(ran.stderr).toBe('');
    expect(outcomes(ran.stdout)).toEqual(expected);
    expect(Object.values(expected)).toEqual(Object.values(expected).map(() => 'ok'));
    expect([statSync(join(lab.workspace, 'open')).uid, statSync(join(lab.workspace, 'group')).gid]).toEqual([OTHER, GROUP]);
    const changes = await lab.job(['diff', 'last', '--json']);
    expect(changes.code).toBe(0);
  });

  test.skipIf(!asRoot)('what only reads them changes nothing', async () => {
    const lab = jobLab(user);
    plant(lab);
    const ran = await lab.job(['run', '--safe', '--', 'sh', '-c', 'cat group/file group/sub/file open/file own-file; stat -c %U own-file > /dev/null']);
    expect(ran.stdout).toBe('group\nsub\nopen\nforeign file\n');
    expect(ran.stderr).toContain('staged     nothing');
  });

  test.skipIf(!asRoot || user.kind === 'root')(
    "limit: a single file of another group in a directory of the user's own can be read and not changed",
    async () => {
      const lab = jobLab(user);
      plant(lab);
      const ran = await lab.job([
        'run',
        '--safe',
        '-q',
        '--',
        'sh',
        '-c',
        'cat own-file; echo n >> own-file || echo refused; chmod 600 own-file || echo refused; mv own-file moved || echo refused',
      ]);
      expect(ran.stdout).toBe('foreign file\nrefused\nrefused\nrefused\n');
      expect(ran.stderr).toContain('Value too large');
      expect(readFileSync(join(lab.workspace, 'own-file'), 'utf8')).toBe('foreign file\n');
    },
  );
});

describeUsers('direct shares', (user) => {
  const lab = new NativeLab(user);
  afterAll(() => lab.dispose());

  test('files and directories are the host itself, wherever they lie, and nothing beside them is', async () => {
    const outside = lab.directory(join(lab.base, 'outside'));
    const shares = [
      lab.write('in-file', 'a\n'),
      lab.write(join(outside, 'file'), 'b\n'),
      lab.write(join(lab.home, 'deep/file'), 'c\n'),
      lab.directory(join(lab.workspace, 'in-dir')),
    ];
    lab.write(join(outside, 'beside'), 'canary\n');
    const [inFile, outFile, homeFile, inDirectory] = shares;
    const script = `for f in ${inFile} ${outFile} ${homeFile}; do echo written >> $f; done; echo new > ${inDirectory}/new; cat ${outside}/beside; echo x > ${outside}/more; echo x > staged; echo end`;
    const report = await lab.run(['/bin/sh', '-c', script], { direct: shares });
    expect([report.error, report.unmet, report.stdout]).toEqual([undefined, [], 'end\n']);
    expect([inFile, outFile, homeFile].map((path) => readFileSync(path ?? '', 'utf8'))).toEqual(['a\nwritten\n', 'b\nwritten\n', 'c\nwritten\n']);
    expect([readdirSync(inDirectory ?? ''), readdirSync(outside).sort(), report.staged]).toEqual([['new'], ['beside', 'file'], ['staged']]);
  });
});

describeUsers('a direct share that can not be', (user) => {
  test.each(['--safe', undefined])('hides nothing, so it is refused where something has to stay hidden (%s)', async (mode) => {
    const lab = jobLab(user);
    lab.write('certs/.env', 'canary\n');
    const flags = mode === undefined ? ['--deny-read', 'certs/.env'] : [mode];
    const absent = await lab.job(['run', ...flags, '--write-direct', 'not-there', '--', 'true']);
    expect([absent.code, absent.stderr.replaceAll(/\s+/g, ' ')]).toEqual([203, expect.stringContaining('there is no such file or directory')]);
    const ran = await lab.job(['run', ...flags, '--write-direct', 'certs', '--', 'cat', 'certs/.env']);
    expect([ran.code, ran.stdout]).toEqual([203, '']);
    expect(ran.stderr).toContain('certs/.env must stay hidden');
    // Control arm: a directory beside it.
    lab.write('dist/file', 'x\n');
    expect(
      (await lab.job(['run', ...flags, '-q', '--write-direct', 'dist', '--', 'sh', '-c', 'echo y > dist/file; cat certs/.env || echo hidden'])).stdout,
    ).toBe('hidden\n');
    expect(readFileSync(join(lab.workspace, 'dist/file'), 'utf8')).toBe('y\n');
  });

  test.each(['--safe', undefined])('is refused where our own records lie (%s)', async (mode) => {
    const lab = jobLab(user);
    for (const share of [lab.base, join(lab.base, 'state'), lab.state, join(lab.state, 'runs')]) {
      const ran = await lab.job([
        'run',
        ...(mode === undefined ? [] : [mode]),
        '--write-direct',
        share,
        '--',
        'sh',
        '-c',
        `echo x > ${share}/planted; echo ran`,
      ]);
      expect([ran.code === 0, ran.stdout]).toEqual([false, '']);
    }
    expect(lab.tree(lab.base).filter((name) => name.includes('planted'))).toEqual([]);
  });
});

describeUsers('mounts below the workspace', (user) => {
  const lab = new NativeLab(user);
  afterAll(() => lab.dispose());

  test('are refused with the path and the way out, and nothing is started', async ({ skip }) => {
    mkdirSync(join(lab.workspace, 'mounted'));
    const through = apart(user, '/bin/sh', '-c', `mount -t tmpfs none ${join(lab.workspace, 'mounted')} && exec "$@"`, 'sh');
    if (through === undefined) skip('only root can mount there');
    const driver = new NativeDriver(user, { through: through ?? [] });
    for (const mode of ['safe', 'default'] as const) {
      const { error, stdout } = await lab.run(['/bin/echo', 'started'], { mode }, driver);
      expect([error?.code, stdout]).toEqual(['ERR_LAUNCH', '']);
      expect(error?.message).toContain(join(lab.workspace, 'mounted'));
      expect(error?.hint).toContain('--workspace');
    }
    await driver.end();
    // Control arm: the same workspace without the mount.
    expect((await lab.run(['/bin/echo', 'started'])).stdout).toBe('started\n');
  });

  test('the command line says so with its exit code', async ({ skip }) => {
    const at = jobLab(user);
    mkdirSync(join(at.workspace, 'mounted'));
    const through = apart(user, '/bin/sh', '-c', `mount -t tmpfs none ${join(at.workspace, 'mounted')} && cd ${at.workspace} && exec "$@"`, 'sh');
    if (through === undefined) skip('only root can mount there');
    const [first, ...rest] = [...(through ?? []), ...jobCommand(user), 'run', '--safe', '--', 'echo', 'started'];
    const ended = await asUser({ ...user, uid: process.getuid?.() ?? 0 }, [first, ...rest], { cwd: '/', env: at.env });
    expect([ended.code, ended.stdout]).toEqual([203, '']);
    expect(ended.stderr).toContain('--workspace DIR');
  });
});
