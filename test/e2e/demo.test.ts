import { join } from 'node:path';
import { expect, test } from 'vitest';
import { installation, jobCommand } from '../support/job-command.host.ts';
import { asUser, describeUsers, temporaryDirectory } from '../support/users.host.ts';

describeUsers('examples/hostile-package', (user) => {
  test('every attempt is stopped or kept away, and each would succeed without a sandbox', { timeout: 180_000 }, async () => {
    const [node, job] = jobCommand(user);
    const story = join(installation(user), 'examples/hostile-package/story.mjs');
    const home = temporaryDirectory(user);
    const ended = await asUser(user, [node, story, '--job', job ?? ''], { cwd: home, env: { HOME: home, TMPDIR: home } });
    expect(ended.stderr, ended.stdout).toBe('');
    expect(ended, ended.stdout).toMatchObject({ code: 0, signal: null });
    expect(ended.stdout).toMatch(/\n {2}20 of 20 attempts were stopped or kept away from this machine\.\n/);
  });
});
