import { appendFileSync, existsSync, lstatSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { jobLab, runsOf, untilOutput, type JobLab } from '../support/job-lab.host.ts';
import { describeUsers, type Ended } from '../support/users.host.ts';

async function done(lab: JobLab, args: readonly string[]): Promise<Ended> {
  const ended = await lab.job(args);
  expect(ended.code, `job ${args.join(' ')}: ${ended.stderr}`).toBe(0);
  return ended;
}

const sh = (script: string): readonly string[] => ['--', 'sh', '-c', script];

/** Every file below a directory with its inode. */
function inodes(directory: string): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (const entry of readdirSync(directory, { recursive: true, withFileTypes: true })) {
    if (entry.isFile()) found.set(entry.name, lstatSync(join(entry.parentPath, entry.name)).ino);
  }
  return found;
}

const bundleOf = (lab: JobLab, id: string): { readonly lineage: Readonly<Record<string, unknown>> } =>
  JSON.parse(readFileSync(join(lab.state, 'runs', id, 'run-bundle.json'), 'utf8')) as { readonly lineage: Readonly<Record<string, unknown>> };

describeUsers('a run on the staged result of another', (user) => {
  test('sees it, and applying it applies both; lineage in the bundle and in ls --tree', async () => {
    const lab = jobLab(user);
    lab.write('kept.txt', 'kept\n');
    lab.write('a.txt', 'base\n');
    lab.write('gone.txt', 'gone\n');
    lab.write('old/in.txt', 'in\n');
    await done(lab, ['run', '--safe', '-q', ...sh('echo one >> a.txt; rm gone.txt; mkdir new; echo n > new/n; rm -rf old; mkdir old; echo r > old/r')]);
    const [first] = await runsOf(lab);
    const second = await done(lab, ['run', '--safe', '--on', 'last', ...sh('cat a.txt new/n old/*; ls; echo two >> a.txt; rm new/n; echo b > new/b')]);
    expect(second.stdout).toBe('base\none\nn\nr\na.txt\nkept.txt\nnew\nold\n');
    expect(second.stderr).not.toContain('does not see');
    expect(lab.tree()).toEqual(['a.txt', 'gone.txt', 'kept.txt', 'old/', 'old/in.txt']);

    const [latest] = await runsOf(lab);
    expect(bundleOf(lab, latest?.id ?? '').lineage).toEqual({ on: first?.id, forked_from: null, unseen_stages: [] });
    expect((await done(lab, ['verify'])).code).toBe(0);
    const tree = (await done(lab, ['ls', '--tree'])).stdout.split('\n');
    expect(tree[1]).toMatch(/^run-/);
    expect(tree[2]).toMatch(/^ {2}on run-/);

    // The first stage isn't needed any more: the second has all of it.
    await done(lab, ['drop', first?.id ?? '']);
    await done(lab, ['apply', 'last', '--all']);
    expect(lab.tree()).toEqual(['a.txt', 'kept.txt', 'new/', 'new/b', 'old/', 'old/r']);
    expect(readFileSync(join(lab.workspace, 'a.txt'), 'utf8')).toBe('base\none\ntwo\n');
  });

  test('names the stages that it does not see, and not those that it starts from', async () => {
    const lab = jobLab(user);
    await done(lab, ['run', '--safe', '-q', '--name', 'other', ...sh('echo o > o')]);
    await done(lab, ['run', '--safe', '-q', '--name', 'first', ...sh('echo f > f')]);
    const [first, other] = await runsOf(lab);
    const ended = await done(lab, ['run', '--safe', '--on', 'first', ...sh('ls')]);
    expect(ended.stdout).toBe('f\n');
    expect(ended.stderr).toContain(`does not see it: ${other?.id}`);
    expect(ended.stderr).not.toContain(first?.id);
  });

  test('what came along by an apply is not called unseen, and the stages behind it are named once', async () => {
    const lab = jobLab(user);
    await done(lab, ['run', '--safe', '-q', ...sh('echo f > f')]);
    const [first] = await runsOf(lab);
    await done(lab, ['run', '--safe', '-q', '--on', 'last', ...sh('echo g > g')]);
    expect((await done(lab, ['status', '--review'])).stdout).toContain(`STARTED    on the staged result of ${first?.id}`);
    expect((await done(lab, ['apply', 'last', '--all'])).stderr).toContain(`it built on ${first?.id}, still staged`);
    expect((await done(lab, ['run', '--safe', ...sh('ls')])).stderr).not.toContain('does not see');
    // Its own stage has nothing new any more.
    await done(lab, ['drop', first?.id ?? '']);
  });

  test('what was hidden from the first run stays hidden, whatever the second asks; what the first wrote there can be read', async () => {
    const lab = jobLab(user);
    lab.write('.env', 'SECRET=1\n');
    lab.write('.env.local', 'SECRET=2\n');
    await done(lab, ['run', '--safe', '-q', ...sh('echo mine > .env; echo x > x')]);
    // Without --on the default mode shows them.
    expect((await done(lab, ['run', '-q', ...sh('cat .env .env.local')])).stdout).toBe('SECRET=1\nSECRET=2\n');
    const [, first] = await runsOf(lab);
    const on = await lab.job(['run', '-q', '--on', first?.id ?? '', ...sh('cat .env; cat .env.local')]);
    expect(on.stdout).toBe('mine\n');
    expect(on.stderr).toContain('.env.local: No such file');
    // The second may hide more: also what the first wrote.
    const narrower = await lab.job(['run', '--safe', '-q', '--on', first?.id ?? '', '--deny-read', 'x', ...sh('cat x; cat .env; ls -A')]);
    expect(narrower.stdout).toBe('');
    const refused = await lab.job(['apply', first?.id ?? '', '--all']);
    expect(refused.code).toBe(205);
    expect(refused.stderr).toContain('.env');
  });

  test('a path is held to the tree before the run that first touched it', async () => {
    const lab = jobLab(user);
    lab.write('first.txt', '1\n');
    lab.write('second.txt', '2\n');
    await done(lab, ['run', '--safe', '-q', ...sh('echo x >> first.txt')]);
    const [first] = await runsOf(lab);
    appendFileSync(join(lab.workspace, 'second.txt'), 'mine\n');
    await done(lab, ['run', '--safe', '-q', '--on', 'last', ...sh('cat second.txt; echo y >> second.txt; echo y >> first.txt')]);
    // The second run saw the change of second.txt: no conflict.
    await done(lab, ['apply', 'last', '--path', 'second.txt']);
    expect(readFileSync(join(lab.workspace, 'second.txt'), 'utf8')).toBe('2\nmine\ny\n');

    appendFileSync(join(lab.workspace, 'first.txt'), 'mine\n');
    const refused = await lab.job(['apply', 'last', '--path', 'first.txt']);
    expect(refused.code).toBe(205);
    expect(refused.stderr).toContain(`${first?.id}, which this run builds on`);
    expect(readFileSync(join(lab.workspace, 'first.txt'), 'utf8')).toBe('1\nmine\n');
  });

  test('a change between the two runs, of a path that the first touched, is a conflict of the second', async () => {
    const lab = jobLab(user);
    lab.write('a.txt', '1\n');
    await done(lab, ['run', '--safe', '-q', ...sh('echo x >> a.txt')]);
    appendFileSync(join(lab.workspace, 'a.txt'), 'mine\n');
    expect((await done(lab, ['run', '--safe', '-q', '--on', 'last', ...sh('cat a.txt; echo y > b.txt')])).stdout).toBe('1\nx\n');
    expect((await lab.job(['apply', 'last', '--all'])).code).toBe(205);
    expect(existsSync(join(lab.workspace, 'b.txt'))).toBe(false);
    await done(lab, ['apply', 'last', '--exclude', 'a.txt']);
    expect(readFileSync(join(lab.workspace, 'a.txt'), 'utf8')).toBe('1\nmine\n');
  });

  test('is refused in clear words where there is no such result', async () => {
    const lab = jobLab(user);
    const refusal = async (args: readonly string[]): Promise<string> => {
      const before = (await runsOf(lab)).length;
      const ended = await lab.job(args);
      expect(ended.code, ended.stderr).not.toBe(0);
      expect((await runsOf(lab)).length).toBe(before);
      return ended.stderr;
    };
    lab.write('sub/file', 'x');
    await done(lab, ['run', '--safe', '-q', '--', 'true']);
    expect(await refusal(['run', '--on', 'last', '--', 'true'])).toContain('it staged nothing');
    await done(lab, ['run', '--safe', '-q', '--name', 'two', ...sh('echo a > a; echo b > b')]);
    expect(await refusal(['run', '--on', 'two', '--executor', 'host', '--', 'true'])).toContain("the host executor can't start from the staged result");
    expect(await refusal(['run', '--on', 'two', '--workspace', 'sub', '--cwd', 'sub', '--', 'true'])).toContain('this job stages');
    await done(lab, ['apply', 'two', '--path', 'a']);
    expect(await refusal(['run', '--on', 'two', '--', 'true'])).toContain('a part of its stage was applied');
    await done(lab, ['apply', 'two', '--all']);
    expect(await refusal(['run', '--on', 'two', '--', 'true'])).toContain('its stage was applied: the workspace holds its result');
    await done(lab, ['run', '--safe', '-q', '--name', 'three', ...sh('echo c > c')]);
    await done(lab, ['drop', 'three']);
    expect(await refusal(['run', '--on', 'three', '--', 'true'])).toContain('its stage was dropped');
    const live = (await done(lab, ['run', '-d', ...sh('echo here; sleep 60')])).stdout.trim();
    await untilOutput(lab, live);
    expect(await refusal(['run', '--on', live, '--', 'true'])).toContain('it is running');
    await done(lab, ['kill', live]);
  });

  test('content is shared, not copied: a third run on the second has the file of the first', async () => {
    const lab = jobLab(user);
    await done(lab, ['run', '--safe', '-q', ...sh('head -c 3000000 /dev/zero > big; echo s > small')]);
    await done(lab, ['run', '--safe', '-q', '--on', 'last', ...sh('echo t >> small')]);
    await done(lab, ['run', '--safe', '-q', '--on', 'last', ...sh('echo u > other')]);
    const stages = (await runsOf(lab)).map((run) => inodes(join(lab.state, 'runs', run.id, 'stage')));
    expect(new Set(stages.map((stage) => stage.get('big'))).size).toBe(1);
    expect(new Set(stages.map((stage) => stage.get('small'))).size).toBe(2);
  });
});

