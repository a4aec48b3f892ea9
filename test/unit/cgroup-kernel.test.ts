import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { afterEach, describe, expect, test } from 'vitest';
import { createCgroup, detectCgroups, listCgroups, openCgroup, reapCgroups, type Cgroup } from '../../executors/native/cgroup.host.ts';
import { expectedLimits, unsupportedLimits, type CgroupLimits, type CgroupSupport } from '../../executors/native/cgroup.ts';

/** Real groups of this kernel. Below the test's own group, so that whatever limits this process limits these too. */

const support = detectCgroups();
const limits: CgroupLimits = { memoryBytes: 64 * 1024 * 1024, processes: 24, cpus: 0.5 };
const missing = unsupportedLimits(limits, support);
const ready = process.platform === 'linux' && support.places.length > 0 && missing.length === 0;
const why = missing.map(({ limit, reason }) => `${limit}: ${reason}`).join('; ') || 'no place for groups';

const MIB = 1024 * 1024;
const made: Cgroup[] = [];
const children: ChildProcess[] = [];
let count = 0;

async function make(wanted: CgroupLimits = limits, from: CgroupSupport = support): Promise<Cgroup> {
  const group = await createCgroup(from, `test-${process.pid}-${++count}`, wanted);
  made.push(group);
  return group;
}

afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  for (const group of made.splice(0)) expect(await group.remove()).toEqual([]);
});

