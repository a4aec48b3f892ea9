#!/usr/bin/env node
// Everything that a fresh clone on Debian or Ubuntu needs before it can be built, tested or shown. Plain Node: it runs before
// node_modules is there. With everything in place it only looks at a few files.
//   node scripts/setup.mjs           what the build and the demo need
//   node scripts/setup.mjs --tests   what the tests need besides; as root also the ordinary user that they run as
import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, lchownSync, lstatSync, readFileSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

export const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
export const TEST_USER = 'proofrun-test';
/** What the scripts make in the clone. */
const MADE = ['node_modules', 'dist', 'build', 'prebuilt', 'bench/results'];
const SYSTEM_PATH = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];

/** A step that can't be done here; the message says what to type. */
export class SetupError extends Error {}

/** Sets the clone up. Throws SetupError; prints a line for each thing that it does, nothing when all is there. */
export function setUp({ tests = false } = {}) {
  checkPlatform();
  const install = !modulesAreCurrent();
  const missing = missingPackages({ tests, install });
  if (missing.needed.length + missing.wanted.length > 0) {
    installPackages(missing);
  }
  if (install) {
    installModules();
  }
  if (tests && isRoot() && userId(TEST_USER) === undefined) {
    say(`adding the user ${TEST_USER}, as whom the tests run besides root`);
    run(['useradd', '--create-home', '--user-group', '--shell', '/bin/sh', TEST_USER], `useradd could not add ${TEST_USER}`);
  }
}

function checkPlatform() {
  const [major] = process.versions.node.split('.').map(Number);
  if (major < 20) {
    throw new SetupError(`Node 20 or later is needed; this is ${process.version}.`);
  }
  if (process.platform !== 'linux') {
    throw new SetupError(
      `Proofrun's native executor, its tests and its demo need Linux; this is ${process.platform}. Use a Linux machine, a virtual machine or a container.`,
    );
  }
}

/** [package, whether it is there]. Looks for the thing that is used, not for the package: it may have come another way. */
function missingPackages({ tests, install }) {
  const needed = [
    ['bubblewrap', hasProgram('bwrap')],
    ['gcc', hasProgram('cc') || hasProgram('gcc')],
    ['libc6-dev', hasStaticLibc()],
    ['git', hasProgram('git')],
  ];
  if (tests) {
    needed.push(
      ['python3', existsSync('/usr/bin/python3')],
      ['python3-pip', hasPythonModule('pip')],
      ['python3-venv', hasPythonModule('ensurepip')],
      ['curl', hasProgram('curl')],
      ['make', hasProgram('make')],
    );
    // An engine of the tests' own needs root; without it the Docker executor's tests say that they were left out.
    if (isRoot()) {
      needed.push(['docker.io', hasProgram('dockerd')], ['runsc', hasProgram('runsc')], ['busybox-static', hasProgram('busybox')]);
    }
  }
  // Only for compiling better-sqlite3, where no binary of it can be fetched.
  const wanted = install
    ? [
        ['make', hasProgram('make')],
        ['g++', hasProgram('g++') || hasProgram('c++')],
        ['python3', hasProgram('python3')],
      ]
    : [];
  const names = (rows) => rows.filter(([, there]) => !there).map(([name]) => name);
  return { needed: names(needed), wanted: names(wanted).filter((name) => !names(needed).includes(name)) };
}

function hasProgram(name) {
  const folders = [...(process.env.PATH ?? '').split(delimiter), ...SYSTEM_PATH];
  return folders.some((folder) => folder !== '' && isExecutable(join(folder, name)));
}

function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

function hasStaticLibc() {
  const triplets = { x64: 'x86_64-linux-gnu', arm64: 'aarch64-linux-gnu' };
  const usual = ['/usr/lib', `/usr/lib/${triplets[process.arch] ?? ''}`, '/usr/lib64'];
  return usual.some((folder) => existsSync(join(folder, 'libc.a'))) && existsSync('/usr/include/linux/seccomp.h');
}

/** A module of the system's own python3, which jobs in the tests run. */
function hasPythonModule(name) {
  const folders = readdirSync('/usr/lib').filter((entry) => /^python3(\.\d+)?$/.test(entry));
  return folders.some((folder) => existsSync(join('/usr/lib', folder, name)) || existsSync(join('/usr/lib', folder, 'dist-packages', name)));
}

function installPackages({ needed, wanted }) {
  const packages = [...needed, ...wanted];
  const command = `apt-get update && apt-get install -y --no-install-recommends ${packages.join(' ')}`;
  if (!hasProgram('apt-get')) {
    if (needed.length > 0) {
      throw new SetupError(
        `These are missing: ${packages.join(', ')} (Debian's names). This system has no apt-get: install them with its own package manager, then run this again.`,
      );
    }
    return;
  }
  const prefix = isRoot() ? [] : hasProgram('sudo') && spawnSync('sudo', ['-n', 'true'], { stdio: 'ignore' }).status === 0 ? ['sudo', '-n'] : undefined;
  if (prefix === undefined) {
    if (needed.length > 0) {
      throw new SetupError(`System packages are missing: ${packages.join(', ')}. Type this, then run this again:\n\n    sudo sh -c '${command}'\n`);
    }
    return;
  }
  say(`installing ${packages.join(', ')} with apt-get`);
  const apt = (...words) =>
    spawnSync(prefix[0] ?? 'env', [...prefix.slice(1), ...(prefix.length > 0 ? ['env'] : []), 'DEBIAN_FRONTEND=noninteractive', 'apt-get', ...words], {
      stdio: ['ignore', 'pipe', 'pipe'],
      encoding: 'utf8',
    });
  const install = () => apt('install', '-y', '--no-install-recommends', ...packages);
  let result = install();
  if (result.status !== 0) {
    // The usual reason on a new machine: no package lists yet, or old ones.
    apt('update');
    result = install();
  }
  if (result.status !== 0) {
    throw new SetupError(
      `apt-get could not install ${packages.join(', ')}:\n${result.stderr.trim()}\n\nType this to see it whole:\n\n    sudo sh -c '${command}'\n`,
    );
  }
}

