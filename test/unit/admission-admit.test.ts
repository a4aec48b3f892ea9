import { describe, expect, it } from 'vitest';
import { admit } from '../../src/admission/admit.ts';
import type { Dimension } from '../../src/core/dimension.ts';
import { DIMENSIONS } from '../../src/core/dimension.ts';
import type { ExecutorCapabilities, ExecutorPlan, Refusal } from '../../src/core/plan.ts';
import { HOST, NATIVE, compose, type Scenario } from './policy-fixture.ts';

const V = 'version: 1\n';

/** An executor with images and a data path for chosen hosts. */
const DOCKER: ExecutorCapabilities = {
  ...NATIVE,
  executor: 'docker',
  images: true,
  defaultImage: 'proofrun-base:latest',
  network: { public: true, deny: true, selective: true },
};
const NATIVE_GONE: ExecutorCapabilities = {
  ...NATIVE,
  available: false,
  controls: [],
  reason: 'no bubblewrap',
  remedy: 'apt-get install bubblewrap',
  subprocess: { contained: false, listed: false, none: false },
};

async function plan(scenario: Scenario, capabilities: readonly ExecutorCapabilities[] = [NATIVE, HOST]): Promise<ExecutorPlan> {
  const admission = admit(await compose(scenario), capabilities);
  if (admission.kind === 'refused') throw new Error(`refused: ${admission.refusal.reason}`);
  return admission.plan;
}

async function refusal(scenario: Scenario, capabilities: readonly ExecutorCapabilities[] = [NATIVE, HOST]): Promise<Refusal> {
  const admission = admit(await compose(scenario), capabilities);
  if (admission.kind === 'admitted') throw new Error('admitted');
  return admission.refusal;
}

const permissions = (section: string): string => `${V}permissions:\n  ${section}\n`;

