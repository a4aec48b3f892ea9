import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  directoryBelow,
  parseCgroupMounts,
  parseControllers,
  parseCpuMax,
  parseFlatKeyed,
  parseLimit,
  parseMembers,
  parseMembership,
} from '../../executors/native/cgroup-files.ts';
import { createCgroup, detectCgroups, openCgroup } from '../../executors/native/cgroup.host.ts';
import { CPU_PERIOD_US, decideCgroups, expectedLimits, roundLimits, scopeArgv, unsupportedLimits, type CgroupSupport } from '../../executors/native/cgroup.ts';
import { unpackTree } from '../support/tree-file.host.ts';

const fixture = (name: string): string => unpackTree(join(import.meta.dirname, `../fixtures/cgroup/${name}.txt`));

/** What a layout means in short: usable controllers with their version, places relative to the root, why not. */
function summary(root: string, support: CgroupSupport): unknown {
  const controllers = Object.fromEntries(
    Object.entries(support.controllers).map(([name, state]) => [name, state.usable ? `v${state.version}` : state.reason.replaceAll(root, '')]),
  );
  const places = support.places.map(
    ({ directory, version, controllers: names, enable }) =>
      `v${version} ${directory.slice(root.length)} [${names.join(' ')}]${enable.length > 0 ? ` enable ${enable.join(' ')}` : ''}`,
  );
  return { layout: support.layout, places, ...controllers, swap: support.swap };
}

const everything = (): boolean => true;
const nothing = (): boolean => false;

