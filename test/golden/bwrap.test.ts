import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { HostFacts } from '../../executors/native/facts.host.ts';
import { lower, type LaunchNames, type NativeLowering } from '../../executors/native/lower.ts';
import { parseMountinfo } from '../../executors/native/mountinfo.ts';
import { MOUNT, RIGHT } from '../../executors/shim/protocol.ts';
import type { ExecutorCapabilities } from '../../src/core/plan.ts';
import type { Expectation } from '../../src/core/receipt.ts';
import { CONTROLS } from '../../src/core/plan.ts';
import type { LaunchRequest } from '../../src/executor/executor.ts';
import { planOf, type NativeJob } from '../support/native-job.ts';

// What the lowering makes of fixed facts. `npx vitest run test/golden/bwrap.test.ts -u` writes the files again: read the difference, line by line.

const MOUNTS = parseMountinfo(
  [
    '22 1 254:0 / / rw,relatime - ext4 /dev/vda rw',
    '23 22 0:21 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw',
    '24 22 0:6 / /dev rw,nosuid - devtmpfs devtmpfs rw',
    '25 22 254:16 / /home rw,relatime - xfs /dev/vdb rw',
  ].join('\n'),
);

function capabilities(user: 'root' | 'user'): ExecutorCapabilities {
  return {
    executor: 'native',
    available: true,
    version: 'golden',
    user,
    controls: CONTROLS,
    network: { public: true, deny: true, selective: false },
    subprocess: { contained: true, listed: true, none: true },
    limits: { memory: user === 'root', cpus: user === 'root', processes: true, swap: user === 'root' },
    cooperative: [],
  };
}

const ANA = { uid: 1000, gid: 1000, groups: [1000] };
const ROOT = { uid: 0, gid: 0, groups: [0] };

const SYSTEM: HostFacts['projected'] = {
  entries: [
    { kind: 'tree', path: '/usr', bind: false },
    { kind: 'symlink', path: '/bin', target: 'usr/bin' },
    { kind: 'symlink', path: '/lib', target: 'usr/lib' },
    { kind: 'tree', path: '/etc', bind: false },
    { kind: 'tree', path: '/home/ana/.nvm/versions/node/v20/bin', bind: false },
  ],
  skipped: [],
};

function factsOf(more: Partial<HostFacts>): HostFacts {
  return {
    arch: 'x64',
    caller: ANA,
    job: ANA,
    asRoot: false,
    hostPid: 4127,
    namespaces: { mnt: 'mnt:[1]', pid: 'pid:[2]', net: 'net:[3]' },
    inheritedFilters: 0,
    bubblewrap: '/usr/bin/bwrap',
    shim: '/opt/proofrun/proofrun-shim',
    mounts: MOUNTS,
    closedProc: ['sys', 'fs'],
    closedByBubblewrap: [],
    projected: SYSTEM,
    covers: new Map(),
    masks: new Map([['/etc', { directories: ['ssl'], whiteouts: ['shadow', 'ssl/private'], shadow: { directories: [], files: [], notWritable: [] } }]]),
    notWritable: [],
    hiddenPresent: [],
    outside: ['/mnt', '/opt'],
    agentSockets: [],
    resolverFile: undefined,
    homeCopies: [],
    homeTexts: [],
    leftOut: [],
    directShares: [],
    caches: [],
    ipv6: true,
    hostName: 'host',
    programs: undefined,
    writeDenied: [],
    ...more,
  };
}

const STATE = '/home/ana/.local/state/proofrun';
const RUN = `${STATE}/runs/run-01KC4Q8ZV5J4Q7W9X2N6T8R3MA`;
const WORKSPACE = '/home/ana/src/shop';

function requestOf(
  job: Partial<NativeJob>,
  user: 'root' | 'user',
  hidden: readonly string[] = [],
  io: LaunchRequest['io'] = { kind: 'pipes', stdin: 'none' },
): LaunchRequest {
  const plan = planOf({ argv: ['npm', 'test'], workspace: WORKSPACE, home: '/home/ana', mode: 'safe', ...job }, capabilities(user));
  return {
    plan,
    stage: [{ root: WORKSPACE, upper: `${RUN}/stage/root-0/upper`, work: `${RUN}/stage/root-0/work`, preimage: `${RUN}/stage/root-0/preimage` }],
    scratch: `${RUN}/scratch`,
    hidden,
    stateDirectory: STATE,
    io,
  };
}

