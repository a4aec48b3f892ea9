import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { DockerFacts } from '../../executors/docker/facts.host.ts';
import { lower, type DockerLowering, type DockerNames } from '../../executors/docker/lower.ts';
import { parseMountinfo } from '../../executors/native/mountinfo.ts';
import { admit } from '../../src/admission/admit.ts';
import { CONTROLS, type ExecutorCapabilities } from '../../src/core/plan.ts';
import type { LaunchRequest } from '../../src/executor/executor.ts';
import { effectiveJob, type NativeJob } from '../support/native-job.ts';

// What the lowering makes of fixed facts. `npx vitest run test/golden/docker.test.ts -u` writes the files again: read the difference, line by line.

const CAPABILITIES: ExecutorCapabilities = {
  executor: 'docker',
  available: true,
  version: 'golden',
  user: 'user',
  controls: CONTROLS.filter((control) => control !== 'no_program'),
  network: { public: true, deny: true, selective: false },
  subprocess: { contained: true, listed: false, none: false },
  limits: { memory: true, cpus: true, processes: true, swap: true },
  cooperative: [],
  images: true,
  defaultImage: 'proofrun-base:latest',
};

const STATE = '/home/ana/.local/state/proofrun';
const RUN = `${STATE}/runs/run-01KC4Q8ZV5J4Q7W9X2N6T8R3MA`;
const WORKSPACE = '/home/ana/src/shop';
const NAMES: DockerNames = {
  nonce: '00112233445566778899aabb',
  terminal: undefined,
  execAt: { path: 0x12_3456_7890n, argv: 0x23_4567_8900n },
  runtime: undefined,
  channel: 'socket',
};

const FACTS: DockerFacts = {
  arch: 'x64',
  asRoot: false,
  job: { uid: 1000, gid: 1000, groups: [1000, 1001] },
  hostPid: 4127,
  namespaces: { mnt: 'mnt:[1]', pid: 'pid:[2]', net: 'net:[3]' },
  apart: false,
  stateToken: STATE,
  engine: {
    runtimes: ['runc', 'runsc'],
    defaultRuntime: 'runc',
    cgroupVersion: 2,
    limits: { memory: true, swap: true, cpus: true, processes: true },
    seccomp: true,
    rootless: false,
    remapped: false,
    storageDriver: 'overlay2',
    dataRoot: '/var/lib/docker',
    operatingSystem: 'Debian GNU/Linux 12',
    kernel: '6.1.0',
    name: 'build',
  },
  image: {
    id: `sha256:${'0'.repeat(64)}`,
    digests: [],
    variables: ['PATH', 'LD_PRELOAD', 'GLIBC_TUNABLES'],
    volumes: ['/data'],
    os: 'linux',
    architecture: 'amd64',
  },
  bridge: true,
  machine: {
    cgroupVersion: 2,
    hierarchies: [],
    rootType: 'overlay',
    masked: [
      { path: '/proc/acpi', directory: true },
      { path: '/proc/keys', directory: false },
      { path: '/sys/firmware', directory: true },
    ],
    readOnly: ['/proc/bus', '/proc/sys', '/proc/sysrq-trigger'],
  },
  mounts: parseMountinfo(['22 1 254:0 / / rw,relatime - ext4 /dev/vda rw', '25 22 254:16 / /home rw,nosuid,relatime - xfs /dev/vdb rw'].join('\n')),
  shim: '/opt/proofrun/proofrun-shim',
  owner: { pid: 4127, started: '99', boot: '0a0b' },
  granted: [],
  direct: [],
  caches: [],
  writeDenied: [],
  homeCopies: [],
  homeTexts: [],
  leftOut: [],
  masks: new Map([[WORKSPACE, { directories: [], whiteouts: ['.env'], shadow: { directories: [], files: [], notWritable: [] } }]]),
  hiddenPresent: [`${WORKSPACE}/.env`, '/home/ana/.ssh'],
  agentSockets: ['/run/docker.sock'],
  tcpPort: 40000,
};

