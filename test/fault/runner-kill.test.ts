import { randomBytes } from 'node:crypto';
import { chownSync, existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { POINTS, type Point } from '../../src/runner/points.ts';
import { jobLab, mountsBelow, processesWith, runsOf, spawnAnnouncing } from '../support/job-lab.host.ts';
import { describeUsers } from '../support/users.host.ts';

/** Where the account is whole already, the next command records what it says. */
const ACCOUNTED: readonly Point[] = ['bundle-written', 'committed'];
/** From here on the command has written its file. */
const WROTE: readonly Point[] = ['exited', 'closing', 'closed', 'change-set', 'bundle-written', 'committed'];

describeUsers('kill -9 of the command line', (user) => {
  for (const point of POINTS) {
    test(`at ${point}: after the next job ls no process, mount, directory or litter, and the stage is reviewable`, async () => {
      const lab = jobLab(user);
      lab.write('old.txt', 'old\n');
      const marker = `300.${randomBytes(4).readUInt32LE()}`;
      const running = spawnAnnouncing(lab, [
        'run',
        '--safe',
        '--',
        'sh',
        '-c',
        WROTE.includes(point) ? `echo staged > new.txt; sleep ${marker} & exit 0` : `echo staged > new.txt; exec sleep ${marker}`,
      ]);
      await running.reach(point);
      running.child.kill('SIGKILL');

      const [run] = await runsOf(lab);
      if (run === undefined) throw new Error('the run is not recorded');
      if (ACCOUNTED.includes(point)) expect(run).toMatchObject({ state: 'finished', exit_code: 0 });
      else expect(run).toMatchObject({ state: 'interrupted', ending: { kind: 'interrupted' } });

      expect(processesWith(marker)).toEqual([]);
      expect(processesWith(lab.base)).toEqual([]);
      expect(mountsBelow(lab.base)).toEqual([]);
      expect(lab.tree()).toEqual(['old.txt']);
      const directory = join(lab.state, 'runs', run.id);
      const left = lab.tree(directory).filter((name) => !name.startsWith('stage/'));
      expect(left).toEqual(expect.arrayContaining(['run-bundle.json', 'run.json']));
      expect(left.filter((name) => !['run-bundle.json', 'run.json', 'stdout.log', 'stderr.log', 'stage/'].includes(name))).toEqual([]);
      expect(existsSync(join(directory, 'stage', 'root-0', 'work'))).toBe(false);

      const review = await lab.job(['status', '--review', run.id]);
      expect(review.stderr).toBe('');
      expect(review.code).toBe(0);
      if (!WROTE.includes(point)) return;
      expect(run.stage_state).toBe('staged');
      expect(review.stdout).toContain('new.txt');
      const applied = await lab.job(['apply', run.id, '--all']);
      expect(applied.stderr).toBe('');
      expect(lab.tree()).toEqual(['new.txt', 'old.txt']);
    });
  }

  for (const point of ['released', 'running', 'exited'] as const) {
    test(`at ${point}, with an executor whose processes nothing else would end`, async () => {
      const lab = jobLab(user);
      const marker = `301.${randomBytes(4).readUInt32LE()}`;
      const running = spawnAnnouncing(lab, [
        'run',
        '--executor',
        'host',
        '--',
        'sh',
        '-c',
        `sleep ${marker} & sleep ${marker} & ${point === 'exited' ? 'exit 0' : 'wait'}`,
      ]);
      await running.reach(point);
      running.child.kill('SIGKILL');
      expect(await runsOf(lab)).toMatchObject([{ state: 'interrupted' }]);
      expect(processesWith(marker)).toEqual([]);
    });
  }

  test('a job that is refused: the directory gets its name, or goes', async () => {
    const lab = jobLab(user);
    const refused = spawnAnnouncing(lab, ['run', '--safe', '--executor', 'host', '--', 'true']);
    await refused.reach('recorded');
    refused.child.kill('SIGKILL');
    const [run] = await runsOf(lab);
    expect(run).toMatchObject({ state: 'refused' });
    expect((await lab.job(['verify', run?.id ?? ''])).code).toBe(0);
    // What a process leaves that dies before the store has the run.
    const orphan = join(lab.state, 'claimed', 'run-00000000000000000000000000.4194303.1');
    mkdirSync(orphan, { recursive: true, mode: 0o700 });
    for (const path of [join(lab.state, 'claimed'), orphan]) chownSync(path, user.uid, user.gid);
    await runsOf(lab);
    expect(existsSync(orphan)).toBe(false);
  });

  test('a second job ls changes nothing more', async () => {
    const lab = jobLab(user);
    const running = spawnAnnouncing(lab, ['run', '--', 'sh', '-c', 'echo x > new.txt']);
    await running.reach('closed');
    running.child.kill('SIGKILL');
    const first = await runsOf(lab);
    expect(await runsOf(lab)).toEqual(first);
    expect(
      (await lab.job(['events', first[0]?.id ?? '', '--json'])).stdout
        .trim()
        .split('\n')
        .map((line) => (JSON.parse(line) as { kind: string }).kind),
    ).toEqual(['run.recorded', 'run.running', 'run.taken_over', 'run.interrupted']);
  });
});
