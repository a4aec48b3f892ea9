import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, readdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { installation, jobCommand, nodeFor } from '../support/job-command.host.ts';
import { asUser, describeUsers, temporaryDirectory, type TestUser } from '../support/users.host.ts';

const root = resolve(import.meta.dirname, '../..');

function cacheOf(folder: string): string | undefined {
  const program = programOf(folder);
  const name = readdirSync(join(folder, 'dist/chunks')).find((entry) => entry.startsWith(`${program}.${process.versions.v8}-`) && entry.endsWith('.cache'));
  return name === undefined ? undefined : join(folder, 'dist/chunks', name);
}

function programOf(folder: string): string {
  return /chunks\/(job-[0-9a-f]+\.cjs)/.exec(readFileSync(join(folder, 'dist/job.js'), 'utf8'))?.[1] ?? '';
}

/** A copy of the package, as an installation would have it, that a test may damage. */
function copyOf(user: TestUser): string {
  const copy = join(temporaryDirectory(user), 'package');
  mkdirSync(copy);
  for (const part of ['package.json', 'dist', 'prebuilt', 'policies', 'schemas']) cpSync(join(root, part), join(copy, part), { recursive: true });
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
  return copy;
}

describe('the bundled command', () => {
  const self: TestUser = { kind: 'root', name: 'self', uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0, home: '/' };
  const run = async (folder: string) => asUser(self, [process.execPath, join(folder, 'dist/job.js'), 'version'], { env: { HOME: folder } });

  test('the build made a code cache for this Node, and V8 takes it', async () => {
    const cache = cacheOf(root);
    expect(cache).toBeDefined();
    const check = `const { Script } = require('node:vm'); const fs = require('node:fs'); const s = new Script(fs.readFileSync(${JSON.stringify(join(root, 'dist/chunks', programOf(root)))}, 'latin1'), { cachedData: fs.readFileSync(${JSON.stringify(cache)}) }); process.stdout.write(String(s.cachedDataRejected));`;
    expect((await asUser(self, [process.execPath, '-e', check])).stdout).toBe('false');
  });

  test.each([
    ['without a code cache', undefined],
    ['with one that is empty', Buffer.alloc(0)],
    ['with one of another program', Buffer.from('not a cache of V8 at all'.repeat(100))],
  ])('it starts %s', async (_kind, bytes) => {
    const folder = copyOf(self);
    const cache = cacheOf(folder);
    if (cache === undefined) throw new Error('the build made no cache');
    if (bytes === undefined) execFileSync('rm', [cache]);
    else writeFileSync(cache, bytes);
    expect(await run(folder)).toMatchObject({ code: 0, stdout: expect.stringMatching(/^proofrun \d/) as string, stderr: '' });
  });
});

describeUsers('a plain job run', (user) => {
  test('loads no library that it has no use for', async () => {
    const home = temporaryDirectory(user);
    const [workspace, hook, list] = [join(home, 'workspace'), join(home, 'hook.cjs'), join(home, 'loaded.txt')];
    const script = `const { writeFileSync } = require('node:fs'); process.on('exit', () => writeFileSync(${JSON.stringify(list)}, Object.keys(require.cache).join('\\n')));`;
    await asUser(user, ['sh', '-c', 'mkdir "$1"; cat > "$2"', 'sh', workspace, hook], { input: script });
    const [node, job] = jobCommand(user);
    const env = { HOME: home, XDG_STATE_HOME: join(home, 'state') };
    const ended = await asUser(user, [node, '--require', hook, job ?? '', 'run', '--safe', '-q', '--', 'true'], { cwd: workspace, env });
    expect(ended, ended.stderr).toMatchObject({ code: 0 });
    const loaded = readFileSync(list, 'utf8').split('\n');
    expect(loaded.some((file) => file.endsWith('better_sqlite3.node'))).toBe(true);
    expect(loaded.filter((file) => /\/(?:ajv|yaml|diff|cli-progress)-[0-9a-f]+\.cjs$|\.schema\.json$/.test(file))).toEqual([]);
  });

  test('runs from files that the user cannot change, unless they are the user of the clone', async () => {
    const folder = installation(user);
    const ended = await asUser(user, [
      'sh',
      '-c',
      'id -u; id -G; cd "$1" && find . ! -uid 0 | head -1; touch dist/job.js prebuilt 2>&1; echo x >> dist/job.js',
      'sh',
      folder === root ? '/usr/bin' : folder,
    ]);
    const [uid, groups] = ended.stdout.split('\n');
    expect(uid).toBe(String(user.uid));
    if (folder === root) return;
    expect(groups).toBe(String(user.gid));
    expect(ended.code).not.toBe(0);
    expect(ended.stdout).toMatch(/touch: cannot touch 'dist\/job\.js': Permission denied/);
    expect(statSync(join(folder, 'dist/job.js')).uid).toBe(0);
    expect((await asUser(user, [nodeFor(user), join(folder, 'dist/job.js'), 'version'])).code).toBe(0);
  });
});

describe('the npm package', () => {
  const listed = (): readonly string[] => {
    const [pack] = JSON.parse(
      execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }),
    ) as [{ files: { path: string }[] }];
    return pack.files.map((file) => file.path);
  };

  test('holds the bundles, the prebuilt shim and its sources, presets and schemas, and nothing else', () => {
    const files = listed();
    const program = programOf(root);
    expect(files).toEqual(
      expect.arrayContaining([
        'LICENSE',
        'package.json',
        'dist/job.js',
        `dist/chunks/${program}`,
        'dist/index.mjs',
        'dist/presets.json',
        'dist/THIRD-PARTY-LICENSES.txt',
        `prebuilt/linux-${process.arch}/proofrun-shim`,
        'executors/shim/main.c',
        'executors/shim/shim.h',
        'policies/safe.yaml',
        'schemas/job.schema.json',
        'scripts/build-shim.mjs',
        'scripts/install.mjs',
        'scripts/warm-cache.mjs',
      ]),
    );
    const rest = files.filter(
      (file) =>
        !/^(?:dist|prebuilt|policies|schemas)\/|^executors\/shim\/[^/]+\.[ch]$|^scripts\/(?:build-shim|install|warm-cache)\.mjs$|^(?:LICENSE|README\.md|package\.json)$/.test(
          file,
        ),
    );
    expect(rest).toEqual([]);
    expect(files.filter((file) => file.endsWith('.cache'))).toEqual([]);
  });
});
