import { spawnSync } from 'node:child_process';
import { chownSync, mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { jobLab, processesWith, runsOf, type JobLab } from '../support/job-lab.host.ts';
import { describeUsers } from '../support/users.host.ts';

const mounted: string[] = [];

afterEach(() => {
  for (const path of mounted.splice(0)) spawnSync('umount', [path]);
});

/** A state directory on a filesystem of its own, of some KiB. */
function smallState(lab: JobLab, kib: number): void {
  const path = join(lab.state, '..');
  const made = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${kib}k,mode=0700,uid=${lab.user.uid},gid=${lab.user.gid}`, 'tmpfs', path], { encoding: 'utf8' });
  if (made.status !== 0) throw new Error(made.stderr);
  mounted.push(path);
}

function fill(lab: JobLab): string {
  const path = join(lab.state, '..', 'filler');
  const piece = Buffer.alloc(4096);
  try {
    for (;;) writeFileSync(path, piece, { flag: 'a' });
  } catch {
    chownSync(path, lab.user.uid, lab.user.gid);
    return path;
  }
}

const canMount = process.getuid?.() === 0;

describeUsers('a full disk', (user) => {
  const onSmallDisk = canMount ? test : test.skip;

  onSmallDisk('no room for the record: nothing is started, and the error says where', async () => {
    const lab = jobLab(user);
    smallState(lab, 512);
    await lab.job(['ls']);
    const filler = fill(lab);
    const ended = await lab.job(['run', '--safe', '--', 'touch', 'started']);
    expect(ended.stderr).toMatch(/no space is left|ENOSPC/);
    expect(ended.stderr).not.toMatch(/fault of Proofrun/);
    expect(ended.code).toBe(203);
    rmSync(filler);
    expect((await runsOf(lab)).filter((run) => run.state === 'running')).toEqual([]);
    expect((await lab.job(['run', '--safe', '-q', '--', 'true'])).code).toBe(0);
  });

  onSmallDisk('a job that fills the stage gets the error itself; its run can be dropped, and all works again', async () => {
    const lab = jobLab(user);
    smallState(lab, 6 * 1024);
    const marker = `big-${process.pid}`;
    const ended = await lab.job(['run', '--safe', '--', 'sh', '-c', `head -c 20000000 /dev/zero > ${marker}; echo "code $?"`]);
    expect(ended.stdout).toBe('code 1\n');
    expect(ended.stderr).toMatch(/No space left on device/);
    expect(ended.stderr).not.toMatch(/fault of Proofrun/);
    expect(processesWith(marker)).toEqual([]);
    const [run] = await runsOf(lab);
    // The reserve made room for the account.
    expect(run).toMatchObject({ state: 'finished', exit_code: 0, stage_state: 'staged' });
    expect((await lab.job(['status', '--review'])).stdout).toContain('was full at the end');
    expect((await lab.job(['drop'])).code).toBe(0);
    expect((await lab.job(['run', '--safe', '-q', '--', 'true'])).code).toBe(0);
    expect(lab.tree()).toEqual([]);
  });

  test('a state directory that can not be written is an error of the store', async () => {
    const lab = jobLab(user);
    mkdirSync(join(lab.state, 'proofrun.db'), { recursive: true, mode: 0o700 });
    for (const path of [lab.state, join(lab.state, 'proofrun.db')]) chownSync(path, user.uid, user.gid);
    const ended = await lab.job(['run', '--', 'true']);
    expect(ended.code).toBe(209);
    expect(ended.stderr).toMatch(/is not a regular file/);
    expect(statSync(lab.state).isDirectory()).toBe(true);
  });
});