function lowered(job: Partial<NativeJob>, facts: Partial<DockerFacts> = {}, names: Partial<DockerNames> = {}): DockerLowering {
  const base = effectiveJob({
    argv: ['npm', 'test', 'secret-argument'],
    workspace: WORKSPACE,
    home: '/home/ana',
    mode: 'safe',
    env: { TOKEN: 'secret-value' },
    ...job,
  });
  const admission = admit({ ...base, executor: 'docker' }, [CAPABILITIES]);
  if (admission.kind === 'refused') throw new Error(admission.refusal.reason);
  const request: LaunchRequest = {
    plan: admission.plan,
    stage: [{ root: WORKSPACE, upper: `${RUN}/stage/root-0/upper`, work: `${RUN}/stage/root-0/work`, preimage: `${RUN}/stage/root-0/preimage` }],
    scratch: `${RUN}/scratch`,
    hidden: [],
    stateDirectory: STATE,
    io: { kind: 'pipes', stdin: 'none' },
  };
  return lower(request, { ...FACTS, ...facts }, { ...NAMES, ...names });
}

function text({ install, requirements, landings, mounts }: DockerLowering): string {
  const settings = install.settings.map((one) => {
    switch (one.set) {
      case 'seccomp':
        return `seccomp ${one.program.byteLength} bytes`;
      case 'probe':
        return `probe ${one.probe.id}: ${one.probe.kind} ${one.probe.subject} ${one.probe.args.join(' ')}`.trimEnd();
      case 'rlimit':
        return `rlimit ${one.resource} ${String(one.soft)}:${String(one.hard)}`;
      default:
        return JSON.stringify(one);
    }
  });
  const owed = requirements.map(({ dimension, control, phase, id, expect }) => `${dimension} ${control} ${phase} ${id} ${JSON.stringify(expect)}`);
  return [
    '# body',
    JSON.stringify(install.body, null, 2),
    '# settings',
    ...settings,
    '# owed',
    ...owed,
    '# landings',
    ...landings.map((one) => JSON.stringify(one)),
    '# made in the home before',
    ...mounts.homeDirectories,
    '',
  ].join('\n');
}

const file = (name: string): string => join(import.meta.dirname, `${name}.txt`);

describe('the container of a plan', () => {
  test('an ordinary user, --safe, with limits and a hidden name', async () => {
    const limits = { processes: 64, openFiles: 256, memoryBytes: 256 << 20, cpus: 1.5, wallTimeMs: 60_000, tmpSizeBytes: 16 << 20 };
    await expect(text(lowered({ limits }))).toMatchFileSnapshot(file('docker-user-safe'));
  });

  test('root in a workspace of somebody else, default mode, public network, a grant and a direct share, runsc over attach', async () => {
    const shares = {
      granted: [
        { path: '/srv/data', directory: true },
        { path: '/srv/one', directory: false },
      ],
      direct: [{ path: `${WORKSPACE}/dist`, directory: true }],
    };
    const names = { runtime: 'runsc', channel: 'attach', terminal: { rows: 24, columns: 80 } } as const;
    const root = lowered({ mode: 'default', network: 'public' }, { ...shares, asRoot: true, engine: { ...FACTS.engine, remapped: true } }, names);
    await expect(text(root)).toMatchFileSnapshot(file('docker-root-public'));
  });

  test('nothing of the job reaches the engine: command, environment and its values go over the channel', () => {
    const body = JSON.stringify(lowered({}).install.body);
    expect(body).not.toMatch(/secret-argument|secret-value|npm/);
  });

  test('nothing of the image reaches the shim', () => {
    const { body } = lowered({}).install;
    expect([...body.Env]).toEqual(['GLIBC_TUNABLES', 'LD_PRELOAD', 'PATH']);
    expect(body.HostConfig.Tmpfs).toHaveProperty('/data');
  });

  test.each([['/home/ana/a,b'], ['/home/ana/a:b'], ['/home/ana/a\\b'], ['/home/ana/"a"']])(
    'a workspace whose path ends a mount option is refused: %s',
    (workspace) => {
      const base = effectiveJob({ argv: ['true'], workspace, home: '/home/ana', mode: 'safe' });
      const admission = admit({ ...base, executor: 'docker' }, [CAPABILITIES]);
      if (admission.kind === 'refused') throw new Error('refused');
      const request = {
        plan: admission.plan,
        stage: [{ root: workspace, upper: `${RUN}/u`, work: `${RUN}/w`, preimage: `${RUN}/p` }],
        scratch: `${RUN}/scratch`,
        hidden: [],
        stateDirectory: STATE,
        io: { kind: 'pipes', stdin: 'none' },
      } as const;
      expect(() => lower(request, FACTS, NAMES)).toThrow(/can't stage/);
    },
  );
});
