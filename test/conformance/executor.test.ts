import { createHash } from 'node:crypto';
import { chmodSync, existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { DIMENSIONS, perDimension } from '../../src/core/dimension.ts';
import type { ExecutorCapabilities } from '../../src/core/plan.ts';
import type { Executor } from '../../src/executor/executor.ts';
import { locateShim } from '../../executors/shim/locate.host.ts';
import { deriveObservations } from '../../src/evidence/index.ts';
import { REQUIREMENTS, type Requirement, type RequirementId } from '../../src/executor/conformance.ts';
import { prepareStage, readChangeSet } from '../../src/stage/index.ts';
import { BACKENDS, Bench, REQUIRED, collect, lineReader, type Backend } from './backends.host.ts';

const NODE = process.execPath;
const sh = (script: string): readonly [string, ...string[]] => ['/bin/sh', '-c', script];

/** What a requirement means, tried on one executor. */
const cases = new Map<string, (bench: Bench) => Promise<void>>();
function requirement(id: RequirementId, attempt: (bench: Bench) => Promise<void>): void {
  if (cases.has(id)) throw new Error(`${id} has two tests`);
  cases.set(id, attempt);
}

requirement('REQ-01', async ({ executor, capabilities }) => {
  const answer = await executor.probe();
  expect(answer.executor).toBe(executor.id);
  expect(answer).toEqual(capabilities);
  if (!answer.available) expect(answer.reason).toMatch(/./);
});

requirement('REQ-02', async (bench) => {
  const session = await bench.launch(['/bin/true']);
  const count = session.receipts.length;
  const receipts = new Set(session.receipts.filter(({ phase }) => phase === 'gate').map(({ id }) => id));
  for (const { id, phase } of session.requirements) if (phase === 'gate') expect(receipts).toContain(id);
  await session.release();
  expect(session.receipts.length).toBe(count);
  await session.exited;
});

requirement('REQ-03', async (bench) => {
  const session = await bench.launch(sh('echo ran; echo ran > here'));
  let seen = false;
  session.stdout?.on('data', () => (seen = true));
  // Another whole run takes longer than a command that had started would need.
  expect((await bench.run(['/bin/true'])).ending).toEqual({ kind: 'exit', code: 0 });
  expect(seen).toBe(false);
  expect(existsSync(join(bench.workspace, 'here'))).toBe(false);
  await session.release();
  await session.exited;
  await session.close();
  expect(seen).toBe(true);
});

requirement('REQ-04', async (bench) => {
  const session = await bench.launch(sh('echo started'));
  const output = collect(session.stdout);
  await session.release();
  await expect(session.release()).rejects.toThrow();
  await session.exited;
  await expect(session.release()).rejects.toThrow();
  await session.close();
  expect((await output).toString()).toBe('started\n');
});

requirement('REQ-05', async (bench) => {
  for (const code of [0, 1, 7, 124, 126, 127, 200, 255]) {
    expect((await bench.run(sh(`exit ${code}`))).ending).toEqual({ kind: 'exit', code });
  }
});

requirement('REQ-06', async (bench) => {
  for (const name of ['SIGTERM', 'SIGKILL', 'SIGSEGV', 'SIGHUP'] as const) {
    expect((await bench.run(sh(`kill -${name.slice(3)} $$`))).ending).toEqual({ kind: 'signal', signal: name, number: constants.signals[name] });
  }
});

const AWKWARD = [
  '',
  ' ',
  'a\nb',
  '\n',
  '-n',
  '--',
  "it's",
  '"',
  '$HOME `id` \\',
  '\t\r\u0007\u001b[31m',
  'ü ß 漢字 🧪 \u202e',
  '\u{10ffff}',
  'x'.repeat(100 * 1024),
];

requirement('REQ-07', async (bench) => {
  const { stdout, ending } = await bench.run([NODE, '-e', 'process.stdout.write(JSON.stringify(process.argv.slice(1)))', '--', ...AWKWARD]);
  expect(ending).toEqual({ kind: 'exit', code: 0 });
  expect(JSON.parse(stdout.toString())).toEqual(AWKWARD);
});

requirement('REQ-08', async (bench) => {
  const values = Object.fromEntries(AWKWARD.map((value, index) => [`V${index}`, value]));
  const environment = { ...values, PATH: '/usr/bin:/bin', 'odd.name-with=': 'a=b', LD_PRELOAD: '' };
  const { stdout } = await bench.run(['/bin/cat', '/proc/self/environ'], { exactEnv: environment });
  const expected = Object.entries(environment).map(([name, value]) => `${name}=${value}`);
  expect(stdout.toString().split('\0').slice(0, -1).sort()).toEqual(expected.sort());

  const empty = await bench.run(['/bin/cat', '/proc/self/environ'], { exactEnv: {} });
  expect(empty.stdout.toString()).toBe('');
});

requirement('REQ-09', async (bench) => {
  expect((await bench.run(['/bin/pwd', '-P'], { cwd: 'sub' })).stdout.toString()).toBe(`${join(bench.workspace, 'sub')}\n`);
});

requirement('REQ-10', async (bench) => {
  for (const program of ['no-such-program-here', '/no/such/program', './missing']) {
    const { ending, stdout } = await bench.run([program]);
    expect([program, ending, stdout.length]).toEqual([program, { kind: 'not_found', errno: 'ENOENT' }, 0]);
  }
});

requirement('REQ-11', async (bench) => {
  writeFileSync(join(bench.workspace, 'plain'), 'text\n');
  chmodSync(join(bench.workspace, 'plain'), 0o644);
  for (const program of ['./plain', './sub']) {
    expect([program, (await bench.run([program])).ending]).toEqual([program, { kind: 'not_executable', errno: 'EACCES' }]);
  }
});

requirement('REQ-12', async (bench) => {
  const script =
    'const all = Buffer.from(Array.from({ length: 256 }, (_, i) => i)); process.stdout.write(all); process.stderr.write(Buffer.from(all).reverse())';
  const { stdout, stderr } = await bench.run([NODE, '-e', script]);
  const all = Array.from({ length: 256 }, (_, index) => index);
  expect([...stdout]).toEqual(all);
  expect([...stderr]).toEqual(all.toReversed());
});

/** Writes 32 MiB in a child of its own and says on standard error when that has made no progress for half a second, or has ended. */
const WRITER = `
  pipe(my $progress, my $done) or die; $| = 1;
  if (!fork) {
    close $progress; my $part = 'x' x 65536;
    for my $count (1..512) {
      my $sent = 0;
      while ($sent < 65536) { my $wrote = syswrite STDOUT, $part, 65536 - $sent, $sent; defined $wrote or die; $sent += $wrote }
      syswrite $done, '.' if $count % 16 == 0;
    }
    exit;
  }
  close $done; my ($mebibytes, $said) = (0, 0);
  for (;;) {
    my $set = ''; vec($set, fileno $progress, 1) = 1;
    if (!select $set, undef, undef, 0.5) { print STDERR "stuck $mebibytes\n" unless $said++; next }
    sysread($progress, my $dot, 1) or last; $mebibytes++;
  }
  wait; print STDERR "end $mebibytes\n"`;

requirement('REQ-13', async (bench) => {
  const session = await bench.launch(['/usr/bin/perl', '-e', WRITER]);
  const reports = lineReader(session.stderr);
  await session.release();
  // Nobody reads standard output yet.
  const [state, mebibytes] = (await reports.next()).split(' ');
  expect([state, Number(mebibytes) < 8]).toEqual(['stuck', true]);
  expect(session.stdout?.readableLength ?? 0).toBeLessThan(1024 * 1024);
  const output = collect(session.stdout);
  expect(await reports.next()).toBe('end 32');
  expect(await session.exited).toEqual({ kind: 'exit', code: 0 });
  await session.close();
  expect((await output).length).toBe(32 * 1024 * 1024);
});

requirement('REQ-14', async (bench) => {
  expect((await bench.run(['/usr/bin/wc', '-c'])).stdout.toString().trim()).toBe('0');
});

requirement('REQ-15', async (bench) => {
  const session = await bench.launch(sh('trap "echo caught; exit 5" USR1; trap "echo again" USR2; echo ready; while :; do sleep 0.05; done'));
  const lines = lineReader(session.stdout);
  await session.release();
  expect(await lines.next()).toBe('ready');
  session.signal('SIGUSR2');
  expect(await lines.next()).toBe('again');
  session.signal('SIGUSR1');
  expect(await lines.next()).toBe('caught');
  expect(await session.exited).toEqual({ kind: 'exit', code: 5 });
});

requirement('REQ-16', async (bench) => {
  const session = await bench.launch(sh('trap "" TERM HUP INT; (trap "" TERM HUP INT; echo child; sleep 600) & wait'));
  const lines = lineReader(session.stdout);
  await session.release();
  expect(await lines.next()).toBe('child');
  expect(bench.marked().length).toBeGreaterThanOrEqual(2);
  session.signal('SIGKILL');
  expect(await session.exited).toEqual({ kind: 'signal', signal: 'SIGKILL', number: 9 });
  await session.close();
  expect(bench.marked()).toEqual([]);
});

requirement('REQ-17', async (bench) => {
  for (const name of ['SIGTERM', 'SIGKILL'] as const) {
    const session = await bench.launch(sh('echo ran > killed-before-release; echo ran'));
    const output = collect(session.stdout);
    session.signal(name);
    await session.exited;
    await expect(session.release()).rejects.toThrow();
    await session.close();
    expect((await output).length).toBe(0);
    expect(existsSync(join(bench.workspace, 'killed-before-release'))).toBe(false);
    expect(bench.marked()).toEqual([]);
  }
});

requirement('REQ-18', async (bench) => {
  const session = await bench.launch(sh('echo ran'));
  const output = collect(session.stdout);
  await session.close();
  const ending = await session.exited;
  expect(ending.kind).not.toBe('exit');
  await expect(session.release()).rejects.toThrow();
  expect((await output).length).toBe(0);
  expect(bench.marked()).toEqual([]);
});

requirement('REQ-19', async (bench) => {
  const session = await bench.launch(sh('echo ready; exec sleep 600'));
  const lines = lineReader(session.stdout);
  await session.release();
  await lines.next();
  await session.close();
  expect((await session.exited).kind).not.toBe('exit');
  expect(bench.marked()).toEqual([]);
});

requirement('REQ-20', async (bench) => {
  // Something is left to be killed: a second closing would have nothing to tell of it.
  const session = await bench.launch(sh('sleep 600 & echo $!'));
  const lines = lineReader(session.stdout);
  await session.release();
  await lines.next();
  await session.exited;
  const [first, second] = await Promise.all([session.close(), session.close()]);
  expect(first.killed.length).toBe(1);
  expect(second).toEqual(first);
  expect(await session.close()).toEqual(first);
});

requirement('REQ-21', async (bench) => {
  const session = await bench.launch(
    sh('(trap "" HUP TERM INT QUIT; sleep 600) & stopped=$!; (sleep 600) & kill -STOP $!; (sleep 600 > /dev/null 2>&1 &) ; echo ready'),
  );
  const lines = lineReader(session.stdout);
  await session.release();
  await lines.next();
  expect((await session.exited).kind).toBe('exit');
  await session.close();
  expect(bench.marked()).toEqual([]);
});

requirement('REQ-22', async (bench) => {
  const session = await bench.launch(sh('(setsid sh -c "(setsid sleep 600 < /dev/null > /dev/null 2>&1 &)" &) ; setsid sleep 600 & echo ready'));
  const lines = lineReader(session.stdout);
  await session.release();
  await lines.next();
  expect((await session.exited).kind).toBe('exit');
  await session.close();
  expect(bench.marked()).toEqual([]);
});

requirement('REQ-23', async (bench) => {
  const session = await bench.launch(sh('(sleep 600) & echo mine; exit 3'));
  const output = collect(session.stdout);
  await session.release();
  expect(await session.exited).toEqual({ kind: 'exit', code: 3 });
  await session.close();
  expect((await output).toString()).toBe('mine\n');
});

requirement('REQ-24', async (bench) => {
  const started = performance.now();
  const { ending, closing, stdout } = await bench.run(sh('trap "" TERM; (trap "" TERM; sleep 600) & echo on; wait'), { wallTimeMs: 1500 });
  expect(ending).toEqual({ kind: 'timeout', afterMs: 1500 });
  expect(performance.now() - started).toBeGreaterThanOrEqual(1500);
  expect(closing.limitHits).toContain('wall_time');
  expect(stdout.toString()).toBe('on\n');
  expect(bench.marked()).toEqual([]);
  // Control: the same limit, not reached.
  const quick = await bench.run(['/bin/true'], { wallTimeMs: 600_000 });
  expect([quick.ending, quick.closing.limitHits]).toEqual([{ kind: 'exit', code: 0 }, []]);
});

requirement('REQ-25', async (bench) => {
  // ls opens the directory that it lists: number 3.
  expect((await bench.run(['/bin/ls', '/proc/self/fd'])).stdout.toString()).toBe('0\n1\n2\n3\n');
});

const descriptors = (): number => readdirSync('/proc/self/fd').length;
function children(): readonly string[] {
  return readdirSync('/proc/self/task')
    .flatMap((task) => readFileSync(`/proc/self/task/${task}/children`, 'utf8').trim().split(' '))
    .filter((pid) => pid !== '');
}

requirement('REQ-26', async (bench) => {
  await bench.run(['/bin/true']);
  const before = { descriptors: descriptors(), children: children() };
  for (let round = 0; round < 5; round++) {
    await bench.run(sh('echo some; sleep 600 & exit 1'));
    const refused = await bench.launch(['/bin/true']);
    refused.stdout?.resume();
    refused.stderr?.resume();
    await refused.close();
    await bench.run(['/no/such/program']);
  }
  // Streams of Node are closed one turn of the loop after they ended.
  await new Promise(setImmediate);
  expect(children()).toEqual(before.children);
  // A connection of an earlier run may have been closing while they were counted.
  expect(descriptors()).toBeLessThanOrEqual(before.descriptors);
});

requirement('REQ-27', async (bench) => {
  const early = new AbortController();
  early.abort();
  await expect(bench.launch(sh('echo ran'), { abort: early.signal })).rejects.toMatchObject({ code: 'ERR_LAUNCH' });
  const late = new AbortController();
  const launching = bench.launch(sh('echo ran'), { abort: late.signal });
  late.abort();
  await launching.then(
    (session) => session.close(),
    (error: unknown) => expect(error).toMatchObject({ code: 'ERR_LAUNCH' }),
  );
  expect(bench.marked()).toEqual([]);
});

/** Every name below a directory, with a digest of what is in it. */
function snapshot(directory: string): readonly string[] {
  return readdirSync(directory, { withFileTypes: true, recursive: true })
    .map((entry) => {
      const path = join(entry.parentPath, entry.name);
      return `${path} ${entry.isFile() ? createHash('sha256').update(readFileSync(path)).digest('hex') : 'other'}`;
    })
    .sort();
}
const mountsBelow = (directory: string): readonly string[] =>
  readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .filter((line) => line.includes(directory));

requirement('REQ-28', async (bench) => {
  writeFileSync(join(bench.workspace, 'kept'), 'as it was\n');
  const before = snapshot(bench.workspace);
  const request = bench.request(sh('echo more >> kept; echo new > new'));
  const session = await bench.executor.launch(request);
  session.stdout?.resume();
  session.stderr?.resume();
  await session.close();
  expect(bench.marked()).toEqual([]);
  expect(snapshot(bench.workspace)).toEqual(before);
  expect(mountsBelow(bench.root)).toEqual([]);
});

requirement('REQ-29', async (bench) => {
  const { closing } = await bench.run(['/bin/true']);
  const { observations } = closing;
  expect(observations.contract).toBe(1);
  expect(observations.executor).toBe(bench.executor.id);
  const scopes = perDimension((dimension) => observations.dimensions[dimension].scope);
  expect(observations.dimensions).toEqual(deriveObservations(observations.requirements, observations.receipts, scopes));
  for (const dimension of DIMENSIONS) {
    const { level, scope, outcomes } = observations.dimensions[dimension];
    expect([dimension, scope]).toEqual([dimension, expect.stringMatching(/./)]);
    if (level === 'enforced') {
      expect([dimension, outcomes.length > 0]).toEqual([dimension, true]);
      expect([dimension, outcomes.filter(({ status }) => status !== 'matched')]).toEqual([dimension, []]);
    }
  }
});

requirement('REQ-30', async (bench) => {
  // The command ends only when its descendant has announced itself: the end of the pipe tells.
  const session = await bench.launch(['/usr/bin/perl', '-e', '$| = 1; pipe(R, W); if (!fork) { print "$$\\n"; close W; sleep 600 } close W; <R>']);
  const lines = lineReader(session.stdout);
  await session.release();
  const pid = Number(await lines.next());
  await session.exited;
  const { killed } = await session.close();
  expect(killed).toEqual([{ pid, name: 'perl' }]);
});

requirement('REQ-31', async (bench) => {
  const results = await Promise.all(
    Array.from({ length: 6 }, async (_, index) => {
      const { stdout, ending } = await bench.run(sh('echo "$WHO in $(pwd)"; exit "$WHO"'), { env: { WHO: String(index) } });
      return [stdout.toString(), ending];
    }),
  );
  expect(results).toEqual(results.map((_, index) => [`${index} in ${bench.workspace}\n`, { kind: 'exit', code: index }]));
});

requirement('REQ-32', async (bench) => {
  await expect(bench.launch(['/bin/echo', 'a\0b'])).rejects.toMatchObject({ code: 'ERR_LAUNCH' });
  await expect(bench.launch(['/bin/echo'], { env: { BAD: 'a\0b' } })).rejects.toMatchObject({ code: 'ERR_LAUNCH' });
});

requirement('REQ-33', async (bench) => {
  let session;
  try {
    session = await bench.launch(sh('echo ran'), { cwd: 'gone' });
  } catch (error) {
    expect(error).toMatchObject({ code: 'ERR_LAUNCH' });
    return;
  }
  const output = collect(session.stdout);
  await session.release();
  expect((await session.exited).kind).toBe('launch_failed');
  await session.close();
  expect((await output).length).toBe(0);
});

requirement('REQ-34', async (bench) => {
  const total = 3 * 1024 * 1024;
  const session = await bench.launch([NODE, '-e', `require('fs').writeSync(1, 'x'.repeat(1000)); process.stdout.write('y'.repeat(${total}))`]);
  let length = 0;
  const reading = (async () => {
    for await (const part of session.stdout ?? []) {
      length += (part as Buffer).length;
      await new Promise(setImmediate);
    }
  })();
  await session.release();
  expect(await session.exited).toEqual({ kind: 'exit', code: 0 });
  await session.close();
  await reading;
  expect(length).toBe(total + 1000);
});

requirement('REQ-35', async (bench) => {
  const { stdout, stderr, ending } = await bench.run(sh('echo out > /dev/stdout; echo err > /dev/stderr; echo more | tee /dev/stderr'));
  expect([stdout.toString(), stderr.toString(), ending]).toEqual(['out\nmore\n', 'err\nmore\n', { kind: 'exit', code: 0 }]);
});

requirement('REQ-36', async (bench) => {
  writeFileSync(join(bench.workspace, 'first'), 'as it was\n');
  writeFileSync(join(bench.workspace, 'second'), 'as it was\n');
  const before = snapshot(bench.workspace);
  const { roots } = await prepareStage({ shim: locateShim(), directory: join(bench.root, 'stage'), roots: [bench.workspace], patterns: [] });
  const planned = bench.request(sh('echo more >> first; rm second; mkdir -p new/deep; echo n > new/deep/file; ln -s /etc new/link; chmod 700 sub'));
  const session = await bench.executor.launch({ ...planned, stage: roots });
  const output = Promise.all([collect(session.stdout), collect(session.stderr)]);
  await session.release();
  expect(await session.exited).toEqual({ kind: 'exit', code: 0 });
  await session.close();
  await output;
  expect(snapshot(bench.workspace)).toEqual(before);
  const { changeSet } = await readChangeSet({
    shim: locateShim(),
    roots,
    markers: process.geteuid?.() === 0 ? 'trusted' : 'user',
    hidden: [],
    applied: [],
    executes: () => undefined,
  });
  const changed = changeSet.changes.map(({ kind, path }) => `${kind} ${path}`).sort();
  expect(changed).toEqual(['added new', 'added new/deep', 'added new/deep/file', 'added new/link', 'attributes sub', 'deleted second', 'modified first']);
});

function whyNot(backend: Backend, capabilities: ExecutorCapabilities | undefined, needs: Requirement['needs']): string | undefined {
  if (backend.load === undefined) return `the ${backend.id} executor is not part of this version`;
  if (capabilities?.available !== true) return `the ${backend.id} executor is not available: ${capabilities?.reason ?? 'no reason given'}`;
  if (needs !== undefined && !capabilities.controls.includes(needs)) return `the ${backend.id} executor has no control ${needs}`;
  return undefined;
}

/** `backend requirement` to what this run found: yes, or the control that it needs and the backend never has. */
const outcomes = new Map<string, string>();

for (const backend of BACKENDS) {
  let executor: Executor | undefined;
  let capabilities: ExecutorCapabilities | undefined;
  if (backend.load !== undefined) {
    executor = await backend.load();
    capabilities = await executor.probe();
  }

  describe(`the ${backend.id} executor`, () => {
    let bench: Bench | undefined;
    beforeAll(() => {
      if (executor !== undefined && capabilities?.available === true) bench = new Bench(executor, capabilities);
    });
    afterEach(() => expect(bench?.marked() ?? []).toEqual([]));
    afterAll(() => bench?.dispose());

    for (const { id, text, needs } of REQUIREMENTS as readonly Requirement[]) {
      const reason = whyNot(backend, capabilities, needs);
      if (reason === undefined) {
        test(`${id} ${text}`, async () => {
          const attempt = cases.get(id);
          if (attempt === undefined || bench === undefined) throw new Error(`${id} has no test`);
          await attempt(bench);
          outcomes.set(`${backend.id} ${id}`, 'yes');
        });
      } else if (REQUIRED.has(backend.id) && !(needs !== undefined && backend.never(needs))) {
        test(`${id} ${text}`, () => {
          throw new Error(`REQUIRE_EXECUTORS names ${backend.id}: ${reason}`);
        });
      } else {
        if (needs !== undefined && capabilities?.available === true) outcomes.set(`${backend.id} ${id}`, `needs ${needs}`);
        test.skip(`${id} ${text} (skipped: ${reason})`);
      }
    }
  });
}

describe('the results on record, of which the capability matrix is made', () => {
  const file = new URL('results.json', import.meta.url);

  test('this run found the same', () => {
    if (process.env['RECORD_CONFORMANCE'] === '1') {
      const found = BACKENDS.map(({ id: backend }) => [
        backend,
        Object.fromEntries(REQUIREMENTS.map(({ id }) => [id, outcomes.get(`${backend} ${id}`) ?? 'not run'])),
      ]);
      writeFileSync(file, `${JSON.stringify(Object.fromEntries(found), undefined, 2)}\n`);
    }
    const recorded = JSON.parse(readFileSync(file, 'utf8')) as Record<string, Record<string, string>>;
    expect(Object.keys(recorded)).toEqual(BACKENDS.map(({ id }) => id));
    // What was not run here (no engine, a filter on the command line) says nothing.
    for (const [key, outcome] of outcomes) {
      const [backend = '', id = ''] = key.split(' ');
      expect([key, recorded[backend]?.[id], 'RECORD_CONFORMANCE=1 npx vitest run test/conformance']).toEqual([key, outcome, expect.anything()]);
    }
  });
});

describe('the list of requirements', () => {
  const ids = REQUIREMENTS.map(({ id }) => id);

  test('every requirement has a test, and every test a requirement', () => {
    expect([...cases.keys()].sort()).toEqual([...ids].sort());
  });

  test('numbers are unique and in order', () => {
    expect(ids).toEqual(ids.map((_, index) => `REQ-${String(index + 1).padStart(2, '0')}`));
  });

  test('REQUIRE_EXECUTORS names executors that this suite knows', () => {
    const known = new Set<string>([...BACKENDS.map(({ id }) => id), 'docker']);
    expect([...REQUIRED].filter((name) => !known.has(name))).toEqual([]);
  });
});
