import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { buildImage, IMAGE_LABEL, parseImageName } from '../../executors/docker/image/index.ts';
import { createWorkspaceTransfer, DEFAULT_LIMITS, uploadTree } from '../../executors/docker/transfer/index.ts';
import type { StagedRoot } from '../../src/core/change.ts';
import { ProofrunError } from '../../src/core/errors.ts';
import { prepareStage, readChangeSet } from '../../src/stage/index.ts';
import { users } from '../support/accounts.ts';
import { facts } from '../support/download-lab.host.ts';
import { jobCommand } from '../support/job-command.host.ts';
import { packMachineRootfs } from '../support/machine-rootfs.host.ts';
import { noEngine, useOwnEngine } from '../support/own-engine.host.ts';
import { SHIM } from '../support/stage-lab.host.ts';
import { archive } from '../support/tar-forge.ts';
import { temporaryDirectories } from '../support/temporary.ts';
import { asUser } from '../support/users.host.ts';

const directory = temporaryDirectories();
const transfer = createWorkspaceTransfer({ shim: SHIM, markers: 'trusted' });

/** A stage over a directory. */
async function stageOver(base: string): Promise<StagedRoot> {
  const { roots } = await prepareStage({ shim: SHIM, directory: join(base, 'stage'), roots: [join(base, 'ws')], patterns: [] });
  const [root] = roots;
  if (root === undefined) throw new Error('no root');
  return root;
}

/** `kind path` of what a stage holds. */
async function kinds(root: StagedRoot): Promise<readonly string[]> {
  const { changeSet } = await readChangeSet({ shim: SHIM, roots: [root], markers: 'trusted', hidden: [], applied: [], executes: () => undefined });
  return changeSet.changes.map(({ kind, path, from }) => `${kind} ${from === undefined ? '' : `${from} -> `}${path}`).sort();
}