describe('layouts', () => {
  const cases: readonly { readonly name: string; readonly who: string; readonly canWrite: (path: string) => boolean; readonly expected: unknown }[] = [
    {
      name: 'v1-root',
      who: 'root',
      canWrite: everything,
      expected: {
        layout: 'v1',
        places: ['v1 /sys/fs/cgroup/memory/user.slice [memory]', 'v1 /sys/fs/cgroup/pids [pids]', 'v1 /sys/fs/cgroup/cpu,cpuacct [cpu cpuacct]'],
        memory: 'v1',
        pids: 'v1',
        cpu: 'v1',
        swap: true,
      },
    },
    {
      name: 'v1-root',
      who: 'an ordinary user',
      canWrite: nothing,
      expected: {
        layout: 'v1',
        places: [],
        memory: '/sys/fs/cgroup/memory/user.slice can not be written by this user',
        pids: '/sys/fs/cgroup/pids can not be written by this user',
        cpu: '/sys/fs/cgroup/cpu,cpuacct can not be written by this user',
        swap: false,
      },
    },
    {
      name: 'v1-docker',
      who: 'root of a container',
      canWrite: everything,
      expected: {
        layout: 'v1',
        places: [],
        memory: '/sys/fs/cgroup/memory is mounted read-only',
        pids: '/sys/fs/cgroup/pids is mounted read-only',
        cpu: '/sys/fs/cgroup/cpu,cpuacct is mounted read-only',
        swap: false,
      },
    },
    {
      name: 'hybrid-user',
      who: 'root',
      canWrite: everything,
      expected: {
        layout: 'hybrid',
        places: [
          'v2 /sys/fs/cgroup/unified/user.slice/user-1000.slice/session-3.scope []',
          'v1 /sys/fs/cgroup/memory/user.slice/user-1000.slice/session-3.scope [memory]',
          'v1 /sys/fs/cgroup/pids/user.slice/user-1000.slice/session-3.scope [pids]',
          'v1 /sys/fs/cgroup/cpu,cpuacct/user.slice [cpu cpuacct]',
        ],
        memory: 'v1',
        pids: 'v1',
        cpu: 'v1',
        swap: true,
      },
    },
    {
      name: 'hybrid-user',
      who: 'a user with the unified directory only',
      canWrite: (path) => path.includes('/unified/'),
      expected: {
        layout: 'hybrid',
        places: [],
        memory: '/sys/fs/cgroup/memory/user.slice/user-1000.slice/session-3.scope can not be written by this user',
        pids: '/sys/fs/cgroup/pids/user.slice/user-1000.slice/session-3.scope can not be written by this user',
        cpu: '/sys/fs/cgroup/cpu,cpuacct/user.slice can not be written by this user',
        swap: false,
      },
    },
    {
      name: 'v2-user-delegated',
      who: 'the user of the subtree',
      canWrite: (path) => path.includes('user@1000.service'),
      expected: {
        layout: 'v2',
        // app.slice is nearer, but has no cpu for its children and is empty, so cpu can be enabled there.
        places: ['v2 /sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice [memory pids cpu] enable cpu'],
        memory: 'v2',
        pids: 'v2',
        cpu: 'v2',
        swap: true,
      },
    },
    {
      name: 'v2-user-delegated',
      who: 'somebody else',
      canWrite: nothing,
      expected: {
        layout: 'v2',
        places: [],
        memory: '/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/app-terminal-77.scope is not delegated to this user',
        pids: '/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/app-terminal-77.scope is not delegated to this user',
        cpu: '/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/app-terminal-77.scope is not delegated to this user',
        swap: false,
      },
    },
    {
      name: 'v2-user-session',
      who: 'a user at a login shell',
      canWrite: (path) => path.includes('user@1000.service'),
      expected: {
        layout: 'v2',
        places: [],
        memory: '/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope is not delegated to this user',
        pids: '/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope is not delegated to this user',
        cpu: '/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope is not delegated to this user',
        swap: false,
      },
    },
    {
      name: 'v2-root-systemd',
      who: 'root',
      canWrite: everything,
      expected: {
        layout: 'v2',
        // user.slice, which is empty, offers cpu too; user-0.slice does not.
        places: ['v2 /sys/fs/cgroup/user.slice [memory pids cpu] enable cpu'],
        memory: 'v2',
        pids: 'v2',
        cpu: 'v2',
        swap: false,
      },
    },
    {
      name: 'v2-bare-root',
      who: 'root',
      canWrite: everything,
      expected: { layout: 'v2', places: ['v2 /sys/fs/cgroup [memory pids cpu] enable memory pids cpu'], memory: 'v2', pids: 'v2', cpu: 'v2', swap: false },
    },
    {
      name: 'v2-container',
      who: 'root of a container',
      canWrite: everything,
      expected: {
        layout: 'v2',
        places: [],
        memory: '/sys/fs/cgroup is mounted read-only',
        pids: '/sys/fs/cgroup is mounted read-only',
        cpu: '/sys/fs/cgroup is mounted read-only',
        swap: false,
      },
    },
    {
      name: 'v2-container-writable',
      who: 'root of a container, whose only group holds processes',
      canWrite: everything,
      expected: {
        layout: 'v2',
        places: [],
        memory: 'no group above /sys/fs/cgroup that this user may write has the memory controller in cgroup.subtree_control',
        pids: 'no group above /sys/fs/cgroup that this user may write has the pids controller in cgroup.subtree_control',
        cpu: 'no group above /sys/fs/cgroup that this user may write has the cpu controller in cgroup.subtree_control',
        swap: false,
      },
    },
    {
      name: 'v2-renamed',
      who: 'a user whose paths hold spaces and colons',
      canWrite: everything,
      expected: {
        layout: 'v2',
        places: ['v2 /mnt/my groups/a:b/c d [memory]'],
        memory: 'v2',
        pids: 'the pids controller is not available below /mnt/my groups',
        cpu: 'the cpu controller is not available below /mnt/my groups',
        swap: false,
      },
    },
    {
      name: 'none',
      who: 'anybody',
      canWrite: everything,
      expected: {
        layout: 'none',
        places: [],
        memory: 'no cgroup hierarchy is mounted',
        pids: 'no cgroup hierarchy is mounted',
        cpu: 'no cgroup hierarchy is mounted',
        swap: false,
      },
    },
  ];

  test.each(cases)('$name as $who', ({ name, canWrite, expected }) => {
    const root = fixture(name);
    expect(summary(root, detectCgroups(root, { canWrite, uid: 1000 }))).toEqual(expected);
  });

  test('an empty tree is no layout, and no error', () => {
    expect(detectCgroups('/nonexistent').layout).toBe('none');
  });
});

describe('the scope of a user manager', () => {
  test('is found with what it was delegated', () => {
    const support = detectCgroups(fixture('v2-user-session'), { canWrite: nothing, uid: 1000 });
    expect(support.scope).toEqual({ program: '/usr/bin/systemd-run', environment: { XDG_RUNTIME_DIR: '/run/user/1000' }, controllers: ['memory', 'pids'] });
  });

  test('is not found for another user, nor without the manager', () => {
    expect(detectCgroups(fixture('v2-user-session'), { canWrite: nothing, uid: 1001 }).scope).toBeUndefined();
    expect(detectCgroups(fixture('v2-user-delegated'), { canWrite: nothing, uid: 1000 }).scope).toBeUndefined();
  });

  test('its argv carries the limits as properties', () => {
    const scope = { program: '/usr/bin/systemd-run', environment: {}, controllers: ['memory', 'pids', 'cpu'] as const };
    expect(scopeArgv(scope, 'run-1', { memoryBytes: 2 ** 31, processes: 256, cpus: 1.5 }, ['/bin/true', '--'])).toEqual([
      ...['/usr/bin/systemd-run', '--user', '--scope', '--quiet', '--collect', '--unit=proofrun-run-1'],
      ...['-p', 'MemoryMax=2147483648', '-p', 'MemorySwapMax=0', '-p', 'TasksMax=256', '-p', 'CPUQuota=150%', '--', '/bin/true', '--'],
    ]);
    expect(scopeArgv(scope, 'run-1', {}, ['/bin/true'])).toEqual([
      '/usr/bin/systemd-run',
      '--user',
      '--scope',
      '--quiet',
      '--collect',
      '--unit=proofrun-run-1',
      '--',
      '/bin/true',
    ]);
    expect(scopeArgv(scope, 'run-1', { cpus: 0.3333 }, [])).toContain('CPUQuota=33.33%');
  });
});

