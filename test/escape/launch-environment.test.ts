import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { apart, NativeDriver, NativeLab } from '../support/native-lab.host.ts';
import { compileText, publicDirectory } from '../support/native-programs.host.ts';
import { asUser, describeUsers } from '../support/users.host.ts';

/** Writes down who loaded it. */
const WITNESS = (marker: string): string => `
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void load(void) {
  char name[64];
  int from = open("/proc/self/comm", O_RDONLY), to = open("${marker}", O_WRONLY | O_CREAT | O_APPEND, 0666);
  long got = from < 0 ? 0 : read(from, name, sizeof name);
  if (to >= 0 && got > 0) (void)!write(to, name, (unsigned long)got);
}`;

describeUsers('the environment of the caller at launch', (user) => {
  const lab = new NativeLab(user);
  const marker = join(lab.directory(join(lab.base, 'markers')), 'loaded');
  const fake = join(publicDirectory(), `fake-${user.kind}`);
  const hit = join(lab.base, 'markers', 'fake-ran');
  let preload = '';
  beforeAll(() => {
    preload = compileText(`witness-${user.kind}.so`, WITNESS(marker), ['-shared', '-fPIC']);
    mkdirSync(fake);
    for (const name of ['bwrap', 'systemd-run', 'sh', 'proofrun-shim']) {
      writeFileSync(join(fake, name), `#!/bin/sh\necho ${name} >> ${hit}\nexec /usr/bin/${name} "$@"\n`);
      chmodSync(join(fake, name), 0o755);
    }
  });
  afterAll(() => lab.dispose());

  const callerEnv = (): Readonly<Record<string, string>> => ({
    LD_PRELOAD: preload,
    LD_LIBRARY_PATH: fake,
    LD_AUDIT: preload,
    PATH: `${fake}:/usr/bin:/bin`,
    BASH_ENV: join(fake, 'sh'),
    ENV: join(fake, 'sh'),
    GLIBC_TUNABLES: 'glibc.malloc.check=3',
    NODE_OPTIONS: '--no-warnings',
    TMPDIR: fake,
  });

  test('reaches nothing outside the sandbox: no library is loaded and no program of PATH is run', async () => {
    // The driver started without them, as a job started by a shell that exports them would not; what counts is what it hands on.
    const report = await lab.run(['/bin/true'], { callerEnv: callerEnv() });
    expect([report.error, report.ending, report.unmet]).toEqual([undefined, { kind: 'exit', code: 0 }, []]);
    expect(existsSync(marker)).toBe(false);
    expect(existsSync(hit)).toBe(false);
    const seen = await lab.run(['/usr/bin/env'], { env: { GIVEN: 'yes' } });
    expect(
      seen.stdout
        .split('\n')
        .filter((line) => line !== '')
        .sort(),
    ).toEqual(['GIVEN=yes', `HOME=${lab.home}`, 'PATH=/usr/local/bin:/usr/bin:/bin']);
  });

  test('control arm: with the same variables bubblewrap by itself loads the library and is found on PATH', async () => {
    await asUser(user, ['/usr/bin/env', `LD_PRELOAD=${preload}`, '/usr/bin/bwrap', '--version'], { cwd: '/' });
    expect(readFileSync(marker, 'utf8')).toContain('bwrap');
    await asUser(user, ['/usr/bin/env', `PATH=${fake}:/usr/bin:/bin`, 'bwrap', '--version'], { cwd: '/' });
    expect(readFileSync(hit, 'utf8')).toBe('bwrap\n');
  });

  test('control arm: a launch that hands them on runs foreign code outside', async () => {
    const before = readFileSync(marker, 'utf8').length;
    await lab.run(['/bin/true'], { alterations: ['bubblewrap gets LD_PRELOAD'], parameters: { preload } });
    expect(readFileSync(marker, 'utf8').slice(before)).toContain('bwrap');
    await lab.run(['/bin/true'], { alterations: ['bubblewrap is searched on PATH'], parameters: { path: `${fake}:/usr/bin:/bin` } });
    expect(readFileSync(hit, 'utf8')).toBe('bwrap\nbwrap\n');
  });

  test('a bubblewrap that does not belong to root is not used', async ({ skip }) => {
    const planted = join(lab.base, 'bwrap');
    writeFileSync(planted, `#!/bin/sh\necho planted >> ${hit}\n`);
    chmodSync(planted, 0o777);
    const through = apart(user, '/bin/sh', '-c', `mount --bind ${planted} /usr/bin/bwrap && exec "$@"`, 'sh');
    if (through === undefined) skip('only root can put another file there');
    const driver = new NativeDriver(user, { through: through ?? [] });
    const { available, reason, remedy } = await driver.capabilities();
    await driver.end();
    expect([available, reason, remedy]).toEqual([false, expect.stringContaining('no bubblewrap that root owns'), 'apt-get install bubblewrap']);
  });

  test('as PID 1 of a container the numbers of processes do not confuse the probes', async ({ skip }) => {
    const through = apart(user);
    if (through === undefined) skip('only root makes a pid namespace without a user namespace');
    const driver = new NativeDriver(user, { through: through ?? [] });
    const report = await lab.run(['/bin/sh', '-c', 'echo $$'], {}, driver);
    await driver.end();
    expect([report.error, report.unmet, report.stdout]).toEqual([undefined, [], '2\n']);
  });

  test('umask, signal mask and dispositions of the caller do not reach the command', async () => {
    const script = 'umask; grep -E "^Sig(Blk|Ign)" /proc/self/status';
    const through = [...(apart(user) ?? []), '/bin/sh', '-c', 'umask 077; trap "" HUP INT USR1 PIPE; exec "$@"', 'sh'];
    const driver = new NativeDriver(user, { through });
    const { stdout } = await lab.run(['/bin/sh', '-c', script], {}, driver);
    await driver.end();
    expect(stdout.split('\n')[0]).toBe('0022');
    expect(stdout).toMatch(/SigBlk:\t0+\n/);
    expect(stdout).toMatch(/SigIgn:\t0+\n/);
  });
});
