import { chownSync, copyFileSync, cpSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
// @ts-expect-error -- a script without types
import { buildShim } from '../../scripts/build-shim.mjs';
import { installation, nodeFor } from '../support/job-command.host.ts';
import { jobLab, type JobLab } from '../support/job-lab.host.ts';
import { asUser, describeUsers, type Ended } from '../support/users.host.ts';

const CLONE = resolve(import.meta.dirname, '../..');

beforeAll(() => {
  const report = (buildShim as (options: { calls: boolean }) => { failed: string[] })({ calls: true });
  expect(report.failed).toEqual([]);
});

/** `job` of an installation whose shim counts its calls (test/fixtures/shim-calls.c) and dies before the one that it is told. */
class CountedJob {
  readonly lab: JobLab;
  private readonly shim: string;
  private readonly program: string;

  constructor(lab: JobLab) {
    this.lab = lab;
    const home = join(lab.base, 'installed');
    const place = join(home, 'prebuilt', `linux-${process.arch}`);
    mkdirSync(place, { recursive: true });
    const from = installation(lab.user);
    for (const name of ['dist', 'schemas']) cpSync(join(from, name), join(home, name), { recursive: true });
    copyFileSync(join(from, 'package.json'), join(home, 'package.json'));
    symlinkSync(join(from, 'node_modules'), join(home, 'node_modules'));
    this.shim = join(place, 'proofrun-shim');
    this.program = join(home, 'dist', 'job.js');
    copyFileSync(join(CLONE, 'build', 'calls', 'proofrun-shim'), this.shim);
    this.aim(0);
    chownSync(`${this.shim}.calls`, lab.user.uid, lab.user.gid);
  }

  aim(call: number): void {
    const numbers = Buffer.alloc(12);
    numbers.writeUInt32LE(call, 4);
    writeFileSync(`${this.shim}.calls`, numbers);
  }

  get calls(): readonly string[] {
    return readFileSync(`${this.shim}.calls`).subarray(12).toString('latin1').trim().split('\n');
  }

  async run(...args: readonly string[]): Promise<Ended> {
    return await asUser(this.lab.user, [nodeFor(this.lab.user), this.program, ...args], { cwd: this.lab.workspace, env: this.lab.env });
  }

  async must(...args: readonly string[]): Promise<string> {
    const ended = await this.run(...args);
    expect(ended.code, `job ${args.join(' ')}: ${ended.stderr}`).toBe(0);
    return ended.stdout;
  }

  /** Ids of checkpoints as the next command sees them; no directory is there without one. */
  async kept(): Promise<readonly string[]> {
    const listed = (JSON.parse(await this.must('checkpoint', 'list', '--json')) as readonly { readonly id: string }[]).map(({ id }) => id);
    const directory = join(this.lab.state, 'checkpoints');
    expect(existsSync(directory) ? readdirSync(directory) : []).toEqual(listed);
    return listed;
  }
}

describeUsers('the shim dies before each of its calls in turn', (user) => {
  const prepare = async (): Promise<CountedJob> => {
    const job = new CountedJob(jobLab(user));
    job.lab.write('a.txt', 'base\n');
    await job.must('run', '--safe', '-q', '--', 'sh', '-c', 'echo one >> a.txt; mkdir -p d/e; echo n > d/n; ln d/n d/e/n; ln -s n d/l; mkfifo p');
    return job;
  };

  test('while a checkpoint is made: it is whole or gone after the next command, and the stage stays', { timeout: 300_000 }, async () => {
    const job = await prepare();
    const outcomes: string[] = [];
    for (let call = 1; ; call++) {
      job.aim(call);
      const ended = await job.run('checkpoint', 'create', 'last');
      const reached = job.calls.length >= call;
      job.aim(0);
      const listed = await job.kept();
      for (const id of listed) await job.must('checkpoint', 'verify', id);
      for (const id of listed) await job.must('checkpoint', 'delete', id);
      if (!reached) {
        expect(ended.code).toBe(0);
        break;
      }
      outcomes.push(ended.code === 0 ? 'made' : 'refused');
      expect(listed).toHaveLength(ended.code === 0 ? 1 : 0);
    }
    process.stderr.write(`checkpoint create (${user.kind}): ${outcomes.length} kills\n`);
    expect(outcomes.length).toBeGreaterThan(8);
    expect(outcomes).toContain('refused');
    await job.must('apply', 'last', '--all');
    expect(job.lab.tree()).toEqual(['a.txt', 'd/', 'd/e/', 'd/e/n', 'd/l -> n', 'd/n', 'p']);
  });

  test('while one is removed: it is gone after the next command, and its fork stays whole', { timeout: 300_000 }, async () => {
    const job = await prepare();
    let kills = 0;
    for (; ; kills++) {
      await job.must('checkpoint', 'create', 'last', '--name', 'point');
      if (kills === 0) await job.must('fork', 'point', '--safe', '-q', '--name', 'forked', '--', 'sh', '-c', 'echo two >> a.txt');
      job.aim(kills + 1);
      await job.run('checkpoint', 'delete', 'point');
      const reached = job.calls.length > kills;
      job.aim(0);
      expect(await job.kept()).toEqual([]);
      if (!reached) break;
    }
    process.stderr.write(`checkpoint delete (${user.kind}): ${kills} kills\n`);
    expect(kills).toBeGreaterThan(5);
    await job.must('apply', 'forked', '--all');
    expect(readFileSync(join(job.lab.workspace, 'a.txt'), 'utf8')).toBe('base\none\ntwo\n');
  });
});