describe('a group in a v2 tree', () => {
  /** A plain directory stands for the kernel's: the files of a new group appear when their parent enables controllers. */
  function v2Tree(): { readonly root: string; readonly support: CgroupSupport; readonly group: string; readonly place: string } {
    const root = fixture('v2-user-delegated');
    const support = detectCgroups(root, { canWrite: (path) => path.includes('user@1000.service') });
    const place = join(root, 'sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice');
    const group = join(place, 'proofrun/run-1');
    mkdirSync(group, { recursive: true });
    for (const file of [
      'proofrun/cgroup.subtree_control',
      'proofrun/run-1/memory.max',
      'proofrun/run-1/memory.swap.max',
      'proofrun/run-1/pids.max',
      'proofrun/run-1/cpu.max',
      'proofrun/run-1/cgroup.procs',
    ]) {
      writeFileSync(join(place, file), '');
    }
    return { root, support, group, place };
  }

  test('reads back what was written, and what was used', () => {
    const { group } = v2Tree();
    const files = { 'memory.max': '67108864\n', 'memory.swap.max': '0\n', 'pids.max': 'max\n', 'cpu.max': '50000 100000\n' };
    for (const [file, text] of Object.entries(files)) writeFileSync(join(group, file), text);
    const opened = openCgroup('run-1', [{ version: 2, directory: group, controllers: ['memory', 'pids', 'cpu'] }]);
    expect(opened.readBack()).toEqual([
      { name: 'memory_limit', file: join(group, 'memory.max'), text: '67108864\n', value: 67108864 },
      { name: 'swap_limit', file: join(group, 'memory.swap.max'), text: '0\n', value: 0 },
      { name: 'process_limit', file: join(group, 'pids.max'), text: 'max\n', value: null },
      { name: 'cpu_limit', file: join(group, 'cpu.max'), text: '50000 100000\n', value: 0.5 },
    ]);
    expect(opened.procsFiles).toEqual([join(group, 'cgroup.procs')]);

    expect(opened.peaks()).toEqual({ memoryBytes: null, processes: null, cpuTimeMs: null, oomKills: null, processLimitHits: null });
    const used = {
      'memory.peak': '1048576\n',
      'pids.peak': '7\n',
      'cpu.stat': 'usage_usec 1234567\nuser_usec 1\n',
      'memory.events': 'low 0\nmax 9\noom 2\noom_kill 1\n',
      'pids.events': 'max 3\n',
    };
    for (const [file, text] of Object.entries(used)) writeFileSync(join(group, file), text);
    expect(opened.peaks()).toEqual({ memoryBytes: 1048576, processes: 7, cpuTimeMs: 1235, oomKills: 1, processLimitHits: 3 });
  });

  test('a file that vanished, or that says nothing known, is never a limit', () => {
    const { group } = v2Tree();
    const opened = openCgroup('run-1', [{ version: 2, directory: group, controllers: ['pids'] }]);
    writeFileSync(join(group, 'pids.max'), 'a few\n');
    expect(opened.readBack()).toEqual([{ name: 'process_limit', file: join(group, 'pids.max'), text: 'a few\n', value: 'a few\n' }]);
    expect(() => openCgroup('run-1', [{ version: 2, directory: join(group, 'gone/proofrun/run-1'), controllers: ['pids'] }]).readBack()).toThrow(
      /read .*pids\.max: ENOENT/,
    );
  });

  test('is not made where its files do not appear: the error names the file, and no file of ours is left', async () => {
    const { support, place } = v2Tree();
    await expect(createCgroup(support, 'run-2', { memoryBytes: 2 ** 30 })).rejects.toMatchObject({
      code: 'ERR_LAUNCH',
      message: expect.stringMatching(/write 1073741824 to .*run-2\/memory\.max: ENOENT/) as unknown,
    });
    expect(existsSync(join(place, 'proofrun/run-2'))).toBe(false);
    // Controllers were enabled on the way: of the place, then of the parent of all runs.
    expect(readFileSync(join(place, 'cgroup.subtree_control'), 'utf8')).toMatch(/^\+cpu/);
    expect(readFileSync(join(place, 'proofrun/cgroup.subtree_control'), 'utf8')).toMatch(/^\+cpu/);
  });
});

