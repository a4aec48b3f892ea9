import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { users, type TestUser } from './accounts.ts';
import { startEngine, whyNoEngine } from './docker-engine.host.ts';

const CLONE = resolve(import.meta.dirname, '../..');
const SQLITE = 'node_modules/better-sqlite3';
/** What an installed package holds, and what its one external dependency needs at run time. */
const PARTS = [
  'package.json',
  'dist',
  'prebuilt',
  'policies',
  'schemas',
  'examples',
  'test/fixtures',
  `${SQLITE}/package.json`,
  `${SQLITE}/lib`,
  `${SQLITE}/build/Release/better_sqlite3.node`,
  'node_modules/bindings',
  'node_modules/file-uri-to-path',
];

/**
 * Once for all the projects that start sandboxes: builds what is older than its sources, and as root copies the result to a place
 * that the ordinary user can read but not write, and starts an engine. PROOFRUN_TEST_INSTALL, PROOFRUN_TEST_NODE, PROOFRUN_TEST_DOCKER
 * and PROOFRUN_TEST_DOCKER_REMOTE tell the workers where.
 */
export default async function setUpSession(): Promise<(() => Promise<void>) | undefined> {
  if (process.env['PROOFRUN_TEST_SESSION'] !== undefined) return undefined;
  process.env['PROOFRUN_TEST_SESSION'] = String(process.pid);
  buildOrThrow('scripts/build-shim.mjs', '--native');
  buildOrThrow('scripts/build.mjs');
  const engine = whyNoEngine() === undefined ? await startEngine() : undefined;
  if (engine !== undefined) {
    process.env['PROOFRUN_TEST_DOCKER'] = engine.host;
    process.env['PROOFRUN_TEST_DOCKER_REMOTE'] = JSON.stringify(engine.remote);
  }
  const { user } = users();
  const copy = process.getuid?.() !== 0 || typeof user === 'string' ? undefined : copyInstallation();
  if (copy !== undefined && typeof user !== 'string') {
    process.env['PROOFRUN_TEST_INSTALL'] = copy;
    process.env['PROOFRUN_TEST_NODE'] = nodeFor(user, copy);
  }
  return async () => {
    if (copy !== undefined) rmSync(copy, { recursive: true, force: true });
    await engine?.stop();
  };
}

function buildOrThrow(...script: readonly string[]): void {
  const run = spawnSync(process.execPath, script, { cwd: CLONE, encoding: 'utf8', stdio: ['ignore', 'ignore', 'pipe'] });
  if (run.status !== 0) throw new Error(`${script.join(' ')} failed:\n${run.stderr}`);
}

function copyInstallation(): string {
  // Not TMPDIR: every directory above has to be open to the ordinary user. A session that was killed left its copy.
  for (const name of readdirSync('/tmp')) {
    const pid = /^proofrun-session-(\d+)-/.exec(name)?.[1];
    if (pid !== undefined && !existsSync(`/proc/${pid}`)) rmSync(join('/tmp', name), { recursive: true, force: true });
  }
  const copy = mkdtempSync(`/tmp/proofrun-session-${String(process.pid)}-`);
  for (const part of PARTS.filter((name) => existsSync(join(CLONE, name)))) {
    mkdirSync(dirname(join(copy, part)), { recursive: true });
    cpSync(join(CLONE, part), join(copy, part), { recursive: true });
  }
  const run = spawnSync('sh', ['-c', 'chown -R 0:0 "$1" && chmod -R u=rwX,go=rX "$1"', 'sh', copy], { encoding: 'utf8' });
  if (run.status !== 0) throw new Error(`the copy for the ordinary user could not be made readable: ${run.stderr}`);
  return copy;
}

/** The Node that runs the tests, or a copy of it when it lies where the ordinary user can't go (a home of root's). */
function nodeFor(user: TestUser, copy: string): string {
  const run = spawnSync(process.execPath, ['-e', '0'], { uid: user.uid, gid: user.gid, cwd: '/', env: {}, stdio: 'ignore' });
  if (run.status === 0) return process.execPath;
  const node = join(copy, 'node');
  copyFileSync(process.execPath, node);
  chmodSync(node, 0o755);
  return node;
}
