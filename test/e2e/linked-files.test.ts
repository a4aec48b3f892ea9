import { execFileSync } from 'node:child_process';
import { lstatSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { jobLab, runsOf, type JobLab } from '../support/job-lab.host.ts';
import { describeUsers, type Ended } from '../support/users.host.ts';

async function done(lab: JobLab, args: readonly string[]): Promise<Ended> {
  const ended = await lab.job(args);
  expect(ended.code, `job ${args.join(' ')}: ${ended.stderr}`).toBe(0);
  return ended;
}

const sh = (script: string): readonly string[] => ['--', 'sh', '-c', script];
const here = (lab: JobLab, script: string): string => execFileSync('sh', ['-ec', script], { cwd: lab.workspace, encoding: 'utf8' });

/** Names of one file each, and one file alone. */
const TREE = 'mkdir d; echo base >a; ln a b; ln a d/c; echo alone >one; ln -s target s; ln s s2';

const inodesOf = (lab: JobLab, ...names: readonly string[]): ReadonlySet<number> => new Set(names.map((name) => lstatSync(join(lab.workspace, name)).ino));

async function warningsOf(lab: JobLab): Promise<readonly string[]> {
  const [run] = await runsOf(lab);
  return (JSON.parse(readFileSync(join(lab.state, 'runs', run?.id ?? '', 'run-bundle.json'), 'utf8')) as { readonly warnings: readonly string[] }).warnings;
}

describeUsers('files of the workspace with several names', (user) => {
  const asRoot = user.kind === 'root';

  test.runIf(asRoot)('a job that writes one name has written all of them; after apply and undo they are names of one file', async () => {
    const lab = jobLab(user);
    here(lab, TREE);
    expect(
      (await done(lab, ['run', '-q', ...sh('echo more >>b; cat a d/c; mv d e; chmod 600 e/c; stat -c %a a; touch -h -d @1 s2; stat -c %Y s')])).stdout,
    ).toBe('base\nmore\nbase\nmore\n600\n1\n');
    expect(await warningsOf(lab)).toEqual([]);
    await done(lab, ['apply', 'last', '--all']);
    expect(inodesOf(lab, 'a', 'b', 'e/c').size).toBe(1);
    expect(here(lab, 'cat a b e/c; stat -c %a a')).toBe('base\nmore\nbase\nmore\nbase\nmore\n600\n');
    await done(lab, ['undo', 'last']);
    expect(inodesOf(lab, 'a', 'b', 'd/c').size).toBe(1);
    expect(here(lab, 'cat a b d/c; ls')).toBe('base\nbase\nbase\na\nb\nd\none\ns\ns2\n');
  });

  test.runIf(asRoot)('a name that the job replaced or removed is no name of it any more', async () => {
    const lab = jobLab(user);
    here(lab, TREE);
    await done(lab, ['run', '-q', ...sh('echo new >t; mv t b; rm d/c; echo more >>a')]);
    await done(lab, ['apply', 'last', '--all']);
    expect(here(lab, 'cat a b; ls d; stat -c %h a b')).toBe('base\nmore\nnew\n1\n1\n');
  });

  test.runIf(asRoot)('what is started from the stage sees all names of it too', async () => {
    const lab = jobLab(user);
    here(lab, TREE);
    await done(lab, ['run', '-q', ...sh('echo more >>b')]);
    expect((await done(lab, ['inspect', 'last', ...sh('cat d/c')])).stdout).toBe('base\nmore\n');
    expect((await done(lab, ['run', '-q', '--on', 'last', ...sh('cat d/c; echo third >>d/c; cat a')])).stdout).toBe('base\nmore\nbase\nmore\nthird\n');
    await done(lab, ['apply', 'last', '--all']);
    expect(here(lab, 'cat a b d/c | sort | uniq -c | tr -s " "')).toBe(' 3 base\n 3 more\n 3 third\n');
    expect(inodesOf(lab, 'a', 'b', 'd/c').size).toBe(1);
  });

  test.runIf(asRoot)('a name that the job could not see gets nothing of it', async () => {
    const lab = jobLab(user);
    here(lab, 'echo base >a; ln a .env; ln a b');
    await done(lab, ['run', '--safe', '-q', ...sh('echo more >>a; ls -A')]);
    await done(lab, ['apply', 'last', '--all']);
    expect(here(lab, 'cat .env; cat b')).toBe('base\nbase\nmore\n');
  });

  test.runIf(asRoot)('names that nobody came to put into the stage are told of; control arm: a run that ends by itself leaves none', async () => {
    const lab = jobLab(user);
    here(lab, TREE);
    const child = lab.spawn(['run', '-q', ...sh('echo more >>b; echo ready; sleep 60')], { stdio: ['ignore', 'pipe', 'ignore'] });
    await new Promise((resolve) => child.stdout?.once('data', resolve));
    const outer = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').trim().split(' ').map(Number);
    const shim = outer.filter((pid) => readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes('\0outer\0'));
    expect(shim).toHaveLength(1);
    for (const pid of shim) process.kill(pid, 'SIGKILL');
    await new Promise((resolve) => child.once('close', resolve));
    expect((await warningsOf(lab)).join('\n')).toContain('a changed file has other names there, which are not in the stage: they keep their content');
    await done(lab, ['run', '-q', ...sh('echo more >>b')]);
    expect(await warningsOf(lab)).toEqual([]);
  });

  test('the overlay has an index for root alone, and only where a file has several names', async () => {
    const lab = jobLab(user);
    const options = async (): Promise<string> => (await done(lab, ['run', '-q', ...sh('grep " $PWD " /proc/self/mountinfo')])).stdout;
    here(lab, 'echo x >a; mkdir d; echo y >d/b');
    expect(await options()).not.toContain('index=on');
    here(lab, 'ln a d/a');
    if (asRoot) expect(await options()).toContain('index=on');
    else expect(await options()).not.toContain('index=on');
  });
});