describe('limits', () => {
  const usable = { usable: true, version: 1 } as const;
  const full: CgroupSupport = { layout: 'v1', places: [], controllers: { memory: usable, pids: usable, cpu: usable }, swap: true, scope: undefined };

  test('a memory limit without a swap limit allows no swap, where swap is counted', () => {
    expect(expectedLimits({ memoryBytes: 2 ** 30 }, full)).toEqual({ memory_limit: 2 ** 30, swap_limit: 0 });
    expect(expectedLimits({ memoryBytes: 2 ** 30 }, { ...full, swap: false })).toEqual({ memory_limit: 2 ** 30 });
    expect(expectedLimits({ memoryBytes: 2 ** 30, swapBytes: 2 ** 20 }, full)).toEqual({ memory_limit: 2 ** 30, swap_limit: 2 ** 20 });
    expect(expectedLimits({}, full)).toEqual({});
  });

  test('what can not be limited is named with its reason', () => {
    const poor: CgroupSupport = { ...full, controllers: { ...full.controllers, cpu: { usable: false, reason: 'no cpu' } }, swap: false };
    expect(unsupportedLimits({ memoryBytes: 1, swapBytes: 1, cpus: 1 }, poor)).toEqual([
      { limit: 'cpus', reason: 'no cpu' },
      { limit: 'swapBytes', reason: 'this kernel does not count swap per group (swapaccount=1)' },
    ]);
    expect(unsupportedLimits({ memoryBytes: 1, processes: 1 }, poor)).toEqual([]);
  });

  test("rounding never gives more memory than asked, and keeps the CPU quota within the kernel's bounds", () => {
    fc.assert(
      fc.property(fc.integer({ min: 65536, max: 2 ** 45 }), fc.double({ min: 0.001, max: 512, noNaN: true }), (memoryBytes, cpus) => {
        const rounded = roundLimits({ memoryBytes, cpus }, true);
        const memory = rounded.memoryBytes ?? NaN;
        expect(memory <= memoryBytes && memoryBytes - memory < 65536 && memory % 65536 === 0).toBe(true);
        expect(rounded.cpuQuotaUs).toBeGreaterThanOrEqual(1000);
        expect(Math.abs((rounded.cpuQuotaUs ?? NaN) / CPU_PERIOD_US - Math.max(cpus, 0.01))).toBeLessThanOrEqual(0.00005001);
      }),
    );
  });
});

describe('texts', () => {
  test('limits: numbers, no limit, anything else', () => {
    const cases: readonly (readonly [string, number | null | undefined])[] = [
      ['max\n', null],
      ['-1\n', null],
      ['9223372036854771712\n', null],
      ['9223372036854710272\n', null], // 64 KiB pages
      ['0\n', 0],
      ['67108864\n', 67108864],
      ['', undefined],
      ['12k', undefined],
      ['-2', undefined],
    ];
    for (const [text, value] of cases) expect([text, parseLimit(text)]).toEqual([text, value]);
  });

  test('membership keeps colons in paths and drops the mark of a deleted group', () => {
    expect(parseMembership('4:cpu,cpuacct:/a:b\n0::/c (deleted)\nrubbish\n1:name=systemd:/\n')).toEqual([
      { controllers: ['cpu', 'cpuacct'], path: '/a:b' },
      { controllers: [], path: '/c' },
      { controllers: ['name=systemd'], path: '/' },
    ]);
  });

  test('a group outside of what is mounted has no directory', () => {
    const mount = { version: 1, controllers: ['pids'], hierarchyRoot: '/docker/x', mountPoint: '/m', readOnly: false } as const;
    expect(directoryBelow(mount, '/docker/x')).toBe('/m');
    expect(directoryBelow(mount, '/docker/x/y')).toBe('/m/y');
    expect(directoryBelow(mount, '/docker/xy')).toBeUndefined();
    expect(directoryBelow(mount, '/')).toBeUndefined();
    expect(directoryBelow({ ...mount, hierarchyRoot: '/' }, '/../elsewhere')).toBeUndefined();
    expect(directoryBelow({ ...mount, hierarchyRoot: '/..' }, '/')).toBeUndefined();
  });

  test('no bytes upset a parser, and every decision is total', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom(...Array.from('0123456789:/,.=- \n\\maxcpuroupidsw')) }), fc.string(), (text, other) => {
        for (const input of [text, other]) {
          const membership = parseMembership(input);
          const mounts = parseCgroupMounts(`1 0 0:1 / /m rw - cgroup2 x rw\n${input}`);
          for (const parse of [parseLimit, parseCpuMax, parseFlatKeyed, parseMembers, parseControllers]) parse(input);
          expect(decideCgroups({ membership, mounts, legacy: new Map(), unified: [], scope: undefined }).places).toEqual([]);
        }
      }),
    );
  });
});