const NAMES: LaunchNames = {
  nonce: '00112233445566778899aabb',
  cgroupProcs: [],
  terminal: undefined,
  execAt: { path: 0x12_3456_7890n, argv: 0x23_4567_8900n },
};

function flagsOf(table: Readonly<Record<string, number>>, bits: number): string {
  return Object.entries(table)
    .filter(([, bit]) => (bits & bit) !== 0)
    .map(([name]) => name)
    .join('+');
}

function expectation(expect: Expectation): string {
  switch (expect.kind) {
    case 'equals':
      return `= ${JSON.stringify(expect.value)}`;
    case 'differs':
      return `differs from ${JSON.stringify(expect.from)}`;
    case 'at_least':
      return `>= ${expect.value}`;
    case 'at_most':
      return `<= ${expect.value}`;
    case 'refused':
      return `refused with ${expect.errnos.join(', ')}`;
  }
}

/** One line for each operation, argument, setting and owed receipt. */
function formatLowering({ install, requirements, landings, loopbackProbe }: NativeLowering): string {
  const joins = install.cgroupProcs.map((file) => `  cgroup ${file}`);
  const operations = install.operations.map((one) => {
    const { op, ...fields } = one;
    const shown = Object.entries(fields).flatMap(([name, value]) => {
      if (name === 'argv') return [];
      if (name === 'flags' && op !== 'unshare') return [`flags ${flagsOf(MOUNT, value as number) || '-'}`];
      if (name === 'flags') return [`flags ${(value as number).toString(16)}`];
      if (name === 'mode') return [`mode ${(value as number).toString(8)}`];
      return [`${name} ${Array.isArray(value) ? value.join(' : ') : String(value)}`];
    });
    return `  ${op} ${shown.join('  ')}`.trimEnd();
  });
  const start = install.operations.find((one) => one.op === 'start');
  const words = start?.op === 'start' ? start.argv : [];
  const settings = install.settings.map((setting) => {
    switch (setting.set) {
      case 'rights':
        return `  rights ${flagsOf(RIGHT, setting.bits)}`;
      case 'seccomp':
        return `  seccomp ${setting.program.length / 8} instructions, sha256 ${createHash('sha256').update(setting.program).digest('hex').slice(0, 16)}`;
      case 'probe':
        return `  probe ${setting.probe.id}: kind ${setting.probe.kind} ${setting.probe.subject} ${setting.probe.args.join(' ')}`.trimEnd();
      case 'rlimit':
        return `  rlimit ${setting.resource} ${setting.soft}:${setting.hard}`;
      default: {
        const { set, ...fields } = setting;
        return `  ${set} ${JSON.stringify(fields)}`;
      }
    }
  });
  const owed = requirements.map((one) => `  ${one.dimension} ${one.control} ${one.phase} ${one.id} ${expectation(one.expect)}`);
  return [
    'joined by the host',
    ...joins,
    'operations of outer',
    ...operations,
    'bubblewrap',
    ...words.map((word) => `  ${word}`),
    'settings of inner',
    ...settings,
    'landings',
    ...landings.map((one) => `  ${one.id}: ${one.upper} and not ${one.host}`),
    `loopback probe: ${loopbackProbe?.id ?? 'none'}`,
    'owed receipts',
    ...owed,
    '',
  ].join('\n');
}

const LIMITS = { processes: 512, openFiles: 4096, fileSizeBytes: 1 << 30, cpuTimeMs: 600_000, wallTimeMs: 1_800_000, tmpSizeBytes: 1 << 30 };

