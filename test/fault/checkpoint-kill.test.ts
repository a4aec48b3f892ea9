import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { CHECKPOINT_POINTS, LAYER_POINTS } from '../../src/runner/points.ts';
import { jobLab, runsOf, spawnAnnouncing, untilOutput, type JobLab } from '../support/job-lab.host.ts';
import { describeUsers } from '../support/users.host.ts';

async function staged(lab: JobLab): Promise<void> {
  lab.write('a.txt', 'base\n');
  const ended = await lab.job(['run', '--safe', '-q', '--', 'sh', '-c', 'echo one >> a.txt; mkdir d; echo n > d/n']);
  expect(ended.code, ended.stderr).toBe(0);
}

/** Ids of checkpoints as the next command sees them, and the directories that are there. */
async function kept(lab: JobLab): Promise<{ readonly listed: readonly string[]; readonly directories: readonly string[] }> {
  const listed = await lab.job(['checkpoint', 'list', '--json']);
  expect(listed.code, listed.stderr).toBe(0);
  const directory = join(lab.state, 'checkpoints');
  return {
    listed: (JSON.parse(listed.stdout) as readonly { readonly id: string }[]).map(({ id }) => id),
    directories: existsSync(directory) ? readdirSync(directory) : [],
  };
}

describeUsers('kill -9 while a checkpoint is made or removed', (user) => {
  for (const point of CHECKPOINT_POINTS.slice(0, 4)) {
    test(`create, at ${point}: it is whole or gone after the next command`, async () => {
      const lab = jobLab(user);
      await staged(lab);
      const making = spawnAnnouncing(lab, ['checkpoint', 'create', 'last']);
      await making.reach(point);
      making.child.kill('SIGKILL');
      const { listed, directories } = await kept(lab);
      expect(directories).toEqual(listed);
      expect(listed).toHaveLength(point === 'checkpoint-whole' ? 1 : 0);
      for (const id of listed) expect((await lab.job(['checkpoint', 'verify', id])).code).toBe(0);
      // The stage is untouched, and can be kept again.
      expect((await lab.job(['checkpoint', 'create', 'last', '--name', 'again'])).code).toBe(0);
      expect((await lab.job(['apply', 'last', '--all'])).code).toBe(0);
      expect(lab.tree()).toEqual(['a.txt', 'd/', 'd/n']);
    });
  }

  for (const point of CHECKPOINT_POINTS.slice(4)) {
    test(`delete, at ${point}: it is gone after the next command, and its fork stays whole`, async () => {
      const lab = jobLab(user);
      await staged(lab);
      expect((await lab.job(['checkpoint', 'create', 'last', '--name', 'first'])).code).toBe(0);
      expect((await lab.job(['fork', 'first', '--safe', '-q', '--', 'sh', '-c', 'echo two >> a.txt'])).code).toBe(0);
      const removing = spawnAnnouncing(lab, ['checkpoint', 'delete', 'first']);
      await removing.reach(point);
      removing.child.kill('SIGKILL');
      expect(await kept(lab)).toEqual({ listed: [], directories: [] });
      expect((await lab.job(['apply', 'last', '--all'])).code).toBe(0);
      expect(readFileSync(join(lab.workspace, 'a.txt'), 'utf8')).toBe('base\none\ntwo\n');
    });
  }

  for (const point of CHECKPOINT_POINTS.slice(0, 4)) {
    test(`of a live run, its owner dies at ${point}: whole or gone, and the run is interrupted with its stage`, async () => {
      const lab = jobLab(user);
      lab.write('a.txt', 'base\n');
      const program =
        'C=${PROOFRUN_AGENTCTL%.sock}; echo one >> a.txt; $C state active; echo here; while d=$($C wait); do case $d in quiesce) $C state quiesced;; esac; done';
      const owner = spawnAnnouncing(lab, ['run', '--safe', '--', 'sh', '-c', program]);
      await owner.reach('running');
      const going = owner.reach(point);
      const [run] = await runsOf(lab);
      await untilOutput(lab, run?.id ?? '');
      const asked = lab.job(['checkpoint', 'create', run?.id ?? '']);
      await going;
      owner.child.kill('SIGKILL');
      expect((await asked).code).toBe(207);
      const { listed, directories } = await kept(lab);
      expect(directories).toEqual(listed);
      expect(listed).toHaveLength(point === 'checkpoint-whole' ? 1 : 0);
      for (const id of listed) expect((await lab.job(['fork', id, '--safe', '-q', '--', 'cat', 'a.txt'])).stdout).toBe('base\none\n');
      expect((await runsOf(lab)).find((one) => one.id === run?.id)).toMatchObject({ state: 'interrupted', stage_state: 'staged' });
      expect(existsSync(join(lab.state, 'runs', run?.id ?? '', 'agentctl'))).toBe(false);
    });
  }
});

describeUsers('kill -9 of a run that started from a staged result', (user) => {
  for (const point of ['stage-prepared', 'running', 'closed', ...LAYER_POINTS, 'change-set'] as const) {
    test(`at ${point}: its stage holds both after the next command`, async () => {
      const lab = jobLab(user);
      await staged(lab);
      const [first] = await runsOf(lab);
      const wrote = point !== 'stage-prepared' && point !== 'running';
      const running = spawnAnnouncing(lab, [
        'run',
        '--safe',
        '--on',
        'last',
        '--',
        'sh',
        '-c',
        wrote ? 'echo two >> a.txt; rm d/n; echo m > d/m' : 'exec sleep 60',
      ]);
      await running.reach(point);
      running.child.kill('SIGKILL');
      // What it needs is its own: the first stage may go.
      await lab.job(['drop', first?.id ?? '']);
      const [run] = await runsOf(lab);
      expect(run).toMatchObject({ state: 'interrupted', stage_state: 'staged' });
      const stage = join(lab.state, 'runs', run?.id ?? '', 'stage', 'root-0');
      expect(readdirSync(stage).sort()).toEqual(['index', 'index-0', 'merged', 'preimage', 'preimage-0']);
      expect((await lab.job(['verify', run?.id ?? ''])).code).toBe(0);
      expect((await lab.job(['apply', run?.id ?? '', '--all'])).code).toBe(0);
      expect(readFileSync(join(lab.workspace, 'a.txt'), 'utf8')).toBe(wrote ? 'base\none\ntwo\n' : 'base\none\n');
      expect(lab.tree()).toEqual(['a.txt', 'd/', wrote ? 'd/m' : 'd/n']);
    });
  }
});
