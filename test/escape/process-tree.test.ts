import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { afterAll, expect, test } from 'vitest';
import { AttackLab, attackProgram, outcomes } from '../support/native-attack.host.ts';
import { asUser, describeUsers } from '../support/users.host.ts';

/** Processes anywhere on the machine that carry a variable. Zombies carry nothing. */
function carrying(mark: string): readonly string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/environ`, 'latin1').includes(mark);
      } catch {
        return false;
      }
    });
}

const STORMS = {
  double: 'a child whose parent is gone',
  session: 'a child in a session of its own, deaf to signals',
  stopped: 'stopped processes',
  zombies: 'processes that nobody reaps',
  vfork: 'parents suspended by vfork',
  forking: 'processes that change their number all the time',
} as const;

describeUsers('the process tree', (user) => {
  const lab = new AttackLab(user);
  afterAll(() => lab.dispose());

  test.each(Object.entries(STORMS))('%s: %s, does not outlive the run', async (kind) => {
    const mark = `storm-${randomBytes(6).toString('hex')}`;
    const report = await lab.inside(['storm', kind, '20'], { env: { MARK: mark }, limits: { processes: 400 } });
    expect([report.stdout, report.ending]).toEqual(['ready\n', { kind: 'exit', code: 0 }]);
    expect(carrying(mark)).toEqual([]);
    expect(report.killed.length).toBeGreaterThanOrEqual(10);
    expect([report.unmet, report.levels?.subprocess]).toEqual([[], 'enforced']);
    const end = report.receipts.filter(({ phase }) => phase === 'end').map(({ id, value }) => [id, value]);
    expect(end).toEqual(
      expect.arrayContaining([
        ['end.processes', 0],
        ['end.init_gone', 'gone'],
      ]),
    );
  });

  test('control arm: without a sandbox such a child outlives its parent', async () => {
    const mark = `storm-${randomBytes(6).toString('hex')}`;
    await asUser(user, ['/bin/sh', '-c', `${attackProgram()} storm session 2 > /dev/null 2>&1`], { env: { MARK: mark } });
    const left = carrying(mark);
    for (const pid of left) process.kill(Number(pid), 'SIGKILL');
    expect(left.length).toBe(2);
  });

  test('a grandchild that holds the output does not hold the run', async () => {
    const report = await lab.run(['/bin/sh', '-c', '(trap "" HUP TERM; exec sleep 300) & (setsid sleep 300 &) ; echo done'], {});
    expect([report.stdout, report.ending]).toEqual(['done\n', { kind: 'exit', code: 0 }]);
    expect(report.killed.map(({ name }) => name).every((name) => name === 'sleep' || name === 'sh' || name === 'setsid')).toBe(true);
    expect(report.tookMs).toBeLessThan(60_000);
  });

  test('host processes can not be signalled, by number or all at once', async () => {
    const victim = await lab.victim();
    expect(outcomes((await lab.inside(['kill', String(victim.pid)])).stdout)).toEqual({ [`kill ${victim.pid}`]: 'ESRCH' });
    const { stdout } = await lab.run(['/bin/sh', '-c', 'echo before; kill -9 -1; kill -9 -- -1; ls /proc | grep -c "^[0-9]"']);
    expect(stdout).toMatch(/^before\n\d+\n$/);
    const all = await lab.run(['/usr/bin/perl', '-e', 'for my $pid (2..70000) { kill 9, $pid if $pid != $$ } print "tried\n"']);
    expect([all.stdout, all.ending]).toEqual(['tried\n', { kind: 'exit', code: 0 }]);
    expect(victim.alive()).toBe(true);
    // Control arm: the same program, the same user, the same number.
    expect(outcomes(await lab.outside(['kill', String(victim.pid)]))).toEqual({ [`kill ${victim.pid}`]: 'ok' });
    victim.end();
  });

  test('a fork bomb stops at the limit on processes', async ({ skip }) => {
    const { limits } = await lab.shared.capabilities();
    if (!limits.processes) skip('nothing limits processes here');
    const bounded = await lab.inside(['bomb', '300'], { limits: { processes: 40 } });
    const [, count, outcome] = bounded.stdout.trim().split(' ');
    expect(outcome).toBe('EAGAIN');
    expect(Number(count)).toBeLessThanOrEqual(40);
    expect(Number(count)).toBeGreaterThan(20);
    expect(bounded.levels?.resources).toBe('enforced');
    // Control arm: without the limit the same program forks as often as it wants.
    expect((await lab.inside(['bomb', '300'])).stdout).toBe('forked 300 ok\n');
    // Two jobs of one user don't share the count.
    const pair = await Promise.all([lab.inside(['bomb', '30'], { limits: { processes: 40 } }), lab.inside(['bomb', '30'], { limits: { processes: 40 } })]);
    expect(pair.map(({ stdout }) => stdout)).toEqual(['forked 30 ok\n', 'forked 30 ok\n']);
  });

  test('no process of the host is seen', async () => {
    const { stdout } = await lab.run(['/bin/sh', '-c', 'cd /proc; echo [0-9]*; cat /proc/*/cmdline | tr "\\0" " "']);
    const [numbers = ''] = stdout.split('\n');
    expect(numbers.split(' ').filter((pid) => Number(pid) > 2)).toEqual([]);
    expect(stdout).not.toContain('vitest');
    expect(stdout).not.toContain('bwrap');
  });
});
