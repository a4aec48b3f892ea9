import { existsSync, lstatSync, mkdirSync, readFileSync, readdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { connect, findEndpoint } from '../../executors/docker/connect.host.ts';
import { ownOwner, stateToken } from '../../executors/docker/facts.host.ts';
import { LABEL, labelsOf, stateMark } from '../../executors/docker/labels.ts';
import type { MountBody } from '../../executors/docker/lower.ts';
import { sweepOrphans } from '../../executors/docker/reap.host.ts';
import { DockerLab, levelsWithout, LIMITS, rootAndOrdinary } from '../support/docker-job.host.ts';
import { engineClient, ensureImage, remoteEnvironment } from '../support/docker-lab.host.ts';
import type { DockerInstall } from '../support/docker-removals.ts';

const environment = remoteEnvironment();
const sh = (script: string): readonly [string, ...string[]] => ['/bin/sh', '-c', script];
const FILES = ['file_read', 'file_write'] as const;

/** What runs of a lab left on the engine; other tests use it at the same time. */
async function left(lab: DockerLab): Promise<readonly string[]> {
  const docker = engineClient();
  const tokens = readdirSync(lab.base)
    .map((name) => join(lab.base, name, 'state/engine-token'))
    .filter((path) => existsSync(path));
  const marks = new Set(tokens.map((path) => stateMark(readFileSync(path, 'utf8'))));
  const ours = (labels: Readonly<Record<string, string>> | null): boolean => marks.has(labels?.[LABEL.state] ?? '');
  const containers = await docker.listContainers({ all: true });
  const found: { readonly Volumes: readonly { readonly Name: string; readonly Labels: Readonly<Record<string, string>> | null }[] | null } =
    await docker.listVolumes();
  return [
    ...containers.filter(({ Labels }) => ours(Labels)).map(({ Id }) => Id),
    ...(found.Volumes ?? []).filter(({ Labels }) => ours(Labels)).map(({ Name }) => Name),
  ];
}

function mounts(install: DockerInstall, change: (list: readonly MountBody[]) => readonly MountBody[]): DockerInstall {
  return { ...install, body: { ...install.body, HostConfig: { ...install.body.HostConfig, Mounts: change(install.body.HostConfig.Mounts) } } };
}

const at = (target: string, change: (one: MountBody) => MountBody) => (list: readonly MountBody[]) =>
  list.map((one) => (one.Target === target ? change(one) : one));

describe.skipIf(typeof environment === 'string')("on an engine that doesn't see the workspace", () => {
  let own: DockerLab;
  let other: DockerLab;
  beforeAll(async () => {
    await ensureImage(engineClient());
    const { root, ordinary } = rootAndOrdinary();
    own = new DockerLab(root, environment);
    other = new DockerLab(ordinary, environment);
    for (const lab of [own, other]) {
      lab.write('.env', 'TOKEN=hidden\n');
      lab.write('kept.txt', 'as it was\n');
      lab.write('gone/a.txt', 'a\n');
      lab.write('shut/inner.txt', 'closed\n');
    }
  });

  test.each(['root', 'user'] as const)('--safe: every level is enforced, and the changes are in the stage; workspace of %s', async (owner) => {
    const lab = owner === 'root' ? own : other;
    const script =
      'id -u; cat kept.txt; test ! -e .env && echo hidden; echo more >> kept.txt; rm -r gone; echo n > new.txt; chmod 755 new.txt; echo h > ~/scrap';
    const report = await lab.run(sh(script), { hidden: [join(lab.workspace, '.env')] });
    expect([report.unmet, report.stderr]).toEqual([[], '']);
    expect(report.levels).toEqual(levelsWithout([]));
    expect(report.stdout).toBe(`${lab.owner.uid}\nas it was\nhidden\n`);
    expect(readFileSync(join(lab.workspace, 'kept.txt'), 'utf8')).toBe('as it was\n');
    expect(existsSync(join(lab.workspace, 'new.txt'))).toBe(false);
    expect(readdirSync(report.upper).sort()).toEqual(['gone', 'kept.txt', 'new.txt']);
    expect(readFileSync(join(report.upper, 'kept.txt'), 'utf8')).toBe('as it was\nmore\n');
    expect(lstatSync(join(report.upper, 'gone')).isCharacterDevice()).toBe(true);
    expect(lstatSync(join(report.upper, 'new.txt'))).toMatchObject({ uid: lab.owner.uid, gid: lab.owner.gid });
    expect(report.closing.discarded).toEqual({ files: 1, bytes: 2, top: [{ path: '~/scrap', files: 1 }] });
    expect(report.closing.warnings).toEqual([]);
    expect(await left(lab)).toEqual([]);
  });

  test('what is read of the machine that the job runs on is never read of this one', async () => {
    const report = await own.run(sh('true'));
    const sources = report.closing.observations.receipts.filter(({ source }) => source === 'proc').map(({ id }) => id);
    expect(sources).toEqual([]);
    expect(report.closing.peaks.memoryBytes).toBeGreaterThan(0);
  });

  test('limits of the whole tree are read back in the container, and one that is left out is noticed', async () => {
    const report = await own.run(sh('echo ran'), { limits: LIMITS });
    expect([report.unmet, report.levels]).toEqual([[], levelsWithout([])]);
    for (const [limit, change] of [
      ['limit.memory', { Memory: undefined, MemorySwap: undefined }],
      ['limit.processes', { PidsLimit: undefined }],
      ['limit.cpus', { CpuQuota: undefined, CpuPeriod: undefined }],
    ] as const) {
      const alter = (install: DockerInstall): DockerInstall => ({
        ...install,
        body: { ...install.body, HostConfig: { ...install.body.HostConfig, ...change } },
      });
      const without = await own.run(sh('echo ran'), { limits: LIMITS, alter });
      expect([limit, without.decision.kind, without.stdout]).toEqual([limit, 'refuse', '']);
      expect(without.unmet.join('\n')).toContain(`resources ${limit} `);
    }
  });

  test('a read-only directory of the workspace stays as it is', async () => {
    const report = await own.run(sh('cat shut/inner.txt; echo x > shut/inner.txt; echo x > shut/new'), { denyWrite: [join(own.workspace, 'shut')] });
    expect([report.stdout, report.unmet]).toEqual(['closed\n', []]);
    expect(report.stderr).toContain('Read-only file system');
    expect(readdirSync(report.upper)).toEqual([]);
  });

  test('a granted directory is sent, and can not be written', async () => {
    mkdirSync(join(own.base, 'granted'));
    own.write('../granted/f', 'granted\n');
    const report = await own.run(sh(`cat ${own.base}/granted/f; echo x >> ${own.base}/granted/f`), { allowRead: [join(own.base, 'granted')] });
    expect([report.stdout, report.unmet]).toEqual(['granted\n', []]);
    expect(report.stderr).toContain('Read-only file system');
  });

  test('what only a mount from here could give is refused before anything is made, in words', async () => {
    await expect(own.run(sh('true'), { direct: [join(own.workspace, 'shut')] })).rejects.toMatchObject({
      code: 'ERR_LAUNCH',
      message: expect.stringContaining("doesn't see this machine's files") as string,
    });
    await expect(own.run(sh('true'), { denyWrite: [join(own.workspace, 'kept.txt')] })).rejects.toMatchObject({ code: 'ERR_LAUNCH' });
    expect(await left(own)).toEqual([]);
  });

  test('only what this state directory left is swept: not what another machine or container has with the same path', async () => {
    const connection = await connect(findEndpoint(typeof environment === 'string' ? {} : environment, '/'));
    if (!('engine' in connection)) throw new Error(connection.obstacle.reason);
    const [mine, theirs] = ['state-a', 'state-b'].map((name) => {
      mkdirSync(join(own.base, name), { recursive: true });
      return join(own.base, name);
    });
    const docker = engineClient();
    const dead = { ...ownOwner(), started: '1' };
    const made = async (directory = '', owner = dead): Promise<string> => {
      const Labels = labelsOf('/runs/run-x/scratch', stateToken(directory), owner);
      return (await docker.createContainer({ Image: 'proofrun-base:latest', Cmd: ['/bin/true'], Labels: { ...Labels }, NetworkDisabled: true })).id;
    };
    const ids = {
      orphan: await made(mine),
      anotherDirectory: await made(theirs),
      anotherContainer: await made(mine, { ...dead, namespace: '1' }),
      alive: await made(mine, ownOwner()),
    };
    expect(await sweepOrphans(connection.engine, mine ?? '')).toEqual([]);
    const there = new Set((await docker.listContainers({ all: true })).map(({ Id }) => Id));
    expect(Object.entries(ids).map(([name, id]) => [name, there.has(id)])).toEqual([
      ['orphan', false],
      ['anotherDirectory', true],
      ['anotherContainer', true],
      ['alive', true],
    ]);
    for (const id of Object.values(ids)) {
      await docker
        .getContainer(id)
        .remove({ force: true })
        .catch(() => undefined);
    }
  });

  const removals: readonly { readonly how: string; readonly alter: (install: DockerInstall) => DockerInstall; readonly lost: readonly string[] }[] = [
    {
      how: "a directory of the engine's machine is mounted",
      alter: (install) =>
        mounts(install, (list) => [
          ...list,
          { Type: 'bind', Source: '/usr/share/doc', Target: '/extra', ReadOnly: true, BindOptions: { Propagation: 'rprivate' } },
        ]),
      lost: [...FILES],
    },
    {
      how: 'another volume stands for the workspace',
      alter: (install) =>
        mounts(
          install,
          at(own.workspace, (one) => ({ ...one, Source: 'another' })),
        ),
      lost: [...FILES],
    },
    {
      how: 'the shim could be written',
      alter: (install) =>
        mounts(
          install,
          at('/.proofrun', (one) => ({ ...one, ReadOnly: false })),
        ),
      lost: [...FILES],
    },
    {
      how: 'the private home is a tmpfs',
      alter: (install) => ({
        ...mounts(install, (list) => list.filter(({ Target }) => Target !== own.home)),
        body: {
          ...install.body,
          HostConfig: {
            ...install.body.HostConfig,
            Mounts: install.body.HostConfig.Mounts.filter(({ Target }) => Target !== own.home),
            Tmpfs: { ...install.body.HostConfig.Tmpfs, [own.home]: 'rw,mode=1777' },
          },
        },
      }),
      lost: [...FILES],
    },
    {
      how: "the network of the engine's machine",
      alter: (install) => ({ ...install, body: { ...install.body, HostConfig: { ...install.body.HostConfig, NetworkMode: 'host' } } }),
      lost: ['network'],
    },
    {
      how: 'no path is masked',
      alter: (install) => ({ ...install, body: { ...install.body, HostConfig: { ...install.body.HostConfig, MaskedPaths: [] } } }),
      lost: [...FILES],
    },
    {
      how: 'the root can be written',
      alter: (install) => ({ ...install, body: { ...install.body, HostConfig: { ...install.body.HostConfig, ReadonlyRootfs: false } } }),
      lost: [...FILES],
    },
    {
      how: "the process ids of the engine's machine",
      alter: (install) => ({ ...install, body: { ...install.body, HostConfig: { ...install.body.HostConfig, PidMode: 'host' } } }),
      lost: ['subprocess'],
    },
  ];
  test.each(removals)('a control that is left out is noticed before the command starts: $how', async ({ alter, lost }) => {
    const report = await own.run(sh('echo started'), { alter });
    expect([report.decision.kind, report.stdout]).toEqual(['refuse', '']);
    for (const dimension of lost) expect([dimension, report.levels[dimension]]).toEqual([dimension, 'unenforced']);
    for (const name of ['another']) {
      await engineClient()
        .getVolume(name)
        .remove({ force: true })
        .catch(() => undefined);
    }
    expect(await left(own)).toEqual([]);
  });

  test('changes that can not be fetched are a lost level and a warning, never an empty stage that looks whole', async () => {
    const docker = engineClient();
    const report = await own.run(sh('echo n > new.txt; echo ready; read x < /dev/null; sleep 0.2'), {
      during: async () => {
        const mine = await left(own);
        const all = await docker.listContainers({ all: true, filters: { status: ['created'] } });
        for (const { Id } of all.filter((one) => mine.includes(one.Id))) await docker.getContainer(Id).remove({ force: true });
      },
    });
    expect(report.ending).toEqual({ kind: 'exit', code: 0 });
    expect(report.levels['file_write']).toBe('unenforced');
    expect(report.unmet).toEqual(['file_write end.stage.returned missing']);
    expect(report.closing.warnings.join('\n')).toContain('what the job changed did not come back from the engine');
    expect(readdirSync(report.upper)).toEqual([]);
    expect(await left(own)).toEqual([]);
  });

  test('what a job leaves for the way back harms nothing: links out, devices, sockets, names, a sparse file', async () => {
    symlinkSync('/etc', join(own.base, 'aside'));
    const script = [
      'rm -r shut; ln -s /etc shut; ln -s ../../../../etc/passwd up; mkdir -p d/e; ln kept.txt d/again',
      "perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => q(sock), Listen => 1)'; mkfifo pipe",
      'truncate -s 64M sparse; printf x > "$(printf "bad\\377\\nname")"; chmod 4755 new 2>/dev/null; cp /bin/true suid && chmod 4755 suid',
    ].join('\n');
    const report = await own.run(sh(script));
    expect([report.ending, report.unmet]).toEqual([{ kind: 'exit', code: 0 }, []]);
    expect(lstatSync(join(report.upper, 'shut')).isSymbolicLink()).toBe(true);
    expect(lstatSync(join(report.upper, 'up')).isSymbolicLink()).toBe(true);
    expect(lstatSync(join(report.upper, 'sparse')).size).toBe(64 << 20);
    expect(readFileSync(join(own.workspace, 'shut/inner.txt'), 'utf8')).toBe('closed\n');
    expect(await left(own)).toEqual([]);
  });

  test('memory: a limit is told from a kill where nothing but the container can say so', async () => {
    const report = await own.run(['/usr/bin/perl', '-e', 'my $x = "x" x (1 << 28); print length $x'], { mode: 'default', limits: { memoryBytes: 64 << 20 } });
    expect(report.ending).toEqual({ kind: 'limit', limit: 'memory' });
    expect(report.closing.limitHits).toEqual(['memory']);
    const killed = await own.run(sh('kill -9 $$'), { mode: 'default', limits: { memoryBytes: 64 << 20 } });
    expect(killed.ending).toMatchObject({ kind: 'signal', signal: 'SIGKILL' });
  });
});
