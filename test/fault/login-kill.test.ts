import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { agentLab, modeOf } from '../support/agent-lab.host.ts';
import { runsOf, spawnAnnouncing } from '../support/job-lab.host.ts';
import { describeUsers } from '../support/users.host.ts';

/** From the end of the command on, in order. */
const POINTS = ['exited', 'closed', 'change-set', 'login-judged', 'login-written', 'login-renamed', 'login-settled', 'bundle-written', 'committed'] as const;

describeUsers('kill -9 while a login is written back', (user) => {
  test.each(POINTS)('at %s: the next command finishes it, and leaves no litter beside the login', async (point) => {
    const lab = agentLab(user);
    const running = spawnAnnouncing({ ...lab, env: { ...lab.env, PATH: lab.path } }, lab.agent('refresh'));
    await running.reach(point);
    running.child.kill('SIGKILL');
    await new Promise((resolve) => running.child.once('close', resolve));
    const [run] = await runsOf(lab);
    expect(['interrupted', 'finished']).toContain(run?.state);
    expect(lab.token()).toBe('after first');
    expect(modeOf(lab.login)).toBe(0o600);
    expect(lab.tree(join(lab.home, '.codex'))).toEqual(['auth.json']);
    expect(existsSync(join(lab.state, 'runs', run?.id ?? '', 'scratch'))).toBe(false);
    // The run that comes next has it, and sweeps what a run that was over had left.
    expect((await lab.job(lab.agent('show'))).stdout).toBe('after first\n');
    if (run?.state === 'interrupted') expect(await lab.logins(run.id)).toMatchObject([{ outcome: 'written_back' }]);
  });

  test.each(['exited', 'change-set', 'login-settled', 'bundle-written'])(
    'at %s, with a login that may not be written back: the next command says where the copy is',
    async (point) => {
      const lab = agentLab(user);
      const before = lab.loginText();
      const running = spawnAnnouncing({ ...lab, env: { ...lab.env, PATH: lab.path } }, lab.agent('more'));
      await running.reach(point);
      running.child.kill('SIGKILL');
      await new Promise((resolve) => running.child.once('close', resolve));
      const next = await lab.job(['ls']);
      const kept = /is kept in (\S+)/.exec(next.stderr.replace(/\s+/g, ' '))?.[1] ?? '';
      expect(kept, next.stderr).not.toBe('');
      expect(modeOf(kept)).toBe(0o600);
      expect(readFileSync(kept, 'utf8')).toContain('sh -c evil');
      expect(lab.loginText()).toBe(before);
    },
  );
});
