import { chmodSync, chownSync, copyFileSync, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { jobCommand } from '../support/job-command.host.ts';
import { jobLab } from '../support/job-lab.host.ts';
import { AttackLab, attackProgram, outcomes, plantAttack } from '../support/native-attack.host.ts';
import { apart } from '../support/native-lab.host.ts';
import { asUser, describeUsers } from '../support/users.host.ts';

/** Answers of the filter, of the missing capabilities and of PID 1's missing dumpability. */
const REFUSED: Readonly<Record<string, string>> = {
  'unshare user': 'EPERM',
  'unshare mount': 'EPERM',
  'unshare net': 'EPERM',
  'unshare pid': 'EPERM',
  'unshare uts': 'EPERM',
  'unshare ipc': 'EPERM',
  'unshare cgroup': 'EPERM',
  'clone user': 'EPERM',
  'clone3 user': 'ENOSYS',
  'mount tmpfs': 'EPERM',
  'mount remount': 'EPERM',
  'mount bind': 'EPERM',
  'umount /proc': 'EPERM',
  'chroot .': 'EPERM',
  'pivot_root .': 'EPERM',
  'fsopen tmpfs': 'ENOSYS',
  'open_tree /': 'ENOSYS',
  'setns /proc/self/ns/user': 'EPERM',
  'setns /proc/1/ns/mnt': 'EACCES',
  'mknod device': 'EPERM',
  'setxattr trusted.overlay.opaque': 'EPERM',
  'ioctl TIOCSTI': 'EPERM',
};
/** No process may do these to itself: refused without a sandbox as well. */
const NEVER = new Set(['setns /proc/self/ns/user', 'pivot_root .']);
/** A kernel may keep terminals from being written to for everybody (dev.tty.legacy_tiocsti). */
const OFTEN = new Set(['ioctl TIOCSTI']);

/** Any user of any machine may open these for writing: pressure stall notifications. */
const FOR_EVERYBODY = /^writable \/proc\/pressure\/(?:cpu|io|memory)$/;
const CLOSED = [
  '/proc/sys/kernel/core_pattern',
  '/proc/sys/kernel/modprobe',
  '/proc/sys/kernel/hostname',
  '/proc/sys/vm/drop_caches',
  '/proc/sys/fs/suid_dumpable',
] as const;

describeUsers('what a job can ask of the kernel', (user) => {
  const lab = new AttackLab(user);
  afterAll(() => lab.dispose());

  test('namespaces, mounts, devices, other roots and typing into terminals are refused in every mode', async () => {
    for (const options of [{}, { mode: 'default', root: 'host', network: 'public' }] as const) {
      expect(outcomes((await lab.inside(['kernel'], options)).stdout)).toEqual(REFUSED);
    }
  });

  test('control arm: without a sandbox each of them succeeds for root or in a user namespace', async () => {
    const alone = apart(user);
    const asIs = outcomes(await lab.outside(['kernel'], user.kind === 'root' ? (alone ?? []) : []));
    expect(asIs).toMatchObject({ 'unshare user': 'ok', 'clone user': 'ok', 'clone3 user': 'ok' });
    const mapped = ['/usr/bin/unshare', '--user', '--map-root-user', '--mount', '--pid', '--fork', '--mount-proc', '--'];
    const within = user.kind === 'root' ? asIs : outcomes(await lab.outside(['kernel'], alone === undefined ? mapped : [...alone, ...mapped]));
    // Devices and trusted attributes stay root's of the machine.
    const rootOnly = new Set(user.kind === 'root' ? [] : ['mknod device', 'setxattr trusted.overlay.opaque']);
    for (const attempt of Object.keys(REFUSED)) {
      if (NEVER.has(attempt) || rootOnly.has(attempt)) continue;
      const outcome = within[attempt];
      if (OFTEN.has(attempt) && outcome === 'EIO') continue;
      expect([attempt, outcome]).toEqual([attempt, 'ok']);
    }
  });

  test('control arm: without the filter a job makes a user namespace', async () => {
    const met = outcomes((await lab.inside(['kernel'], { mode: 'default', alterations: ['seccomp: no filter'] })).stdout);
    expect(met).toMatchObject({ 'unshare user': 'ok', 'clone user': 'ok', 'clone3 user': 'ok' });
    expect(['ok', 'EIO']).toContain(met['ioctl TIOCSTI']);
  });

  test('nothing under /proc can be opened for writing but what belongs to the job itself', async () => {
    for (const options of [{}, { mode: 'default', root: 'host', network: 'public' }] as const) {
      const { stdout } = await lab.inside(['writable'], options);
      expect(stdout.split('\n').filter((line) => line !== '' && !FOR_EVERYBODY.test(line))).toEqual([]);
      const met = outcomes((await lab.inside(['write-back', ...CLOSED], options)).stdout);
      for (const path of CLOSED) expect([path, ['EROFS', 'EACCES', 'EPERM', 'ENOENT']]).toEqual([path, expect.arrayContaining([met[`write back ${path}`]])]);
    }
  });

  test.skipIf(user.kind !== 'root')('control arm: with /proc/sys left open root writes core_pattern', async () => {
    const options = { mode: 'default', alterations: ['kernel_files: /proc/sys is left as it is'] } as const;
    expect(outcomes((await lab.inside(['write-back', '/proc/sys/kernel/core_pattern'], options)).stdout)).toEqual({
      'write back /proc/sys/kernel/core_pattern': 'ok',
    });
  });

  test('sysrq-trigger, kernel memory and modules are out of reach', async () => {
    const paths = [
      '/proc/sysrq-trigger',
      '/proc/kcore',
      '/proc/kmsg',
      '/proc/kallsyms',
      '/dev/mem',
      '/dev/kmsg',
      '/dev/vda',
      '/dev/sda',
      '/sys/kernel/uevent_helper',
      '/dev/fuse',
      '/dev/net/tun',
      '/dev/kvm',
    ];
    const met = outcomes((await lab.inside(['open', ...paths.flatMap((path) => ['w', path])])).stdout);
    for (const path of paths) expect([path, ['EROFS', 'EACCES', 'EPERM', 'ENOENT']]).toEqual([path, expect.arrayContaining([met[`w ${path}`]])]);
  });

  test('file handles do not open what no path leads to', async () => {
    const { stdout } = await lab.inside(['handles', lab.workspace]);
    expect(outcomes(stdout)).toMatchObject({ [`open_by_handle_at ${lab.workspace}`]: 'EPERM' });
    if (user.kind === 'root') expect(outcomes(await lab.outside(['handles', lab.workspace]))).toMatchObject({ [`open_by_handle_at ${lab.workspace}`]: 'ok' });
  });

  test.skipIf(process.getuid?.() !== 0 || user.kind === 'root')('a setuid program gives its caller nothing', async () => {
    const path = join(lab.base, 'setuid');
    copyFileSync(attackProgram(), path);
    chmodSync(path, 0o4755);
    const inWorkspace = lab.write('setuid', readFileSync(path));
    chownSync(inWorkspace, 0, 0);
    chmodSync(inWorkspace, 0o4755);
    const own = `${user.uid} ${user.uid}\n`;
    expect((await lab.run([inWorkspace, 'ids'])).stdout).toBe(own);
    expect((await lab.run([path, 'ids'], { allowRead: [path] })).stdout).toBe(own);
    // Control arm: outside it makes its caller root.
    expect((await asUser(user, [path, 'ids'])).stdout).toBe(`${user.uid} 0\n`);
    expect((await asUser(user, [inWorkspace, 'ids'])).stdout).toBe(`${user.uid} 0\n`);
  });

  const typed = async (command: readonly string[], cwd: string, env: Readonly<Record<string, string>>): Promise<Readonly<Record<string, string>>> => {
    const line = command.map((word) => `'${word}'`).join(' ');
    const ended = await asUser(user, ['/usr/bin/script', '-qec', line, '/dev/null'], { cwd, env, input: '' });
    // The terminal shows the end of its input as ^@ or ^D.
    return outcomes(ended.stdout.replaceAll(/\^[@D]|[^ -~\n]/g, ''));
  };

  test.skipIf(!existsSync('/usr/bin/script'))('the terminal of the caller can not be typed into', async () => {
    const at = jobLab(user);
    plantAttack(user, at.workspace);
    const met = await typed([...jobCommand(user), 'run', '--safe', '-q', '--', './attack', 'type', 'x'], at.workspace, at.env);
    expect(met).toEqual({
      'isatty 0': 'ok',
      'open /dev/tty': 'ok',
      'TIOCSTI 0': 'EPERM',
      'TIOCSTI 1': 'EPERM',
      'TIOCSTI 2': 'EPERM',
      'TIOCSTI tty': 'EPERM',
      'TIOCSTI high': 'EPERM',
      'TIOCLINUX 0': 'EPERM',
    });
    // Control arm: the same program on the same terminal, where the kernel still has this call.
    const bare = await typed([join(at.workspace, 'attack'), 'type', 'x'], at.workspace, at.env);
    if (readFileSync('/proc/sys/dev/tty/legacy_tiocsti', 'utf8').trim() === '1') {
      expect(Object.entries(bare).find(([attempt]) => attempt.endsWith('TIOCSTI 0'))?.[1]).toBe('ok');
    }
  });
});
