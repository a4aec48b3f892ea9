import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { jobLab, processesWith, type JobLab } from '../support/job-lab.host.ts';
import { hasScript, openScreen, shellLine } from '../support/screen.host.ts';
import { describeUsers } from '../support/users.host.ts';

const hasLess = hasScript && spawnSync('less', ['--version']).status === 0;

async function staged(lab: JobLab, files: number): Promise<void> {
  const ended = await lab.job(['run', '-q', '--', 'sh', '-ec', `i=0; while [ $i -lt ${files} ]; do echo $i >f$i; i=$((i+1)); done`]);
  expect(ended.code, ended.stderr).toBe(0);
}

/** A shell line on a terminal of so many rows. */
const onRows = (rows: number, line: string): string => `stty rows ${rows} cols 80; ${line}`;

describeUsers('a long result on a terminal', (user) => {
  test.skipIf(!hasScript)('goes through the pager that the person named, a short one and a file do not', async () => {
    const lab = jobLab(user);
    await staged(lab, 30);
    const review = shellLine(lab, ['status', 'last', '--review']);
    const PAGER = 'sed s/^/paged:/';
    const long = openScreen(lab, onRows(10, review), { PAGER });
    await long.shows('paged:');
    await long.shows('paged:');
    expect(await long.ended).toBe(0);
    const short = openScreen(lab, onRows(500, `${review}; echo the en""d`), { PAGER });
    expect(await short.shows('the end')).not.toContain('paged:');
    const file = openScreen(lab, onRows(10, `${review} | cat; ${review} </dev/null; echo the en""d`), { PAGER });
    expect(await file.shows('the end')).not.toContain('paged:');
    for (const none of ['', 'cat', '/nowhere/pager']) {
      const screen = openScreen(lab, onRows(10, `${review}; echo the en""d`), { PAGER: none });
      const shown = await screen.shows('the end');
      expect(shown).toContain('job apply');
      expect(await screen.ended).toBe(0);
    }
  });

  test.skipIf(!hasLess)('less ends when the person has read enough, starts no program for them, and the command has ended well', async () => {
    const lab = jobLab(user);
    await staged(lab, 300);
    const screen = openScreen(lab, onRows(10, `${shellLine(lab, ['diff', 'last'])}; echo code $?`), { TERM: 'xterm', LESS: 'FRX' });
    await screen.shows('diff --git');
    // A shell from within it, with the rights of the person, is one key away from text that a job wrote.
    screen.type('!');
    await screen.shows(/not available/);
    screen.type('\rq');
    await screen.shows('code 0');
    expect(await screen.ended).toBe(0);
  });

  test.skipIf(!hasLess)('what a job wrote cannot act on the terminal through the pager', async () => {
    const lab = jobLab(user);
    const ended = await lab.job([
      'run',
      '-q',
      '--',
      'sh',
      '-ec',
      "i=0; while [ $i -lt 40 ]; do printf '\\033]0;owned\\007\\033[2Jtext\\n' >f$i; i=$((i+1)); done",
    ]);
    expect(ended.code, ended.stderr).toBe(0);
    const screen = openScreen(lab, onRows(10, `${shellLine(lab, ['diff', 'last'])}; echo the en""d`), { TERM: 'xterm', PAGER: 'less -R' });
    await screen.shows('text');
    screen.type('q');
    const shown = await screen.shows('the end');
    expect(shown).not.toContain('\x1b]0;owned');
    expect(shown).not.toContain('\x1b[2J');
  });
});

describeUsers('work that lasts longer than a second', (user) => {
  test.skipIf(!hasScript)('draws how far it is, and takes the line away', { timeout: 60_000 }, async () => {
    const lab = jobLab(user);
    await staged(lab, 1500);
    const screen = openScreen(lab, onRows(30, `${shellLine(lab, ['apply', 'last', '--all'])}; echo code $?`));
    // The work is held up in the middle, so that it lasts as long as the line needs to come.
    let shim: number | undefined;
    while (shim === undefined) {
      await new Promise((resolve) => setImmediate(resolve));
      shim = processesWith(`proofrun-shim\0apply\0${lab.state}`)[0];
    }
    process.kill(shim, 'SIGSTOP');
    await screen.shows('applying');
    process.kill(shim, 'SIGCONT');
    await screen.shows('applied 1,500 changes');
    await screen.shows('code 0');
    expect(await screen.ended).toBe(0);
  });

  test('without a terminal nothing is drawn, and with --json every line is an object', async () => {
    const lab = jobLab(user);
    await staged(lab, 1500);
    const ended = await lab.job(['apply', 'last', '--all', '--json']);
    expect(ended.code).toBe(0);
    for (const line of ended.stderr.split('\n').filter((one) => one !== '')) expect(JSON.parse(line)).toMatchObject({ event: 'progress', work: 'applying' });
    const undone = await lab.job(['undo', 'last']);
    expect([undone.code, undone.stderr]).toEqual([0, '']);
  });
});
