import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { jobLab, runsOf, type JobLab } from '../support/job-lab.host.ts';
import { describeUsers, type Ended, type TestUser } from '../support/users.host.ts';

interface Account {
  readonly ending: { readonly kind: string; readonly limit?: string };
  readonly executor_observations: { readonly dimensions: Readonly<Record<string, { readonly level: string; readonly scope: string }>> };
  readonly changes: { readonly changes: readonly { readonly path: string }[] } | null;
}

async function runWith(user: TestUser, script: string): Promise<{ lab: JobLab; ended: Ended; account: Account }> {
  const lab = jobLab(user);
  const file = join(lab.base, 'job.yaml');
  writeFileSync(
    file,
    `version: 1\nworkspace: work\nmode: safe\ncommand: [sh, -c, ${JSON.stringify(script)}]\npermissions:\n  resources: { stage_size: 8MiB, wall_time: 60s }\n`,
    { mode: 0o644 },
  );
  const ended = await lab.job(['run', '-q', file]);
  const [run] = await runsOf(lab);
  const bundle = await lab.job(['status', run?.id ?? '', '--review', '--json']);
  const { bundle: account } = JSON.parse(bundle.stdout) as { bundle: Account & { run: { ending: Account['ending'] } } };
  return { lab, ended, account: { ...account, ending: account.run.ending } };
}

/** Ways to fill a stage, each of which would go on for ever. */
const FILLING: Readonly<Record<string, string>> = {
  'one file': 'echo first > first; cat /dev/zero > big',
  'many files without content': 'echo first > first; i=0; while :; do : > f$i; i=$((i+1)); done',
  'a directory that is closed to its owner':
    'echo first > first; mkdir d; cd d; chmod 300 .; i=0; while :; do head -c 1000000 /dev/zero > f$i; i=$((i+1)); done',
};

describeUsers('a limit on the size of the stage', (user) => {
  for (const [what, script] of Object.entries(FILLING)) {
    test(`ends a run that fills it with ${what}, and the stage stays`, { timeout: 90_000 }, async () => {
      const { lab, ended, account } = await runWith(user, script);
      expect(ended.code).toBe(204);
      expect(account.ending).toEqual({ kind: 'limit', limit: 'stage_size' });
      expect(account.executor_observations.dimensions['resources']?.level).toBe('enforced');
      expect((await lab.job(['apply', 'last', '--path', 'first'])).code).toBe(0);
      expect(lab.tree()).toEqual(['first']);
    });
  }

  test('leaves a run alone that stays below it, and says how it is kept', async () => {
    const { ended, account } = await runWith(user, 'head -c 4000000 /dev/zero > big');
    expect(ended).toMatchObject({ code: 0, stderr: '' });
    expect(account.executor_observations.dimensions['resources']).toMatchObject({ level: 'enforced' });
    expect(account.executor_observations.dimensions['resources']?.scope).toContain('stage size by measuring the layer over and over');
  });
});
