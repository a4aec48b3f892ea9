import { execFileSync } from 'node:child_process';
import { chownSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { users } from '../support/accounts.ts';
import { engineClient, engineEnvironment, ensureImage } from '../support/docker-lab.host.ts';
import { temporaryDirectory } from '../support/users.host.ts';

const environment = engineEnvironment();
const { user } = users();
const installation = process.env['PROOFRUN_TEST_INSTALL'];
const PROFILE = join(import.meta.dirname, '../../policies/in-container.seccomp.json');

/** Bubblewrap and its libraries, which the tests' image doesn't have. */
function bubblewrap(): readonly string[] {
  const program = ['/usr/bin/bwrap', '/usr/local/bin/bwrap', '/bin/bwrap'].find((path) => {
    try {
      return realpathSync(path) !== '';
    } catch {
      return false;
    }
  });
  if (program === undefined) throw new Error('bubblewrap is not installed');
  const libraries = [...execFileSync('ldd', [program], { encoding: 'utf8' }).matchAll(/=> (\/\S+)/g)].map((match) => match[1] ?? '');
  return [program, ...libraries].map((path) => `${realpathSync(path)}:${path}:ro`);
}

describe.skipIf(typeof environment === 'string' || typeof user === 'string' || installation === undefined)('proofrun itself inside a container', () => {
  beforeAll(async () => ensureImage(engineClient()));

  const inside = async (options: { readonly profile: boolean; readonly known: boolean; readonly engine?: string }, script: string) => {
    if (typeof user === 'string' || installation === undefined) throw new Error('no ordinary user');
    const base = temporaryDirectory(user, 'proofrun-inside-');
    for (const name of ['work', 'state', 'home']) {
      mkdirSync(join(base, name));
      chownSync(join(base, name), user.uid, user.gid);
    }
    writeFileSync(join(base, 'work/a.txt'), 'as it was\n');
    chownSync(join(base, 'work/a.txt'), user.uid, user.gid);
    const docker = engineClient();
    const container = await docker.createContainer({
      Image: 'proofrun-base:latest',
      User: `${user.uid}:${user.gid}`,
      Cmd: [
        process.execPath,
        join(installation, 'dist/job.js'),
        'run',
        '--safe',
        '--executor',
        options.engine === undefined ? 'native' : 'docker',
        '--json',
        '--',
        'sh',
        '-c',
        script,
      ],
      WorkingDir: '/work',
      Env: ['HOME=/home/inside', 'XDG_STATE_HOME=/state', ...(options.engine === undefined ? [] : ['DOCKER_HOST=unix:///engine.sock'])],
      HostConfig: {
        NetworkMode: 'none',
        Binds: [
          ...[`${base}/work:/work`, `${base}/state:/state`, `${base}/home:/home/inside`, `${installation}:${installation}:ro`],
          ...(options.known ? ['/etc/passwd:/etc/passwd:ro'] : []),
          ...bubblewrap(),
          ...(options.engine === undefined ? [] : [`${options.engine}:/engine.sock`]),
        ],
        SecurityOpt: options.profile ? [`seccomp=${readFileSync(PROFILE, 'utf8')}`] : [],
        ...(options.profile ? { MaskedPaths: [], ReadonlyPaths: [] } : {}),
      },
    });
    try {
      await container.start();
      const { StatusCode } = (await container.wait()) as { readonly StatusCode: number };
      const said = (await container.logs({ stdout: true, stderr: true })).toString();
      return { code: StatusCode, said, base };
    } finally {
      await container.remove({ force: true, v: true });
    }
  };

  test.each([true, false])('with the profile --safe enforces every dimension that was asked for; the uid in the user database: %s', async (known) => {
    const { code, said, base } = await inside({ profile: true, known }, 'echo more >> a.txt; exit 4');
    expect([code, said]).toEqual([4, expect.stringContaining('"promise"')]);
    expect(readFileSync(join(base, 'work/a.txt'), 'utf8')).toBe('as it was\n');
    const bundles = execFileSync('find', [join(base, 'state'), '-name', 'run-bundle.json'], { encoding: 'utf8' })
      .trim()
      .split('\n');
    const bundle = JSON.parse(readFileSync(bundles[0] ?? '', 'utf8')) as {
      readonly executor_observations: { readonly dimensions: Readonly<Record<string, { readonly level: string }>> };
    };
    const { dimensions } = bundle.executor_observations;
    const levels = Object.fromEntries(Object.entries(dimensions).map(([name, { level }]) => [name, level]));
    expect(levels).toMatchObject({ file_read: 'enforced', file_write: 'enforced', network: 'enforced', subprocess: 'enforced', credentials: 'enforced' });
  });

  test("with the engine's socket the Docker executor sends the workspace, which that engine doesn't see", async () => {
    const engine = typeof environment === 'string' ? '' : environment.DOCKER_HOST.slice('unix://'.length);
    const { code, said, base } = await inside({ profile: false, known: true, engine }, 'cat a.txt > b.txt; exit 4');
    expect([code, said]).toEqual([4, expect.stringContaining('"promise"')]);
    const staged = execFileSync('find', [join(base, 'state'), '-name', 'b.txt'], { encoding: 'utf8' }).trim();
    expect(readFileSync(staged, 'utf8')).toBe('as it was\n');
  });

  test('without it the run is refused before it starts, and the answer names the file', async () => {
    const { code, said, base } = await inside({ profile: false, known: true }, 'echo more >> a.txt');
    expect([code, said]).toEqual([200, expect.stringContaining('in-container.seccomp.json')]);
    expect(readFileSync(join(base, 'work/a.txt'), 'utf8')).toBe('as it was\n');
  });
});