/** Joins by itself before it executes anything, as the shim does. */
function join_(group: Cgroup, argv: readonly string[]): ChildProcess {
  const child = spawn(
    '/bin/sh',
    [
      '-c',
      'n=$1; shift; while [ $n -gt 0 ]; do echo 0 > "$1" || exit 99; shift; n=$((n-1)); done; exec "$@"',
      'sh',
      String(group.procsFiles.length),
      ...group.procsFiles,
      ...argv,
    ],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  children.push(child);
  return child;
}

async function firstLine(child: ChildProcess): Promise<string> {
  if (child.stdout === null) throw new Error('no stdout');
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  return line;
}

const alive = (group: Cgroup): readonly string[] => group.directories.map(({ directory }) => directory).filter(existsSync);

describe.skipIf(!ready)(`control groups of this machine${ready ? '' : ` (skipped: ${why})`}`, () => {
  test('limits read back as written, through the group that the process is in', async () => {
    const group = await make();
    const child = join_(group, ['/bin/sh', '-c', 'echo ready; exec sleep 600']);
    await firstLine(child);
    const facts = group.readBack(child.pid);
    const values = Object.fromEntries(facts.filter(({ name }) => name !== 'group').map(({ name, value }) => [name, value]));
    expect(values).toEqual(expectedLimits(limits, support));
    expect(values['memory_limit']).toBe(64 * MIB);
    expect(values['cpu_limit']).toBe(0.5);
    expect(facts.find(({ name }) => name === 'group')?.value).toEqual(group.directories.map(({ directory }) => directory));
    for (const { name, file, text } of facts) {
      if (name !== 'group') {
        expect([file, text]).toEqual([
          file,
          file
            .split(', ')
            .map((path) => readFileSync(path, 'utf8'))
            .join(''),
        ]);
      }
    }
    expect(group.members()).toEqual([child.pid]);
  });

  test('a process that did not join is noticed: its own groups are read, and they are others', async () => {
    const group = await make();
    const outsider = spawn('/bin/sleep', ['600']);
    children.push(outsider);
    const own = detectCgroups().places.map(({ directory }) => directory);
    // v1 root groups have no pids.max: then the read fails, which is as good.
    let outcome: unknown = 'unreadable';
    try {
      outcome = group.readBack(outsider.pid).find(({ name }) => name === 'group')?.value;
    } catch (error) {
      expect(String(error)).toMatch(/control group: read/);
    }
    expect(['unreadable', JSON.stringify(own)]).toContain(typeof outcome === 'string' ? outcome : JSON.stringify(outcome));
    expect(group.members()).toEqual([]);
  });

  test('a process that takes more memory than it may is killed by the kernel, and that is told apart from our own kill', async () => {
    const hog = await make();
    const child = join_(hog, [
      process.execPath,
      '-e',
      'const kept = []; for (let i = 0; i < 512; i++) kept.push(Buffer.alloc(1 << 20, 1)); console.log("never")',
    ]);
    const [, signal] = (await once(child, 'exit')) as [number | null, string | null];
    expect(signal).toBe('SIGKILL');
    expect(hog.peaks().oomKills).toBeGreaterThanOrEqual(1);
    expect(hog.peaks().memoryBytes ?? 64 * MIB).toBeGreaterThan(60 * MIB);
    expect(hog.peaks().memoryBytes ?? 0).toBeLessThanOrEqual(64 * MIB);

    const quiet = await make();
    const other = join_(quiet, ['/bin/sh', '-c', 'echo ready; exec sleep 600']);
    await firstLine(other);
    const exited = once(other, 'exit');
    expect(await quiet.kill()).toEqual([]);
    expect(await exited).toEqual([null, 'SIGKILL']);
    expect(quiet.peaks().oomKills).toBe(0);
  });

  test('control arm: the same program ends by itself without the limit', async () => {
    const group = await make({ processes: 64 });
    const child = join_(group, [
      process.execPath,
      '-e',
      'const kept = []; for (let i = 0; i < 512; i++) kept.push(Buffer.alloc(1 << 20, 1)); console.log("done")',
    ]);
    expect(await firstLine(child)).toBe('done');
    expect(group.peaks().memoryBytes ?? 512 * MIB).toBeGreaterThan(500 * MIB);
  });

  test('no more processes than allowed, and the refusals are counted', async () => {
    const group = await make();
    const child = join_(group, [
      '/usr/bin/perl',
      '-e',
      '$| = 1; my ($made, $refused) = (0, 0); for (1..100) { my $p = fork; if (!defined $p) { $refused++ } elsif ($p == 0) { sleep 600; exit } else { $made++ } } print "$made $refused\\n"; sleep 600',
    ]);
    expect(await firstLine(child)).toBe('23 77');
    expect(group.members().length).toBe(24);
    expect(group.peaks().processLimitHits ?? 77).toBeGreaterThanOrEqual(1);
    expect(group.peaks().processes ?? 24).toBe(24);
    expect(await group.kill()).toEqual([]);
    expect(group.members()).toEqual([]);
  });

  test('CPU time is held near the quota, and counted', async () => {
    const group = await make({ cpus: 0.2 });
    const started = performance.now();
    const child = join_(group, ['/usr/bin/perl', '-e', 'my $n = 0; while ((times)[0] + (times)[1] < 0.2) { $n++ } print "done\\n"']);
    expect(await firstLine(child)).toBe('done');
    // 0.2 s of work at a fifth of a CPU take about a second; without the quota 0.2 s.
    expect(performance.now() - started).toBeGreaterThan(600);
    await once(child, 'exit');
    expect(group.peaks().cpuTimeMs ?? 200).toBeGreaterThanOrEqual(190);
  });

  const legacyOnly: CgroupSupport = { ...support, places: support.places.filter(({ version }) => version === 1) };
  const ways = [
    { name: 'as detected', from: support },
    { name: 'v1 alone', from: legacyOnly },
  ].filter(({ from }) => from.places.length > 0);
  test.each(ways)('a fork bomb is killed and its group removed, $name', async ({ from }) => {
    const group = await make({ ...limits, cpus: 1 }, from);
    const child = join_(group, ['/usr/bin/perl', '-e', '$| = 1; print "ready\\n"; fork while 1']);
    await firstLine(child);
    expect(await group.kill()).toEqual([]);
    expect(group.members()).toEqual([]);
    expect(await group.remove()).toEqual([]);
    expect(alive(group)).toEqual([]);
  });

  test('remove kills what is left, takes the parent with it when it was the last, and may be called again', async () => {
    const [first, second] = [await make(), await make()];
    const child = join_(first, ['/bin/sh', '-c', '(setsid sleep 600 &); echo ready; exec sleep 600']);
    await firstLine(child);
    const before = first.members().length;
    expect(before).toBeGreaterThanOrEqual(2);
    expect(await first.remove()).toEqual([]);
    expect(await first.remove()).toEqual([]);
    expect(alive(first)).toEqual([]);
    expect(alive(second).length).toBe(support.places.length);
    expect(await second.remove()).toEqual([]);
    for (const { directory } of support.places) {
      // Other tests on this machine may have groups of their own.
      const parent = join(directory, 'proofrun');
      expect(existsSync(parent) ? readdirSync(parent).filter((name) => name.startsWith(`test-${process.pid}-`)) : []).toEqual([]);
    }
  });

  test('groups of dead runs are found and removed, those of live runs stay', async () => {
    const [dead, live] = [await make(), await make()];
    const child = join_(dead, ['/bin/sh', '-c', 'echo ready; exec sleep 600']);
    await firstLine(child);
    expect(listCgroups(support).map(({ id }) => id)).toEqual(expect.arrayContaining([dead.id, live.id]));
    const result = await reapCgroups(support, (id) => id !== dead.id);
    expect(result).toEqual({ removed: [dead.id], left: [] });
    expect(alive(dead)).toEqual([]);
    expect(alive(live).length).toBe(support.places.length);
  });

  test('a recorded group is opened by its directories, and only a group of a run is', async () => {
    const group = await make();
    const opened = openCgroup(group.id, JSON.parse(JSON.stringify(group.directories)) as Cgroup['directories']);
    expect(opened.readBack()).toEqual(group.readBack());
    expect(await opened.remove()).toEqual([]);
    expect(alive(group)).toEqual([]);
    expect(() => openCgroup('x', [{ version: 1, directory: '/sys/fs/cgroup/pids', controllers: ['pids'] }])).toThrow(/is not the group of a run/);
    expect(() => openCgroup('..', [])).toThrow(/is not the group of a run/);
  });

  test('a limit that the kernel refuses is an error that names the file, and nothing is left', async () => {
    const id = `test-${process.pid}-refused`;
    await expect(createCgroup(support, id, { processes: -5 })).rejects.toMatchObject({
      code: 'ERR_LAUNCH',
      message: expect.stringMatching(/write -5 to .*pids\.max: EINVAL/) as unknown,
    });
    expect(listCgroups(support).filter((group) => group.id === id)).toEqual([]);
    await expect(createCgroup(support, '../x', {})).rejects.toMatchObject({ code: 'ERR_USAGE' });
  });

  test('groups made and removed at the same time do not trip over their common parent', async () => {
    const rounds = Array.from({ length: 12 }, async (_, index) => {
      for (let round = 0; round < 5; round++) {
        const group = await createCgroup(support, `test-${process.pid}-many-${index}-${round}`, limits);
        expect(await group.remove()).toEqual([]);
      }
    });
    await Promise.all(rounds);
  });
});