describe('under --safe', () => {
  it('plans the six dimensions that the mode states, and needs them', async () => {
    const { dimensions, needed, executor, executorReason } = await plan({ request: { mode: 'safe' } });
    expect([executor, executorReason]).toEqual(['native', 'the first that is available']);
    expect(needed).toEqual(['file_read', 'file_write', 'network', 'subprocess', 'credentials', 'resources']);
    expect(DIMENSIONS.map((dimension) => [dimension, dimensions[dimension].level, dimensions[dimension].asked])).toEqual([
      ['file_read', 'planned', 'safe'],
      ['file_write', 'planned', 'stage .'],
      ['network', 'planned', 'deny'],
      ['subprocess', 'planned', 'contained'],
      ['credentials', 'planned', '5 variables'],
      ['models', 'unsupported', '-'],
      ['tools', 'unsupported', '-'],
      ['resources', 'planned', '512 processes'],
    ]);
    expect(dimensions.file_read.controls).toEqual(['mount_namespace', 'projected_root', 'hidden_paths', 'private_home', 'kernel_files']);
    expect(dimensions.file_write.controls).toEqual(['mount_namespace', 'read_only_host', 'staged_workspace', 'private_home', 'kernel_files']);
    expect(dimensions.network.controls).toEqual(['network_namespace', 'host_sockets']);
    expect(dimensions.subprocess.controls).toEqual([
      'pid_namespace',
      'shim_is_init',
      'no_new_privs',
      'capabilities',
      'user_drop',
      'seccomp',
      'descriptors',
      'tree_killed',
    ]);
    expect(dimensions.credentials.controls).toEqual(['environment', 'agent_sockets', 'session_keyring']);
    expect(dimensions.resources.controls).toEqual(['rlimits', 'process_limit']);
  });

  it.each<readonly [string, Scenario, Dimension, string, RegExp, string, RegExp]>([
    [
      'chosen hosts',
      { request: { mode: 'safe', allowNet: ['a.example', 'b.example:22'] } },
      'network',
      '2 hosts',
      /open the network or close it, not open it for chosen hosts/,
      'job run --safe --no-net -- npm test',
      /none of the allowed hosts/,
    ],
    [
      'a list of programs',
      { request: { mode: 'safe' }, job: permissions('subprocess: { allow: [node] }') },
      'subprocess',
      '1 program',
      /can't limit which programs run/,
      'job run --safe job.yaml',
      /take job\.yaml:3 out first/,
    ],
    [
      'models',
      { request: { mode: 'safe' }, job: permissions('models: {}') },
      'models',
      'gateway',
      /no gateway to models/,
      'job run --safe --degrade models job.yaml',
      /no way to models/,
    ],
    [
      'an injected secret',
      { request: { mode: 'safe', secrets: ['T=env:T@a.example'] } },
      'credentials',
      '6 variables',
      /only a network for chosen hosts has \(T\)/,
      'job run --safe --degrade credentials -- npm test',
      /proof/,
    ],
  ])('refuses %s, with a row, its reason and one command', async (_what, scenario, dimension, needed, missing, command, givesUp) => {
    const { reason, rows } = await refusal(scenario);
    expect(reason).toMatch(/^--safe needs .*, and native can't plan it$/);
    expect(rows).toHaveLength(1);
    const [row] = rows;
    expect(row).toMatchObject({ dimension, needed, planned: 'unsupported', couldEnforce: [] });
    expect(row?.missing).toMatch(missing);
    expect(row?.change?.command).toBe(command);
    expect(row?.change?.givesUp).toMatch(givesUp);
  });

  it('refuses a limit that can not be set, by name', async () => {
    const weak = { ...NATIVE, limits: { memory: false, cpus: false, processes: true, swap: false } };
    const { rows } = await refusal({ request: { mode: 'safe', memoryBytes: 2 ** 30, cpus: 2 } }, [weak]);
    expect(rows[0]).toMatchObject({
      dimension: 'resources',
      needed: '3 limits',
      missing: 'the native executor has no memory limit, cpu limit for the whole tree here',
      change: { command: 'job run --safe --degrade resources -- npm test' },
    });
  });

  it('waives one by --degrade, and records it', async () => {
    const weak = { ...NATIVE, limits: { memory: false, cpus: false, processes: false, swap: false } };
    const result = await plan({ request: { mode: 'safe', degrade: ['resources', 'models'] } }, [weak]);
    expect(result.waived).toEqual(['resources']);
    expect(result.needed).not.toContain('resources');
    expect(result.dimensions.resources.level).toBe('unsupported');
    expect(result.warnings).toEqual(['resources is waived by --degrade resources; its level is unsupported', '--degrade models has nothing to waive']);
  });

  it.each(
    NATIVE.controls.filter(
      (control) =>
        ![
          'no_program',
          'listed_programs',
          'network_public',
          'overlay_network',
          'published_ports',
          'proxy_offered',
          'memory_limit',
          'cpu_limit',
          'wall_time',
          'tmp_size',
          'secret_injection',
          'stage_size',
        ].includes(control),
    ),
  )('refuses an executor without %s', async (control) => {
    const { rows } = await refusal({ request: { mode: 'safe' } }, [{ ...NATIVE, controls: NATIVE.controls.filter((one) => one !== control) }]);
    expect(rows.length).toBeGreaterThan(0);
    for (const row of rows) expect(row.missing).toBe(`the native executor has no ${control.replaceAll('_', ' ')}`);
  });

  it('refuses the host executor in every dimension of containment', async () => {
    const { rows } = await refusal({ request: { mode: 'safe', executor: 'host' } });
    expect(rows.map((row) => [row.dimension, row.planned])).toEqual([
      ['file_read', 'unsupported'],
      ['file_write', 'unsupported'],
      ['network', 'unsupported'],
      ['subprocess', 'unsupported'],
      ['credentials', 'cooperative'],
      ['resources', 'unsupported'],
    ]);
    expect(rows.every((row) => row.couldEnforce.includes('native') && row.change?.command === 'job run --safe --executor native -- npm test')).toBe(true);
  });
});

describe('a mode that a file asks for', () => {
  it('is named as what has to go first', async () => {
    const weak = { ...NATIVE, controls: NATIVE.controls.filter((one) => one !== 'seccomp') };
    const { rows } = await refusal({ job: `${V}mode: safe\n` }, [weak]);
    expect(rows[0]?.change).toEqual({
      command: 'job run job.yaml',
      givesUp: '--safe: what is missing is recorded as a warning and the command runs without it; take the mode out of job.yaml:2 first',
    });
    expect((await refusal({ request: { mode: 'safe' } }, [weak])).rows[0]?.change).toEqual({
      command: 'job run -- npm test',
      givesUp: '--safe: what is missing is recorded as a warning and the command runs without it',
    });
  });
});

describe('under --strict', () => {
  it('refuses what --safe could waive, and names --safe as what is given up', async () => {
    const { rows } = await refusal({ request: { mode: 'strict' }, job: permissions('models: {}') });
    expect(rows[0]?.change).toEqual({
      command: 'job run --safe --degrade models job.yaml',
      givesUp: '--strict, and the gateway: the job has no way to models',
    });
  });
});

describe('in default mode', () => {
  it('plans what can be planned; what nobody asked for is shown as not asked', async () => {
    const { dimensions, needed, warnings } = await plan({});
    expect(needed).toEqual([]);
    expect(warnings).toEqual([]);
    expect(dimensions.file_read).toMatchObject({
      level: 'planned',
      requested: false,
      asked: '-',
      controls: ['mount_namespace', 'hidden_paths', 'kernel_files'],
    });
    expect(dimensions.file_write).toMatchObject({
      level: 'planned',
      controls: ['mount_namespace', 'read_only_host', 'staged_workspace', 'private_home', 'kernel_files'],
    });
    expect(dimensions.network).toMatchObject({
      level: 'planned',
      controls: ['network_public'],
      scope: expect.stringMatching(/nothing is restricted/) as unknown,
    });
  });

  it('closes a network that it can not open for chosen hosts, and says so everywhere', async () => {
    const result = await plan({ request: { allowNet: ['a.example', 'b.example'] } });
    expect(result.job.permissions.network.kind).toBe('deny');
    expect(result.dimensions.network).toMatchObject({ level: 'planned', asked: '2 hosts: closed', controls: ['network_namespace', 'host_sockets'] });
    expect(result.dimensions.network.scope).toMatch(/^closed instead: .* none of the 2 hosts$/);
    expect(result.dimensions.network.reason).toMatch(/not open it for chosen hosts/);
    expect(result.warnings.join('\n')).toMatch(/it is closed, and the 2 hosts can't be reached/);
  });

  it('never opens a network that was restricted, on any executor', async () => {
    for (const executor of ['auto', 'native', 'docker', 'host'] as const) {
      const admission = admit(await compose({ request: { allowNet: ['a.example'], executor } }), [NATIVE, { ...DOCKER, network: NATIVE.network }, HOST]);
      if (admission.kind === 'admitted' && admission.plan.dimensions.network.controls.includes('network_public')) throw new Error(`${executor} opened it`);
    }
  });

  it('records what is missing as a warning, and runs', async () => {
    const { warnings, dimensions } = await plan({ request: { memoryBytes: 2 ** 30 } }, [{ ...NATIVE, limits: { ...NATIVE.limits, memory: false } }]);
    expect(dimensions.resources.level).toBe('unsupported');
    expect(warnings).toEqual(['resources is unsupported: the native executor has no memory limit for the whole tree here']);
  });

  it('runs on the host only when asked, and says what is missing', async () => {
    const { executor, warnings, dimensions } = await plan({ request: { executor: 'host' } });
    expect(executor).toBe('host');
    expect(dimensions.credentials.level).toBe('cooperative');
    expect(warnings.map((warning) => warning.split(' ')[0])).toEqual(['file_read', 'file_write', 'network', 'subprocess']);
  });
});

describe('choosing an executor', () => {
  it('takes the first that can plan all of it', async () => {
    const { executor, executorReason } = await plan({ request: { mode: 'safe', allowNet: ['a.example'] } }, [HOST, DOCKER, NATIVE]);
    expect([executor, executorReason]).toEqual(['docker', "native can't plan network"]);
  });

  it('asked for one that is away, another is named, in the same mode', async () => {
    const gone = { ...DOCKER, available: false, reason: 'no engine' };
    expect((await refusal({ request: { executor: 'docker' } }, [NATIVE, gone])).rows[0]?.change?.command).toBe('job run --executor native -- npm test');
    expect((await refusal({ request: { executor: 'docker', mode: 'safe' } }, [NATIVE, gone])).rows[0]?.change?.command).toBe(
      'job run --safe --executor native -- npm test',
    );
  });

  it('names the executor that could, when another was asked for', async () => {
    const { rows } = await refusal({ request: { mode: 'safe', allowNet: ['a.example'], executor: 'native' } }, [NATIVE, DOCKER]);
    expect(rows[0]).toMatchObject({ couldEnforce: ['docker'], change: { command: 'job run --safe --executor docker -- npm test' } });
  });

  it('refuses when none can run here, in every mode, with reason and remedy', async () => {
    for (const mode of ['default', 'safe'] as const) {
      const { reason, rows } = await refusal({ request: { mode } }, [NATIVE_GONE, HOST]);
      expect(reason).toBe('no executor can run here. native: no bubblewrap; apt-get install bubblewrap');
      expect(rows.map((row) => row.dimension)).toEqual(expect.arrayContaining(['file_read', 'file_write', 'network', 'subprocess']));
      expect(rows[0]?.change).toEqual({ command: 'job doctor', givesUp: 'nothing: it explains the remedy (apt-get install bubblewrap)' });
    }
  });

  it('falls back to the next that is available', async () => {
    expect((await plan({ request: { mode: 'safe' } }, [NATIVE_GONE, DOCKER])).executor).toBe('docker');
  });

  it('needs an image for one that runs images, and names how to get one', async () => {
    const bare: ExecutorCapabilities = { ...NATIVE, executor: 'docker', images: true };
    expect((await refusal({ request: { executor: 'docker' } }, [bare])).reason).toBe(
      'the docker executor needs an image, and the job names none: --image NAME, or job image build',
    );
  });

  it('says why the first was passed over', async () => {
    const absent: ExecutorCapabilities = { ...NATIVE, available: false, reason: 'no bubblewrap' };
    expect((await plan({}, [absent, DOCKER])).executorReason).toBe('native is not available: no bubblewrap');
  });

  it('needs one that runs images for an image', async () => {
    expect((await plan({ request: { image: 'node:20' } }, [NATIVE, DOCKER])).executor).toBe('docker');
    expect((await refusal({ request: { image: 'node:20' } }, [NATIVE])).reason).toBe('the image node:20 was asked for, and no executor here runs images');
    expect((await refusal({ request: { image: 'node:20', executor: 'native' } }, [NATIVE, DOCKER])).reason).toBe(
      'the image node:20 was asked for, and the native executor runs no images',
    );
  });

  it('refuses one that is not here', async () => {
    expect((await refusal({ request: { executor: 'docker' } }, [NATIVE])).reason).toBe('no executor named docker is here');
  });
});

describe('what is asked, in words', () => {
  it.each<readonly [string, Scenario, Dimension, string]>([
    ['denials of reading', { request: { denyRead: ['a', 'b'] } }, 'file_read', '2 denied'],
    ['a list for reading', { job: permissions('file_read: { allow: [/srv] }') }, 'file_read', 'listed'],
    ['a stage of parts', { job: permissions('file_write: { stage: [src, docs] }') }, 'file_write', 'stage src +1'],
    ['a read-only workspace', { job: permissions('file_write: { stage: [] }') }, 'file_write', 'read-only'],
    ['a direct share', { request: { writeDirect: ['dist'] } }, 'file_write', 'stage ., 1 direct'],
    ['an open network', { job: permissions('network: { default_action: allow }') }, 'network', 'public'],
    ['no program', { job: permissions('subprocess: { default_action: deny }') }, 'subprocess', 'none'],
    ['one limit', { request: { timeoutMs: 1000 } }, 'resources', '1 limit'],
  ])('%s', async (_what, scenario, dimension, words) => {
    expect((await plan(scenario)).dimensions[dimension].asked).toBe(words);
  });

  it('a network that is open but for some hosts is refused where every port would be needed, also when chosen hosts can be opened', async () => {
    const job = permissions('network: { default_action: allow, deny: [a.example] }');
    const able = { ...NATIVE, network: { ...NATIVE.network, selective: true } };
    const refused = await refusal({ request: { mode: 'safe' }, job }, [able]);
    expect(JSON.stringify(refused)).toContain('a network that is open but for some hosts needs every port');
  });

  it('no program owes its own control', async () => {
    expect((await plan({ job: permissions('subprocess: { default_action: deny }') })).dimensions.subprocess.controls).toContain('no_program');
  });

  it('each limit owes its own control', async () => {
    const { controls } = (await plan({ job: permissions('resources: { memory: 1GiB, cpus: 1, processes: 9, wall_time: 1m, tmp_size: 1MiB }') })).dimensions
      .resources;
    expect(controls).toEqual(['rlimits', 'process_limit', 'memory_limit', 'cpu_limit', 'wall_time', 'tmp_size']);
  });

  it('a command with quotes is repeated so that a shell reads it back', async () => {
    const { rows } = await refusal({ request: { argv: ['sh', '-c', "echo 'x'"], mode: 'safe', allowNet: ['a.example'] } });
    expect(rows[0]?.change?.command).toBe(String.raw`job run --safe --no-net -- sh -c 'echo '\''x'\'''`);
  });
});
