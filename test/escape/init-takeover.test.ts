import { chownSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { users } from '../support/accounts.ts';
import { AttackLab, outcomes } from '../support/native-attack.host.ts';
import { describeUsers } from '../support/users.host.ts';

/** What whoever holds PID 1 can do: let the tree live on, lie about its end, speak for the sandbox. */
const ATTEMPTS = [
  ['memory', '1'],
  ['trace', '1'],
  ['write-memory', '1'],
  ['open', 'rw', '/proc/1/exe', 'r', '/proc/1/exe', 'r', '/proc/1/root', 'r', '/proc/1/cwd', 'r', '/proc/1/environ', 'r', '/proc/1/fd/3', 'w', '/proc/1/fd/0'],
] as const;
const REFUSED = ['EACCES', 'EPERM'];
/** The descriptors of the shim that matter are not there to be listed for an ordinary user, and can't be opened by anybody. */
const ABSENT = ['ENOENT', ...REFUSED];

describeUsers('taking over PID 1 of the sandbox', (user) => {
  const lab = new AttackLab(user);
  afterAll(() => lab.dispose());

  test('fails through /proc/1/mem, ptrace, process_vm_writev, /proc/1/exe, /proc/1/fd and /proc/1/root', async () => {
    for (const words of ATTEMPTS) {
      const { stdout, levels } = await lab.inside(words);
      const met = outcomes(stdout);
      expect(Object.keys(met).length).toBeGreaterThan(0);
      for (const [attempt, outcome] of Object.entries(met)) {
        expect([attempt, attempt.includes('/fd/') ? ABSENT : REFUSED]).toEqual([attempt, expect.arrayContaining([outcome])]);
      }
      expect(levels?.subprocess).toBe('enforced');
    }
  });

  const { user: ordinary } = users();
  test.skipIf(user.kind !== 'root' || typeof ordinary === 'string')("fails as well when root runs a job for somebody else's workspace", async () => {
    if (typeof ordinary === 'string') return;
    const other = new AttackLab(user, ordinary);
    for (const words of ATTEMPTS) {
      const { stdout } = await other.inside(words);
      for (const [attempt, outcome] of Object.entries(outcomes(stdout))) {
        expect([attempt, attempt.includes('/fd/') ? ABSENT : REFUSED]).toEqual([attempt, expect.arrayContaining([outcome])]);
      }
    }
    expect((await other.inside(['ids'])).stdout).toBe(`${ordinary.uid} ${ordinary.uid}\n`);
    // Root's own file outside and inside the workspace is as closed as it is to that user.
    other.write('root-only', 'canary\n', 0o600);
    chownSync(join(other.workspace, 'root-only'), 0, 0);
    const read = await other.run(['/bin/sh', '-c', 'cat root-only; echo end']);
    expect(read.stdout).toBe('end\n');
    await other.dispose();
  });

  test('control arm: the same attempts on a process of the same user outside succeed', async () => {
    const victim = await lab.victim();
    const at = (word: string): string => word.replace(/^1$/, String(victim.pid)).replace('/proc/1/', `/proc/${victim.pid}/`);
    const memory = outcomes(await lab.outside(['memory', String(victim.pid)]));
    expect(memory).toEqual(Object.fromEntries(Object.keys(memory).map((attempt) => [attempt, 'ok'])));
    expect(memory).toMatchObject({ 'write memory': 'ok' });
    expect(outcomes(await lab.outside(['trace', String(victim.pid)]))).toEqual({ [`ptrace ${victim.pid}`]: 'ok' });
    expect(outcomes(await lab.outside(['write-memory', String(victim.pid)]))).toEqual({ [`process_vm_writev ${victim.pid}`]: 'ok' });
    const open = outcomes(await lab.outside(['open', 'r', at('/proc/1/exe'), 'r', at('/proc/1/root'), 'r', at('/proc/1/cwd'), 'r', at('/proc/1/environ')]));
    expect(Object.values(open)).toEqual(['ok', 'ok', 'ok', 'ok']);
    victim.end();
  });

  test('control arm: without the defences they succeed on PID 1', async () => {
    for (const first of ['shim_is_init: PID 1 is dumpable', 'shim_is_init: bubblewrap stays PID 1']) {
      const options = { mode: 'default', alterations: [first, 'seccomp: no filter'] } as const;
      expect(outcomes((await lab.inside(['memory', '1'], options)).stdout)).toMatchObject({ 'open /proc/1/mem': 'ok', 'write memory': 'ok' });
      expect(outcomes((await lab.inside(['trace', '1'], options)).stdout)).toEqual({ 'ptrace 1': 'ok' });
      expect(outcomes((await lab.inside(['write-memory', '1'], options)).stdout)).toEqual({ 'process_vm_writev 1': 'ok' });
      expect(outcomes((await lab.inside(['open', 'r', '/proc/1/root', 'r', '/proc/1/environ'], options)).stdout)).toEqual({
        'r /proc/1/root': 'ok',
        'r /proc/1/environ': 'ok',
      });
    }
  });

  test('the filter alone, and the missing dumpability alone, each stop part of it', async () => {
    const open = { mode: 'default', alterations: ['seccomp: no filter'] } as const;
    expect(outcomes((await lab.inside(['memory', '1'], open)).stdout)).toEqual({ 'open /proc/1/mem': 'EACCES', 'open /proc/1/maps': 'EACCES' });
    expect(outcomes((await lab.inside(['trace', '1'], open)).stdout)).toEqual({ 'ptrace 1': 'EPERM' });
    const dumpable = { mode: 'default', alterations: ['shim_is_init: PID 1 is dumpable'] } as const;
    expect(outcomes((await lab.inside(['trace', '1'], dumpable)).stdout)).toEqual({ 'ptrace 1': 'EPERM' });
    expect(outcomes((await lab.inside(['write-memory', '1'], dumpable)).stdout)).toEqual({ 'process_vm_writev 1': 'EPERM' });
  });

  test('signals from inside do not reach PID 1', async () => {
    const killed = await lab.run(['/bin/sh', '-c', 'for s in KILL STOP TERM HUP SEGV 34; do kill -$s 1; done; echo alive']);
    expect([killed.stdout, killed.ending, killed.levels?.subprocess]).toEqual(['alive\n', { kind: 'exit', code: 0 }, 'enforced']);
  });

  test('no path of the sandbox leads to the program of PID 1', async () => {
    const { stdout } = await lab.inside(['open', 'r', '/proc/1/exe', 'rw', '/proc/1/exe', 'r', '/proc/self/fd/10', 'rw', '/proc/self/fd/10']);
    expect(outcomes(stdout)).toEqual({
      'r /proc/1/exe': 'EACCES',
      'rw /proc/1/exe': 'EACCES',
      'r /proc/self/fd/10': 'ENOENT',
      'rw /proc/self/fd/10': 'ENOENT',
    });
    const named = await lab.run(['/bin/sh', '-c', 'find / -xdev -name "*proofrun-shim*" 2> /dev/null; readlink /proc/1/exe']);
    expect(named.stdout).toBe('');
  });
});