const why = noEngine();
describe.skipIf(why !== undefined && process.env['REQUIRE_EXECUTORS']?.includes('docker') !== true)(
  `on a real engine${why === undefined ? '' : `: ${why}`}`,
  () => {
    const engine = useOwnEngine();
    const busybox = { kind: 'busybox' } as const;
    const image = async (): Promise<string> => {
      const { client } = engine();
      return (await buildImage({ client, name: parseImageName('base'), labels: [], source: busybox })).image.id;
    };
    /** A container with a volume at /ws and a read-only root, as a job's is. */
    const container = async (from: string, command: readonly string[]) =>
      engine().docker.createContainer({
        Image: from,
        Cmd: [...command],
        HostConfig: { NetworkMode: 'none', ReadonlyRootfs: true, Mounts: [{ Type: 'volume', Source: '', Target: '/ws' }] },
      });

    test('a workspace goes up, a job works in it, and its changes come down', async () => {
      const base = directory();
      mkdirSync(join(base, 'ws'));
      const script = [
        'mkdir -p a/b .git; echo 1 > a/f; ln a/f a/g; ln -s ../../etc a/l; mkfifo p; echo secret > .env; chmod 1777 a/b',
        'printf x > "$(printf "bad\\377name")"; head -c 3000000 /dev/urandom > big; chown 1234:5678 big; chmod 4750 big; d=$(head -c 200 /dev/zero | tr "\\0" d); mkdir -p $d/$d; echo deep > $d/$d/f',
        'touch -d "2001-02-03 04:05:06.123456789" a/f',
      ].join('\n');
      execFileSync('sh', ['-ec', script], { cwd: join(base, 'ws') });
      const root = await stageOver(base);
      // What is there is written to the output, then changed.
      const job = [
        'cd /ws; test ! -e .env; test "$(stat -c %u:%g:%a big)" = 1234:5678:4750; test "$(stat -c %h a/f)" = 2; test -p p; test "$(readlink a/l)" = ../../etc',
        'cat "$(printf "bad\\377name")"; stat -c %y a/f',
        'echo 2 > a/f; rm p; mkdir new; echo n > new/n; mv big bigger; echo mine > .env; chmod 700 a/b',
      ].join('\n');
      const box = await container(await image(), ['/bin/sh', '-ec', job]);
      const site = { client: engine().client, container: box.id, path: '/ws' };
      expect((await transfer.upload(site, root, [join(base, 'ws/.env')])).warnings).toEqual([]);
      await box.start();
      const { StatusCode } = (await box.wait()) as { StatusCode: number };
      const output = (await box.logs({ stdout: true, stderr: true })).toString();
      expect(StatusCode, output).toBe(0);
      expect(output).toContain('2001-02-03 04:05:06.123456789');
      expect((await transfer.download(site, root)).warnings).toEqual([]);
      await box.remove({ force: true, v: true });
      expect(await kinds(root)).toEqual(
        ['added new/n', 'added new', 'attributes a/b', 'deleted p', 'modified .env', 'modified a/f', 'modified a/g', 'renamed big -> bigger'].sort(),
      );
      expect(readFileSync(join(root.upper, 'a/f'), 'utf8')).toBe('2\n');
      expect(facts(root.upper)['bigger']).toContain(' 1234:5678 ');
    });

    test('a job that does nothing leaves nothing in the stage', async () => {
      const base = directory();
      mkdirSync(join(base, 'ws/d'), { recursive: true });
      for (let file = 0; file < 200; file += 1) writeFileSync(join(base, `ws/d/${file}`), `${file}`);
      const root = await stageOver(base);
      const box = await container(await image(), ['/bin/true']);
      const site = { client: engine().client, container: box.id, path: '/ws' };
      await transfer.upload(site, root, []);
      await transfer.download(site, root);
      await box.remove({ force: true, v: true });
      expect(readdirSync(root.upper)).toEqual([]);
    });

    test('an upload that fails says why, not what the engine made of it', async () => {
      const base = directory();
      mkdirSync(join(base, 'ws'));
      for (let file = 0; file < 20; file += 1) writeFileSync(join(base, `ws/${file}`), Buffer.alloc(100_000, 1));
      const box = await container(await image(), ['/bin/true']);
      const { client } = engine();
      const up = uploadTree({ root: join(base, 'ws'), hidden: [], limits: { ...DEFAULT_LIMITS, bytes: 1_000_000 } });
      await expect(client.putArchive(box.id, '/ws', up.stream)).rejects.toMatchObject({ code: 'ERR_TRANSFER_LIMIT' });
      expect(() => up.manifest()).toThrow(ProofrunError);
      await expect(client.putArchive(box.id, '/nowhere', Readable.from([archive()]))).rejects.toMatchObject({ code: 'ERR_ENGINE', data: { status: 404 } });
      await expect(client.getArchive('0'.repeat(12), '/ws')).rejects.toMatchObject({ code: 'ERR_ENGINE' });
      await box.remove({ force: true, v: true });
    });

    test('an image of busybox runs, and carries its source, labels and digest', async () => {
      const { client, docker } = engine();
      const built = await buildImage({ client, name: parseImageName('team/base:1'), labels: [['a.b', 'q "$HOME" \\x']], source: busybox });
      expect(built).toMatchObject({ name: 'team/base:1', replaced: undefined });
      expect(built.image.id).toMatch(/^sha256:[0-9a-f]{64}$/);
      expect(built.image.labels).toMatchObject({ [IMAGE_LABEL]: 'busybox', 'a.b': 'q "$HOME" \\x' });
      const box = await docker.createContainer({
        Image: built.image.id,
        Cmd: ['/bin/sh', '-c', 'ls -d /tmp /proc /etc/passwd; id -u; stat -c %a /tmp'],
        HostConfig: { NetworkMode: 'none' },
      });
      await box.start();
      await box.wait();
      expect((await box.logs({ stdout: true })).toString('latin1')).toMatch(/passwd[^]*\n[^]*1777/);
      await box.remove({ force: true });
      const again = await buildImage({ client, name: parseImageName('team/base:1'), labels: [], source: busybox });
      expect(again.replaced).toBe(built.image.id);
      // The same files: the same layer.
      const layers = await Promise.all([built.image.id, again.image.id].map(async (id) => (await docker.getImage(id).inspect()).RootFS));
      expect(layers[1]).toEqual(layers[0]);
    });

    test('an image of a root filesystem archive runs the programs of this machine', async () => {
      const file = join(directory(), 'rootfs.tar');
      const missing = packMachineRootfs(file, ['node', 'python3', 'git']);
      const { client, docker } = engine();
      const built = await buildImage({ client, name: parseImageName('full'), labels: [], source: { kind: 'rootfs', file } });
      expect(built.entries).toBeGreaterThan(50);
      const tries = {
        node: 'node -e "console.log(6*7)"',
        python3: 'python3 -c "import json,hashlib; print(6*7)"',
        git: 'git init -q /tmp/r && git -C /tmp/r status --short && echo 42',
      };
      for (const [name, command] of Object.entries(tries)) {
        if (missing.includes(name)) continue;
        const box = await docker.createContainer({ Image: built.image.id, Cmd: ['/bin/sh', '-c', command], HostConfig: { NetworkMode: 'none' } });
        await box.start();
        await box.wait();
        expect([name, (await box.logs({ stdout: true, stderr: true })).toString('latin1')]).toEqual([name, expect.stringContaining('42\n')]);
        await box.remove({ force: true });
      }
    }, 120_000);

    test('job image build prints the digest, job image ls lists it', async () => {
      const { root } = users();
      if (typeof root === 'string') throw new Error(root);
      const options = { cwd: directory(), env: { DOCKER_HOST: engine().host } };
      const job = jobCommand(root);
      const built = await asUser(root, [...job, 'image', 'build', '--tag', 'cli:2', '--label', 'k=v', '--json'], options);
      expect(built.code, built.stderr).toBe(0);
      const { id } = JSON.parse(built.stdout) as { id: string };
      const text = await asUser(root, [...job, 'image', 'build'], options);
      expect(text.stdout).toMatch(/^proofrun-base:latest\n {2}digest {2}sha256:[0-9a-f]{64}\n {2}size {4}[0-9.]+ MiB, \d+ entries\n {2}from {4}busybox/);
      const listed = await asUser(root, [...job, 'image', 'ls', '--json'], options);
      expect(JSON.parse(listed.stdout)).toContainEqual(expect.objectContaining({ id, tags: ['cli:2'] }));
      expect((await asUser(root, [...job, 'image', 'ls'], options)).stdout).toContain('cli:2');
      const bad = await asUser(root, [...job, 'image', 'build', '--rootfs', '/etc/passwd'], options);
      expect([bad.code, bad.stderr]).toEqual([2, expect.stringContaining('is damaged, or no tar archive')]);
    });
  },
);

test('without an engine the error says so', async () => {
  const { root, user } = users();
  const someone = process.geteuid?.() === 0 ? root : user;
  if (typeof someone === 'string') throw new Error(someone);
  const ask = (env: Readonly<Record<string, string>>) => asUser(someone, [...jobCommand(someone), 'image', 'ls'], { env });
  const gone = await ask({ DOCKER_HOST: 'unix:///nonexistent/docker.sock' });
  expect([gone.code, gone.stderr]).toEqual([200, expect.stringContaining('no engine listens at unix:///nonexistent/docker.sock (DOCKER_HOST)')]);
  // A context is found here as it is for jobs.
  const context = await ask({ DOCKER_CONTEXT: 'none-of-this-name' });
  expect([context.code, context.stderr]).toEqual([200, expect.stringContaining('there is no docker context "none-of-this-name"')]);
});
