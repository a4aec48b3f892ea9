import { beforeAll, describe, expect, test } from 'vitest';
import { agentLab, AUTH, modeOf, type AgentLab } from '../support/agent-lab.host.ts';
import { engineClient, engineEnvironment, ensureImage } from '../support/docker-lab.host.ts';
import { describeUsers } from '../support/users.host.ts';

const environment = engineEnvironment();
const OUTSIDE = '/etc/passwd';

describe.skipIf(typeof environment === 'string')('in a container', () => {
  const host = typeof environment === 'string' ? '' : environment.DOCKER_HOST;
  beforeAll(async () => ensureImage(engineClient()));

  describeUsers('an agent that stays logged in', (user) => {
    const inContainer = (lab: AgentLab, script: string): ReturnType<AgentLab['job']> =>
      lab.job(['run', '--safe', '--no-net', '--executor', 'docker', '--use', 'codex', '--', 'sh', '-c', script], { env: { DOCKER_HOST: host } });

    test('a refreshed login is written back, its sessions are there for the next job, and the caller has a git name', async () => {
      const lab = agentLab(user);
      lab.writeHome('.gitconfig', '[user]\n\tname = Ada\n');
      const first = await inContainer(
        lab,
        'cd ~/.codex && sed s/first/second/ auth.json > new && mv new auth.json && echo spoken > sessions/one && cat ~/.gitconfig',
      );
      expect([first.code, first.stdout], first.stderr).toEqual([0, '[user]\n\tname = "Ada"\n']);
      expect([lab.token(), modeOf(lab.login)]).toEqual(['second', 0o600]);
      expect(await lab.logins()).toMatchObject([{ outcome: 'written_back' }]);
      const second = await inContainer(lab, 'cat ~/.codex/sessions/one; grep -c second ~/.codex/auth.json');
      expect(second.stdout, second.stderr).toBe('spoken\n1\n');
    });

    test('a link in its place is an error, and the host keeps what it had', async () => {
      const lab = agentLab(user);
      const ended = await inContainer(lab, `cd ~/.codex && rm auth.json && ln -s ${OUTSIDE} auth.json`);
      expect(ended.code, ended.stderr).toBe(205);
      expect(lab.loginText()).toBe(JSON.stringify(AUTH, null, 2));
      expect(await lab.logins()).toMatchObject([{ outcome: 'failed', kept: null }]);
    });
  });
});