describeUsers('checkpoints and forks', (user) => {
  test('create, list, show, verify, fork, fork of a fork, delete', async () => {
    const lab = jobLab(user);
    lab.write('a.txt', 'base\n');
    await done(lab, ['run', '--safe', '-q', ...sh('echo one >> a.txt; head -c 1000000 /dev/zero > big; ln -s a.txt link; chmod 700 big')]);
    const [first] = await runsOf(lab);
    const made = (await done(lab, ['checkpoint', 'create', 'last', '--name', 'start'])).stdout.trim();
    expect(made).toMatch(/^cp-/);
    expect((await done(lab, ['checkpoint', 'list'])).stdout).toMatch(/start/);
    await done(lab, ['drop', 'last']);

    expect((await done(lab, ['fork', 'start', '--safe', '-q', ...sh('cat a.txt link; echo left > side')])).stdout).toBe('base\none\nbase\none\n');
    expect((await done(lab, ['fork', made, '--safe', '-q', ...sh('ls; echo right > side; echo two >> a.txt')])).stdout).toBe('a.txt\nbig\nlink\n');
    const [right] = await runsOf(lab);
    expect(bundleOf(lab, right?.id ?? '').lineage).toEqual({ on: null, forked_from: first?.id, checkpoint: made, unseen_stages: [expect.any(String)] });
    const again = (await done(lab, ['checkpoint', 'create', right?.id ?? ''])).stdout.trim();
    expect((await done(lab, ['fork', again, '--safe', '-q', ...sh('cat side a.txt; echo three >> a.txt')])).stdout).toBe('right\nbase\none\ntwo\n');
    const shown = (await done(lab, ['checkpoint', 'show', 'start'])).stdout;
    expect(shown).toContain(right?.id);
    expect((await done(lab, ['ls', '--tree'])).stdout.match(/^ +fork run-/gm)).toHaveLength(3);

    await done(lab, ['checkpoint', 'delete', 'start']);
    expect((await lab.job(['fork', 'start', '--', 'true'])).code).toBe(206);
    await done(lab, ['checkpoint', 'verify', again]);
    await done(lab, ['apply', 'last', '--all']);
    expect(readFileSync(join(lab.workspace, 'a.txt'), 'utf8')).toBe('base\none\ntwo\nthree\n');
    expect(lstatSync(join(lab.workspace, 'big')).mode & 0o777).toBe(0o700);
    expect(lab.tree()).toEqual(['a.txt', 'big', 'link -> a.txt', 'side']);
  });

  test('verify finds any changed byte, and a changed checkpoint is not forked', async () => {
    const lab = jobLab(user);
    await done(lab, ['run', '--safe', '-q', ...sh('mkdir d; echo hello > d/f; ln -s x l; echo keep > k')]);
    const id = (await done(lab, ['checkpoint', 'create'])).stdout.trim();
    const layer = join(lab.state, 'checkpoints', id, 'root-0', 'base');
    const alterations: readonly (readonly [string, () => void])[] = [
      [join(lab.workspace, 'd/f'), () => writeFileSync(join(layer, 'd/f'), 'hellO\n')],
      [join(lab.workspace, 'd/g'), () => writeFileSync(join(layer, 'd/g'), '')],
      ['manifest.json', () => appendFileSync(join(lab.state, 'checkpoints', id, 'manifest.json'), ' ')],
    ];
    await done(lab, ['checkpoint', 'verify', id]);
    // A changed time alone shows as well.
    const { atime, mtime } = lstatSync(join(layer, 'k'));
    utimesSync(join(layer, 'k'), atime, new Date(mtime.getTime() + 1000));
    expect((await lab.job(['checkpoint', 'verify', id])).stderr).toContain(`${join(lab.workspace, 'k')}: it was altered`);
    utimesSync(join(layer, 'k'), atime, mtime);
    for (const [named, alter] of alterations) {
      alter();
      const found = await lab.job(['checkpoint', 'verify', id]);
      expect(found.code).toBe(201);
      expect(found.stderr).toContain(named);
    }
    const fork = await lab.job(['fork', id, '--', 'true']);
    expect(fork.code).toBe(201);
    expect(await runsOf(lab)).toHaveLength(1);
  });

  test('prune keeps what is referenced', async () => {
    const lab = jobLab(user);
    await done(lab, ['run', '--safe', '-q', '--name', 'root', ...sh('echo a > a')]);
    const cp = (await done(lab, ['checkpoint', 'create'])).stdout.trim();
    await done(lab, ['drop', 'last']);
    await done(lab, ['fork', cp, '--safe', '-q', ...sh('echo b > b')]);
    await done(lab, ['run', '--safe', '-q', '--on', 'last', ...sh('echo c > c')]);
    const [onto, fork] = await runsOf(lab);
    await done(lab, ['drop', fork?.id ?? '']);
    // The newest is staged: it keeps the run that it started from, which keeps the first one; the checkpoint stays too.
    expect((await done(lab, ['prune'])).stdout).toMatch(/removed 0 runs.*kept 1 with unapplied.*kept 2 that/);
    await done(lab, ['checkpoint', 'verify', cp]);
    expect((await done(lab, ['fork', cp, '--safe', '-q', ...sh('cat a')])).stdout).toBe('a\n');
    await done(lab, ['drop', 'last']);
    await done(lab, ['apply', onto?.id ?? '', '--all']);
    expect(lab.tree()).toEqual(['a', 'b', 'c']);
    // Now only the checkpoint keeps its run.
    expect((await done(lab, ['prune'])).stdout).toMatch(/removed 3 runs.*kept 1 that/);
    await done(lab, ['checkpoint', 'verify', cp]);
    expect((await done(lab, ['prune', '--checkpoints'])).stdout).toMatch(/removed 1 run and 1 checkpoint/);
    expect(await runsOf(lab)).toEqual([]);
    expect(readdirSync(join(lab.state, 'checkpoints'))).toEqual([]);
    expect(readdirSync(join(lab.state, 'runs'))).toEqual([]);
  });

  test('a checkpoint of a run that is gone still forks', async () => {
    const lab = jobLab(user);
    await done(lab, ['run', '--safe', '-q', ...sh('echo a > a')]);
    const cp = (await done(lab, ['checkpoint', 'create'])).stdout.trim();
    rmSync(join(lab.state, 'runs'), { recursive: true });
    expect((await done(lab, ['fork', cp, '--safe', '-q', ...sh('cat a')])).stdout).toBe('a\n');
  });
});

