import { chmodSync, chownSync, existsSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { jobLab, processesWith, runsOf } from '../support/job-lab.host.ts';
import { describeUsers } from '../support/users.host.ts';

describeUsers('job run', (user) => {
  test('the untrusted command of the manual: key unseen, /etc untouched, no network, no host pids; the change waits in the stage', async () => {
    const lab = jobLab(user);
    const canary = `CANARY-${process.pid}-${Date.now()}`;
    mkdirSync(join(lab.home, '.ssh'), { mode: 0o700 });
    writeFileSync(join(lab.home, '.ssh', 'id_ed25519'), canary);
    const script = 'cat ~/.ssh/id_ed25519; echo x > /etc/x; echo y > new.txt; curl -m 2 https://example.com; ls /proc | head';
    const ended = await lab.job(['run', '--safe', '--', 'sh', '-c', script]);
    expect(ended.code, ended.stderr).toBe(0);
    expect(ended.stdout + ended.stderr).not.toContain(canary);
    expect(existsSync('/etc/x')).toBe(false);
    expect(ended.stderr).toMatch(/\/etc\/x: Read-only file system/);
    expect(ended.stderr).toMatch(/curl: \((?:6|7|28)\)/);
    const pids = ended.stdout
      .split('\n')
      .filter((line) => /^\d+$/.test(line))
      .map(Number);
    expect(Math.max(...pids)).toBeLessThan(64);
    expect(ended.stderr).toMatch(/staged +1 file: 1 added; your tree is unchanged/);
    expect(lab.tree()).toEqual([]);

    const review = await lab.job(['status', '--review']);
    expect(review.code, review.stderr).toBe(0);
    for (const control of ['File reads', 'File writes', 'Network', 'Subprocesses', 'Credentials', 'Resources']) {
      expect(review.stdout).toMatch(new RegExp(`^${control} .* enforced `, 'm'));
    }
    expect(review.stdout).toContain('bundle verified');
    expect(review.stdout).toMatch(/^ {2}A new\.txt/m);

    const applied = await lab.job(['apply', '--path', 'new.txt']);
    expect(applied.code, applied.stderr).toBe(0);
    expect(readFileSync(join(lab.workspace, 'new.txt'), 'utf8')).toBe('y\n');
    expect(await runsOf(lab)).toMatchObject([{ state: 'finished', stage_state: 'applied' }]);
  });

  test.each([
    ['exit 0', ['true'], 0],
    ['exit 7', ['sh', '-c', 'exit 7'], 7],
    ['SIGTERM to itself', ['sh', '-c', 'kill -TERM $$'], 143],
    ['no such program', ['no-such-program-here'], 127],
    ['a program that may not be executed', ['/etc/passwd'], 126],
    ['over its time', ['--timeout', '300ms', '--', 'sleep', '60'], 124],
  ] as const)('exit code: %s', async (_name, words, code) => {
    const lab = jobLab(user);
    const ended = await lab.job(['run', '--safe', '-q', ...(words[0] === '--timeout' ? words : ['--', ...words])]);
    expect(ended.code, ended.stderr).toBe(code);
  });

  test('a time limit ends the whole tree, also what left its session', async () => {
    const lab = jobLab(user);
    const marker = `61.${process.pid}`;
    const ended = await lab.job(['run', '--safe', '--timeout', '1s', '--', 'sh', '-c', `setsid sleep ${marker} & sleep ${marker}`]);
    expect(ended.code).toBe(124);
    expect(processesWith(`sleep\0${marker}`)).toEqual([]);
    expect(await runsOf(lab)).toMatchObject([{ state: 'finished', ending: { kind: 'timeout', after_ms: 1000 } }]);
  });

  test('a process that outlives the command and holds its output does not hold the run; it is named', async () => {
    const lab = jobLab(user);
    const ended = await lab.job(['run', '--safe', '--', 'sh', '-c', 'sleep 62 & echo done']);
    expect(ended).toMatchObject({ code: 0, stdout: 'done\n' });
    const review = await lab.job(['status', '--review', '--json']);
    const account = JSON.parse(review.stdout) as { bundle: { killed: { name: string }[] } };
    // The shell's child may not have become `sleep` yet.
    expect(account.bundle.killed.map(({ name }) => name)).toEqual([expect.stringMatching(/^(?:sh|sleep)$/)]);
  });

  test('streams pass through exactly, and input arrives', async () => {
    const lab = jobLab(user);
    const ended = await lab.job(['run', '--safe', '-q', '--', 'sh', '-c', 'cat; printf "\\001\\377" >&2'], { input: 'one\ntwo' });
    expect(ended.stdout).toBe('one\ntwo');
    expect(ended.code).toBe(0);
    const logs = await lab.job(['logs']);
    expect(logs.stdout).toBe('one\ntwo');
  });

  test('a megabyte through a slow reader arrives whole, and only its ends are kept', async () => {
    const lab = jobLab(user);
    const child = lab.spawn(['run', '--safe', '-q', '--', 'sh', '-c', 'seq 1 400000'], { stdio: ['ignore', 'pipe', 'inherit'] });
    const parts: Buffer[] = [];
    for await (const part of child.stdout as AsyncIterable<Buffer>) {
      parts.push(part);
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
    const text = Buffer.concat(parts).toString();
    expect(text.length).toBe(2688895);
    expect(text.endsWith('399999\n400000\n')).toBe(true);
    const logs = await lab.job(['logs']);
    expect(logs.stdout.length).toBe(1024 * 1024);
    expect(logs.stdout.startsWith('1\n2\n3\n')).toBe(true);
    expect(logs.stdout.endsWith('399999\n400000\n')).toBe(true);
    expect(logs.stderr).toMatch(/1,640,319 bytes of stdout left out/);
  });

  test('a reader that goes away ends nothing', async () => {
    const lab = jobLab(user);
    const child = lab.spawn(['run', '--safe', '-q', '--', 'sh', '-c', 'seq 1 200000; echo end > end.txt'], { stdio: ['ignore', 'pipe', 'ignore'] });
    child.stdout?.once('data', () => child.stdout?.destroy());
    const code = await new Promise((resolve) => child.once('close', resolve));
    expect(code).toBe(0);
    expect(await runsOf(lab)).toMatchObject([{ state: 'finished', stage_state: 'staged' }]);
  });

  test('SIGINT, SIGTERM and SIGHUP reach the command; a second SIGINT ends the tree', async () => {
    for (const [signal, code] of [
      ['SIGINT', 41],
      ['SIGTERM', 42],
      ['SIGHUP', 43],
    ] as const) {
      const lab = jobLab(user);
      const child = lab.spawn(
        ['run', '--safe', '-q', '--', 'sh', '-c', 'trap "exit 41" INT; trap "exit 42" TERM; trap "exit 43" HUP; echo ready; while :; do sleep 0.05; done'],
        { stdio: ['ignore', 'pipe', 'pipe'] },
      );
      child.stdout?.once('data', () => child.kill(signal));
      expect(await new Promise((resolve) => child.once('close', resolve)), signal).toBe(code);
    }
    const lab = jobLab(user);
    const child = lab.spawn(['run', '--safe', '-q', '--', 'sh', '-c', 'trap "echo once" INT; echo ready; while :; do sleep 0.05; done'], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let interrupts = 0;
    child.stdout?.on('data', () => (interrupts += 1) < 3 && child.kill('SIGINT'));
    expect(await new Promise((resolve) => child.once('close', resolve))).toBe(137);
  });

  test('--json gives the result alone on stdout; --result, --id-file and --journal are written', async () => {
    const lab = jobLab(user);
    const ended = await lab.job(
      [
        'run',
        '--safe',
        '--json',
        '--result',
        'result.json',
        '--id-file',
        'id',
        '--journal',
        'journal',
        '--name',
        'unit',
        '--',
        'sh',
        '-c',
        'echo said; exit 5',
      ],
      { cwd: lab.base },
    );
    // The workspace would be the directory above home: name it.
    expect(ended.code).toBe(2);
    const named = await lab.job(
      [
        'run',
        '--safe',
        '--json',
        '--workspace',
        'work',
        '--result',
        'result.json',
        '--id-file',
        'id',
        '--journal',
        'journal',
        '--name',
        'unit',
        '--',
        'sh',
        '-c',
        'echo said; exit 5',
      ],
      { cwd: lab.base },
    );
    expect(named.code, named.stderr).toBe(5);
    const result = JSON.parse(named.stdout) as { run: { id: string; name: string }; exit_code: number };
    expect(result).toMatchObject({ run: { name: 'unit' }, exit_code: 5, safety: { promise: 'kept' } });
    expect(named.stderr).toBe('said\n');
    expect(JSON.parse(readFileSync(join(lab.base, 'result.json'), 'utf8'))).toEqual(result);
    expect(readFileSync(join(lab.base, 'id'), 'utf8')).toBe(`${result.run.id}\n`);
    const kinds = readFileSync(join(lab.base, 'journal'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { kind: string }).kind);
    expect(kinds).toEqual([
      'run.recorded',
      'run.launched',
      'gate.decided',
      'command.released',
      'command.ended',
      'run.closed',
      'bundle.written',
      'run.finished',
    ]);
  });

  test('-q says nothing when the command ends, and --dry-run starts nothing', async () => {
    const lab = jobLab(user);
    expect(await lab.job(['run', '--safe', '-q', '--', 'sh', '-c', 'exit 3'])).toMatchObject({ code: 3, stdout: '', stderr: '' });
    const plan = await lab.job(['run', '--safe', '--dry-run', '--', 'touch', 'started']);
    expect(plan.code, plan.stderr).toBe(0);
    expect(plan.stdout).toContain('Nothing was started.');
    expect(await runsOf(lab)).toHaveLength(1);
  });

  test('a refused job is a run with a bundle and a table of what would change it', async () => {
    const lab = jobLab(user);
    const ended = await lab.job(['run', '--safe', '--executor', 'host', '--', 'touch', 'started']);
    expect(ended.code).toBe(200);
    expect(ended.stderr).toMatch(/was refused and not started/);
    expect(ended.stderr).toMatch(/change it +job run /);
    const [run] = await runsOf(lab);
    expect(run).toMatchObject({ state: 'refused', exit_code: 200 });
    const verified = await lab.job(['verify', run?.id ?? '']);
    expect(verified.code, verified.stderr).toBe(0);
    expect(lab.tree()).toEqual([]);
  });

  test('--apply on-success applies after exit 0 and not after another; what the host would run is refused', async () => {
    const lab = jobLab(user);
    const failed = await lab.job(['run', '--safe', '--apply', 'on-success', '--', 'sh', '-c', 'echo a > a.txt; exit 1']);
    expect(failed.code).toBe(1);
    expect(lab.tree()).toEqual([]);
    const good = await lab.job(['run', '--safe', '--apply', 'on-success', '--', 'sh', '-c', 'echo b > b.txt']);
    expect(good.code, good.stderr).toBe(0);
    expect(lab.tree()).toEqual(['b.txt']);
    const hook = await lab.job(['run', '--safe', '--apply', 'on-success', '--', 'sh', '-c', 'mkdir -p .husky && echo c > .husky/pre-commit']);
    expect(hook.code).toBe(205);
    expect(hook.stderr).toContain('--allow-exec .husky/pre-commit');
    expect(lab.tree()).toEqual(['b.txt']);
  });

  test('a new run names staged work of the same workspace that it does not see', async () => {
    const lab = jobLab(user);
    await lab.job(['run', '--safe', '-q', '--', 'sh', '-c', 'echo a > a.txt']);
    const [first] = await runsOf(lab);
    const second = await lab.job(['run', '--safe', '--', 'ls']);
    expect(second.stdout).toBe('');
    expect(second.stderr).toContain(`staged and not applied, so this run does not see it: ${first?.id ?? '?'}`);
  });

  test('drop is terminal and can be repeated; apply after it is refused', async () => {
    const lab = jobLab(user);
    await lab.job(['run', '--safe', '-q', '--', 'sh', '-c', 'echo a > a.txt']);
    expect((await lab.job(['drop'])).code).toBe(0);
    expect((await lab.job(['drop'])).code).toBe(0);
    expect((await lab.job(['apply', '--all'])).code).toBe(207);
    const [run] = await runsOf(lab);
    expect(existsSync(join(lab.state, 'runs', run?.id ?? '', 'stage'))).toBe(false);
    expect((await lab.job(['status', '--review'])).code).toBe(0);
  });

  test('prune leaves unapplied stages, and takes them with --staged', async () => {
    const lab = jobLab(user);
    await lab.job(['run', '--safe', '-q', '--', 'true']);
    await lab.job(['run', '--safe', '-q', '--name', 'kept', '--', 'sh', '-c', 'echo a > a.txt']);
    const dry = await lab.job(['prune', '--dry-run']);
    expect(dry.stdout).toMatch(/would remove 1 run; kept 1 with unapplied changes/);
    expect((await lab.job(['prune'])).code).toBe(0);
    expect(await runsOf(lab)).toMatchObject([{ name: 'kept' }]);
    expect((await lab.job(['prune', '--staged'])).code).toBe(0);
    expect(await runsOf(lab)).toEqual([]);
    expect(lab.tree(join(lab.state, 'runs'))).toEqual([]);
  });

  test('files of a run are for their owner alone', async () => {
    const lab = jobLab(user);
    await lab.job(['run', '--safe', '-q', '--', 'sh', '-c', 'echo out; echo err >&2; echo a > a.txt']);
    const listing = await lab.job(['ls', '--json']);
    const [{ id }] = JSON.parse(listing.stdout) as [{ id: string }];
    const modes = ['', 'run.json', 'run-bundle.json', 'stdout.log', 'stderr.log', 'stage', 'stage/stage.json'].map((name) => [
      name,
      modeOf(join(lab.state, 'runs', id, name)),
    ]);
    expect(modes).toEqual([
      ['', 0o700],
      ['run.json', 0o600],
      ['run-bundle.json', 0o600],
      ['stdout.log', 0o600],
      ['stderr.log', 0o600],
      ['stage', 0o700],
      ['stage/stage.json', 0o600],
    ]);
  });
});

function modeOf(path: string): number {
  return statSync(path).mode & 0o777;
}

/** A state directory that others may look into. */
function openDirectory(lab: ReturnType<typeof jobLab>): void {
  mkdirSync(lab.state, { mode: 0o755 });
  chmodSync(lab.state, 0o755);
  chownSync(lab.state, lab.user.uid, lab.user.gid);
}

describeUsers('bad input has its own clear error and exit code', (user) => {
  const cases: readonly (readonly [
    name: string,
    args: readonly string[],
    code: number,
    message: RegExp,
    prepare?: (lab: ReturnType<typeof jobLab>) => void,
  ])[] = [
    [
      'an unknown key',
      ['run', 'job.yaml'],
      2,
      /job\.yaml:2.*unknown key.*colour/s,
      (lab) => lab.write('job.yaml', 'version: 1\ncolour: red\ncommand: [true]\n'),
    ],
    ['a wrong unit', ['run', '--memory', '2', '--', 'true'], 2, /--memory expects a size with a unit.*received "2"/s],
    [
      'a wrong unit in a file',
      ['run', 'job.yaml'],
      2,
      /job\.yaml:4.*wall_time/s,
      (lab) => lab.write('job.yaml', 'version: 1\ncommand: ["true"]\npermissions:\n  resources: { wall_time: 30 }\n'),
    ],
    ['contradictory flags', ['run', '--no-net', '--allow-net', 'a.example', '--', 'true'], 2, /--no-net.*--allow-net/s],
    ['a missing workspace', ['run', '--workspace', 'nowhere', '--', 'true'], 2, /workspace .*nowhere does not exist/],
    ['the workspace /', ['run', '--safe', '--workspace', '/', '--', 'true'], 2, /workspace \/ is the whole file system/],
    ['the workspace HOME', ['run', '--safe', '--workspace', '../home', '--', 'true'], 2, /is a home directory/],
    [
      'a policy file writable by others',
      ['run', '--policy', './p.yaml', '--', 'true'],
      200,
      /p\.yaml.*writable by others/s,
      (lab) => chmodSync(lab.write('p.yaml', 'version: 1\n'), 0o666),
    ],
    [
      'a policy file that is a symlink',
      ['run', '--policy', './p.yaml', '--', 'true'],
      200,
      /p\.yaml.*symbolic link/s,
      (lab) => symlinkSync(lab.write('real.yaml', 'version: 1\n'), join(lab.workspace, 'p.yaml')),
    ],
    ['an unreadable store', ['run', '--', 'true'], 209, /proofrun.*open to others/s, (lab) => openDirectory(lab)],
    ['no command', ['run'], 2, /needs .*COMMAND/],
    ['a command that does not exist', ['run', '--safe', '--', 'no-such-program-here'], 127, /not found/],
    [
      'a command that may not be executed',
      ['run', '--safe', '--', './script'],
      126,
      /could not be executed \(EACCES\)/,
      (lab) => lab.write('script', 'echo\n'),
    ],
    ['a name with a newline', ['run', '--name', 'a\nb', '--', 'true'], 2, /name 'a\\nb'/],
    ['a missing id file directory', ['run', '--id-file', 'no/where', '--', 'true'], 2, /--id-file no\/where/],
    ['a journal that is something else', ['run', '--journal', 'notes', '--', 'true'], 2, /is not a journal/, (lab) => lab.write('notes', 'dear diary\n')],
    ['-t without a terminal', ['run', '-t', '--', 'true'], 2, /-t needs a terminal/],
    ['an unknown run', ['status', 'nothing-like-it'], 206, /no run matches/],
  ];
  for (const [name, args, code, message, prepare] of cases) {
    test(name, async () => {
      const lab = jobLab(user);
      prepare?.(lab);
      const ended = await lab.job(args);
      expect(ended.stderr).toMatch(message);
      expect(ended.stderr).not.toMatch(/fault of Proofrun/);
      expect(ended.code).toBe(code);
      expect(ended.stdout).toBe('');
    });
  }

  test('a name that is not UTF-8 on the command line', async () => {
    const lab = jobLab(user);
    const ended = await lab.job(['run', '--name', '\ufffd', '--', 'true']);
    expect(ended).toMatchObject({ code: 2, stdout: '' });
    expect(ended.stderr).toMatch(/name/);
  });
});