describe('the lowering', () => {
  test('an ordinary user, --safe', async () => {
    const hidden = [`${WORKSPACE}/.env`, `${WORKSPACE}/certs/dev.key`];
    const facts = factsOf({
      hiddenPresent: hidden,
      masks: new Map([
        ...factsOf({}).masks,
        [
          WORKSPACE,
          {
            directories: ['certs', 'shared'],
            whiteouts: ['.env', 'certs/dev.key'],
            shadow: { directories: [{ path: 'shared', mode: 0o775 }], files: [{ path: 'shared/a', mode: 0o664 }], notWritable: [] },
          },
        ],
      ]),
      agentSockets: ['/run/user/1000/bus'],
    });
    const lowering = lower(requestOf({ limits: LIMITS }, 'user', hidden), facts, NAMES);
    await expect(formatLowering(lowering)).toMatchFileSnapshot(join(import.meta.dirname, 'bwrap-user-safe.txt'));
  });

  test('an ordinary user, default mode, public network, real home, a direct share and a write denial', async () => {
    const facts = factsOf({
      projected: {
        entries: [...SYSTEM.entries, { kind: 'directory', path: '/srv' }, { kind: 'tree', path: '/srv/data', bind: true }, { kind: 'file', path: '/swapfile' }],
        skipped: [],
      },
      masks: new Map([
        [
          '/home/ana',
          { directories: ['.local', '.local/state'], whiteouts: ['.local/state/proofrun'], shadow: { directories: [], files: [], notWritable: [] } },
        ],
      ]),
      directShares: [
        { path: `${WORKSPACE}/dist`, directory: true },
        { path: '/srv/log/file', directory: false },
      ],
      writeDenied: [{ path: `${WORKSPACE}/.git/hooks`, directory: true }],
      outside: [],
      closedProc: ['sys'],
    });
    const job = { mode: 'default', root: 'host', network: 'public', direct: [`${WORKSPACE}/dist`], denyWrite: [`${WORKSPACE}/.git/hooks`] } as const;
    await expect(formatLowering(lower(requestOf(job, 'user'), facts, NAMES))).toMatchFileSnapshot(join(import.meta.dirname, 'bwrap-user-default.txt'));
  });

  test('root in its own workspace, --safe, with control groups', async () => {
    const facts = factsOf({ caller: ROOT, job: ROOT, asRoot: true, closedByBubblewrap: ['sysrq-trigger', 'irq', 'bus'], inheritedFilters: 1 });
    const names = { ...NAMES, cgroupProcs: ['/sys/fs/cgroup/memory/proofrun/run/cgroup.procs', '/sys/fs/cgroup/pids/proofrun/run/cgroup.procs'] };
    const limits = { ...LIMITS, memoryBytes: 2 << 30, cpus: 2 };
    const expected = { memory_limit: 2 << 30, swap_limit: 0, process_limit: 512, cpu_limit: 2 };
    await expect(formatLowering(lower(requestOf({ limits }, 'root'), facts, names, expected))).toMatchFileSnapshot(
      join(import.meta.dirname, 'bwrap-root-safe.txt'),
    );
  });

  test('an ordinary user, a list of programs', async () => {
    const programs = { allowed: ['/usr/bin/dash', '/usr/lib64/ld-linux-x86-64.so.2'], hidden: ['/usr/bin/perl', '/usr/bin/true'], missing: [] };
    const masks = new Map([['/usr', { directories: ['bin'], whiteouts: ['bin/perl', 'bin/true'], shadow: { directories: [], files: [], notWritable: [] } }]]);
    const request = requestOf({ limits: LIMITS, programs: ['sh'] }, 'user');
    await expect(formatLowering(lower(request, factsOf({ programs, masks }), NAMES))).toMatchFileSnapshot(join(import.meta.dirname, 'bwrap-user-programs.txt'));
  });

  test('root in a workspace of somebody else, --safe, on a terminal', async () => {
    const facts = factsOf({
      caller: ROOT,
      job: { uid: 1000, gid: 1000, groups: [1000, 27] },
      asRoot: true,
      closedByBubblewrap: ['sysrq-trigger', 'irq', 'bus'],
    });
    const request = requestOf({}, 'root', [], { kind: 'terminal' });
    await expect(formatLowering(lower(request, facts, { ...NAMES, terminal: { rows: 24, columns: 80 } }))).toMatchFileSnapshot(
      join(import.meta.dirname, 'bwrap-root-for-user.txt'),
    );
  });

  test('is pure: the same facts give the same list, and the order of nothing depends on the machine', () => {
    const request = requestOf({ limits: LIMITS }, 'user');
    expect(formatLowering(lower(request, factsOf({}), NAMES))).toBe(formatLowering(lower(request, factsOf({}), NAMES)));
  });

  test('nothing of the job reaches an argument list: command, environment and paths go over the channel', () => {
    const request = requestOf({ argv: ['npm', 'test', '--secret-argument'], env: { SECRET: 'in-the-environment' } }, 'user', [`${WORKSPACE}/hidden-name`]);
    const { install } = lower(request, factsOf({}), NAMES);
    const start = install.operations.find((one) => one.op === 'start');
    const words = start?.op === 'start' ? start.argv.join(' ') : '';
    for (const text of ['--secret-argument', 'in-the-environment', 'SECRET', 'hidden-name', WORKSPACE]) expect(words).not.toContain(text);
    expect(words).toContain('--die-with-parent');
  });
});