describeUsers('inspect', (user) => {
  test('shows the result, read-only, without network, and records nothing', async () => {
    const lab = jobLab(user);
    lab.write('a.txt', 'base\n');
    lab.write('gone.txt', 'x\n');
    lab.write('.env', 'SECRET\n');
    await done(lab, ['run', '--safe', '-q', ...sh('echo one >> a.txt; rm gone.txt; mkdir d; echo n > d/n; printf key > d/.env')]);
    const before = await runsOf(lab);
    const ended = await lab.job([
      'inspect',
      'last',
      ...sh('cat a.txt; ls; ls -A d; cat .env; touch here; echo x > a.txt; rm d/n; ls /sys/class/net 2>/dev/null; cat /proc/net/dev | tail -n +3; exit 3'),
    ]);
    expect(ended.code, ended.stderr).toBe(3);
    expect(ended.stdout).toMatch(/^base\none\na\.txt\nd\nn\n +lo:.*\n$/);
    expect(ended.stderr.match(/Read-only file system/g)).toHaveLength(3);
    expect(ended.stderr).toContain('.env: No such file');
    expect(await runsOf(lab)).toEqual(before);
    expect(readdirSync(join(lab.state, 'claimed'))).toEqual([]);
    expect(lab.tree()).toEqual(['.env', 'a.txt', 'gone.txt']);
    expect((await lab.job(['inspect', 'last', '--', 'no-such-program'])).code).toBe(127);
    expect((await lab.job(['inspect', 'last', '--timeout', '300ms', '--', 'sleep', '60'])).code).toBe(124);
    await done(lab, ['drop', 'last']);
    expect((await lab.job(['inspect', 'last', '--', 'true'])).code).toBe(207);
  });
});
