import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { canonicalSha256 } from '../../src/core/canonical-json.ts';
import { jobCommand } from '../support/job-command.host.ts';
import { jobLab, type JobLab } from '../support/job-lab.host.ts';
import { asUser, describeUsers } from '../support/users.host.ts';

/** The bundle of the newest run, which only its owner can read. */
async function bundleFile(lab: JobLab): Promise<string> {
  const listed = JSON.parse((await lab.job(['ls', '--json'])).stdout) as readonly { bundle: { path: string } }[];
  return join(lab.state, listed[0]?.bundle.path ?? 'none');
}

describeUsers('status, diff and verify', (user) => {
  test('a review shows each change in the order of decisions, its names safe for a screen', async () => {
    const lab = jobLab(user);
    lab.write('src/old.ts', 'old\n');
    lab.write('src/kept.ts', 'one\n');
    const script = String.raw`mkdir -p .husky; echo hook > .husky/pre-commit; rm src/old.ts; echo two >> src/kept.ts; printf 'a\000b' > blob; ln -s /etc/passwd out; touch "$(printf 'new\nline\033[2J')"`;
    expect((await lab.job(['run', '--safe', '-q', '--', 'sh', '-c', script])).code).toBe(0);
    const review = await lab.job(['status', '--review']);
    expect(review.code, review.stderr).toBe(0);
    // eslint-disable-next-line no-control-regex -- that none is there is the point
    expect(review.stdout).not.toMatch(/[\x00-\x09\x0b-\x1f\x7f-\x9f]/);
    const rows = review.stdout
      .slice(review.stdout.indexOf('CHANGES'))
      .split('\n')
      .filter((line) => /^[ !C>x] [A-Z] /.test(line));
    expect(rows.map((row) => row.slice(0, 4) + (row.slice(4).split(' ')[0] ?? ''))).toEqual([
      '! A .husky/pre-commit',
      '> A out',
      '  D src/old.ts',
      '  A blob',
      String.raw`  A new\nline\x1b[2J`,
      '  M src/kept.ts',
    ]);

    const markdown = (await lab.job(['status', '--format', 'markdown'])).stdout;
    expect(markdown).toContain('**runs by itself**');
    const json = JSON.parse((await lab.job(['status', '--review', '--json'])).stdout) as { verification: { ok: boolean }; changes_now: { changes: unknown[] } };
    expect(json.verification).toEqual({ ok: true, problems: [] });
    expect(json.changes_now.changes.length).toBeGreaterThanOrEqual(6);
  });

  test('what the summary suggests is what apply accepts', async () => {
    const lab = jobLab(user);
    const ran = await lab.job(['run', '--safe', '--', 'sh', '-c', 'mkdir src; echo 1 > src/a; echo 2 > src/b; echo 3 > top']);
    const suggested = /^ +job (apply last .*?) {4}or/m.exec(ran.stderr)?.[1];
    expect(suggested).toBe('apply last --path src');
    const applied = await lab.job((suggested ?? '').split(' '));
    expect(applied.code, applied.stderr).toBe(0);
    expect(lab.tree()).toEqual(['src/', 'src/a', 'src/b']);
    // The review no longer offers what is applied.
    const review = (await lab.job(['status', '--review'])).stdout;
    expect(review).toContain('(partly applied)');
    expect(review).toContain('job apply last --path top');
  });

  test('a path that the machine would run by itself needs its own word, and the review says which', async () => {
    const lab = jobLab(user);
    expect((await lab.job(['run', '--safe', '-q', '--', 'sh', '-c', 'mkdir -p .husky; echo hook > .husky/pre-commit; echo 1 > a'])).code).toBe(0);
    const refused = await lab.job(['apply', 'last', '--all']);
    expect(refused.code).toBe(205);
    expect(refused.stderr).toContain('     job apply last --all --allow-exec .husky/pre-commit\n');
    expect(lab.tree()).toEqual([]);
    const suggested = /^all 2: job (.*)$/m.exec((await lab.job(['status', '--review'])).stdout)?.[1];
    expect(suggested).toBe('apply last --allow-exec .husky/pre-commit');
    const applied = await lab.job((suggested ?? '').split(' '));
    expect(applied.code, applied.stderr).toBe(0);
    expect(lab.tree()).toEqual(['.husky/', '.husky/pre-commit', 'a']);
  });

  test('the patch is what git apply takes; the diff for reading obeys no control character', async () => {
    const lab = jobLab(user);
    lab.write('a.txt', 'one\ntwo\n');
    expect(
      (
        await lab.job([
          'run',
          '--safe',
          '-q',
          '--',
          'sh',
          '-c',
          String.raw`printf 'one\n\033[31mthree\n' > a.txt; printf 'x\000y' > bin; mkdir d; echo n > d/n`,
        ])
      ).code,
    ).toBe(0);
    const read = (await lab.job(['diff'])).stdout;
    expect(read).toContain(String.raw`+\x1b[31mthree`);
    expect(read).not.toContain('\x1b');
    expect((await lab.job(['diff', 'last', 'd'])).stdout).toMatch(/^diff --git a\/d\/n b\/d\/n\n/);
    const patch = (await lab.job(['diff', '--patch'])).stdout;
    expect(patch).toContain('+\x1b[31mthree');
    expect(patch).toContain('GIT binary patch');
    const wrong = await lab.job(['diff', 'last', 'a.tx']);
    expect(wrong.code).toBe(206);
    expect(wrong.stderr).toContain('a.txt');
  });

  test('a bundle that was altered, or whose levels do not follow, is refused or named', async () => {
    const lab = jobLab(user);
    expect((await lab.job(['run', '--safe', '-q', '--', 'true'])).code).toBe(0);
    expect(await lab.job(['verify'])).toMatchObject({ code: 0, stderr: '' });
    const file = await bundleFile(lab);
    const whole = readFileSync(file, 'utf8');
    // The same bundle from elsewhere verifies without the store.
    lab.write('run-bundle.json', whole);
    expect((await lab.job(['verify', './run-bundle.json'])).stdout).toMatch(/^verified /);

    // A level that no receipt carries, in a bundle whose hash was made to fit.
    const forged = JSON.parse(whole) as { sha256?: string; executor_observations: { dimensions: Record<string, { level: string }> } };
    const models = forged.executor_observations.dimensions['models'];
    if (models !== undefined) models.level = 'enforced';
    delete forged.sha256;
    lab.write('forged.json', JSON.stringify({ ...forged, sha256: canonicalSha256(forged) }));
    const named = await lab.job(['verify', './forged.json']);
    expect(named.code).toBe(201);
    expect(named.stdout).toContain('executor_observations.dimensions.models.level: recorded "enforced", derived "unenforced"');

    writeFileSync(file, whole.replace('"code":0', '"code":1'));
    for (const command of [['verify'], ['status', '--review'], ['status']]) {
      const refused = await lab.job(command);
      expect(refused.code, command.join(' ')).toBe(201);
      expect(refused.stdout).toBe('');
    }
    rmSync(file);
    expect((await lab.job(['status', '--review'])).code).toBe(201);
  });

  test('a refused job is a run with a bundle: the review shows what would change it', async () => {
    const lab = jobLab(user);
    const ran = await lab.job(['run', '--safe', '--executor', 'host', '--', 'true']);
    expect(ran.code).toBe(200);
    expect(ran.stderr).toContain('was refused and not started');
    const review = await lab.job(['status', '--review']);
    expect(review.code, review.stderr).toBe(0);
    expect(review.stdout).toContain('Nothing was started');
    expect(review.stdout).toMatch(/change it +job run /);
    expect(review.stdout).toMatch(/that gives up +\S/);
    expect(await lab.job(['verify'])).toMatchObject({ code: 0 });
  });

  test('what the host executor did to the tree is said, not shown as a stage', async () => {
    const lab = jobLab(user);
    const ran = await lab.job(['run', '--executor', 'host', '--', 'sh', '-c', 'echo x > direct']);
    expect(ran.stderr).toContain('nothing: the command wrote your tree itself');
    expect(lab.tree()).toEqual(['direct']);
    expect((await lab.job(['status', '--review'])).stdout).toContain('nothing was staged: the command wrote your tree itself');
  });
});

describeUsers('the process', (user) => {
  test('a reader that goes away ends it quietly', async () => {
    const lab = jobLab(user);
    const [node, ...rest] = jobCommand(user);
    const ended = await asUser(user, ['bash', '-c', 'set -o pipefail; "$@" | head -n 1', 'bash', node, ...rest, 'schema', 'bundle'], {
      cwd: lab.workspace,
      env: lab.env,
    });
    expect(ended.stderr).toBe('');
    expect([0, 141]).toContain(ended.code);
  });

  test('a directory that is gone is an error with a next step', async () => {
    const lab = jobLab(user);
    const ended = await asUser(user, ['bash', '-c', 'mkdir gone && cd gone && rmdir ../gone && "$@"', 'bash', ...jobCommand(user), 'ls'], {
      cwd: lab.workspace,
      env: lab.env,
    });
    expect(ended.stderr).toContain("the current directory doesn't exist any more");
    expect(ended.code).toBe(2);
  });
});