/** Whether node_modules holds what package-lock.json says. npm writes node_modules/.package-lock.json last. */
function modulesAreCurrent() {
  let have;
  try {
    have = JSON.parse(readFileSync(join(ROOT, 'node_modules', '.package-lock.json'), 'utf8')).packages;
  } catch {
    return false;
  }
  const want = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')).packages;
  for (const [path, entry] of Object.entries(want)) {
    if (path !== '' && entry.optional !== true && have[path]?.version !== entry.version) {
      return false;
    }
  }
  return existsSync(join(ROOT, 'node_modules', 'better-sqlite3', 'build', 'Release', 'better_sqlite3.node'));
}

function installModules() {
  say('installing node_modules (npm ci); better-sqlite3 compiles for about two minutes where no binary of it can be fetched');
  const env = { ...process.env };
  const headers = nodeHeaders();
  if (headers !== undefined && env.npm_config_nodedir === undefined) {
    env.npm_config_nodedir = headers;
  }
  const result = spawnSync('npm', ['ci', '--no-audit', '--no-fund', '--no-update-notifier', '--loglevel=error'], {
    cwd: ROOT,
    env,
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  if (result.status !== 0) {
    const tools = missingPackages({ tests: false, install: true });
    const remedy =
      tools.wanted.length > 0
        ? `\nbetter-sqlite3 may have had to be compiled, and these are missing. Type this, then run this again:\n\n    sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends ${tools.wanted.join(' ')}'\n`
        : '';
    throw new SetupError(`npm ci failed${result.error === undefined ? '' : `: ${result.error.message}`}.${remedy}`);
  }
}

/** The prefix that holds the headers of the Node that runs, so that node-gyp need not fetch them. */
export function nodeHeaders() {
  const prefix = dirname(dirname(realpathSync(process.execPath)));
  try {
    const text = readFileSync(join(prefix, 'include', 'node', 'node_version.h'), 'utf8');
    const part = (name) => new RegExp(`#define NODE_${name}_VERSION (\\d+)`).exec(text)?.[1];
    return `${part('MAJOR')}.${part('MINOR')}.${part('PATCH')}` === process.versions.node ? prefix : undefined;
  } catch {
    return undefined;
  }
}

/**
 * When root works in the clone of another user, gives what was made to that user: nothing that belongs to root stays behind.
 */
export function handOver() {
  const owner = statSync(ROOT);
  if (!isRoot() || owner.uid === 0) {
    return;
  }
  const give = (path) => {
    const facts = lstatSync(path, { throwIfNoEntry: false });
    if (facts === undefined) {
      return;
    }
    if (facts.uid !== owner.uid) {
      lchownSync(path, owner.uid, owner.gid);
    }
    if (facts.isDirectory()) {
      for (const name of readdirSync(path)) {
        give(join(path, name));
      }
    }
  };
  for (const name of MADE) {
    give(join(ROOT, name));
  }
}

/** uid of a user, undefined when there is none. */
export function userId(name) {
  const row = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .find((line) => line.startsWith(`${name}:`));
  return row === undefined ? undefined : Number(row.split(':')[2]);
}

export function isRoot() {
  return process.getuid?.() === 0;
}

/** Setup's own lines go to stderr: stdout is for results. */
export function say(line) {
  process.stderr.write(`setup: ${line}\n`);
}

function run([program, ...words], failure) {
  const result = spawnSync(program, words, {
    stdio: ['ignore', 'pipe', 'pipe'],
    encoding: 'utf8',
    env: { ...process.env, PATH: `${process.env.PATH ?? ''}${delimiter}${SYSTEM_PATH.join(delimiter)}` },
  });
  if (result.status !== 0) {
    throw new SetupError(`${failure}: ${(result.error?.message ?? result.stderr).trim()}`);
  }
}

/**
 * Sets up, then builds the bundles and the shim. What `npm test`, `npm run check`, `npm run demo` and `npm run bench` begin with.
 * Ends the process with 1 and the reason when that can't be done.
 */
export async function prepare({ tests = false } = {}) {
  try {
    setUp({ tests });
    const [{ build }, { buildShim }] = await Promise.all([import('./build.mjs'), import('./build-shim.mjs')]);
    await build();
    const shim = buildShim({ native: true });
    if (shim.failed.length > 0) {
      throw new SetupError(shim.failed.join('\n'));
    }
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    handOver();
    process.exit(1);
  }
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  await prepare({ tests: process.argv.includes('--tests') });
  handOver();
}
