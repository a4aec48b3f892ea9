// The story of README.md. `node story.mjs [--job PATH]` runs it; exits with 1 when an attempt got through or an expectation failed.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir, userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = dirname(fileURLToPath(import.meta.url));
const at = process.argv.indexOf('--job');
const JOB = [process.execPath, at === -1 ? join(HERE, '../../dist/job.js') : process.argv[at + 1]];

const CANARY = `canary-${Math.random().toString(36).slice(2)}${Math.random().toString(36).slice(2)}`;
const FORK_MARK = 'sleep\0' + '60.0417\0';
const NPM_INSTALL = ['npm', 'install', '--offline', '--foreground-scripts', '--no-audit', '--no-fund'];

/** What the install script may get and still have got nothing: these writes are staged or thrown away. */
const KEPT_AWAY = {
  'plant .git/hooks/pre-commit': 'staged; apply needs --allow-exec',
  'plant .husky/pre-commit': 'staged; apply needs --allow-exec',
  'append to ~/.bashrc': 'private home, thrown away',
  'append to .bashrc by its full path': 'private home, thrown away',
  'fork without end': 'all of them ended with the run',
};
/** Not tried without a sandbox: they could hurt this machine, need rights that few have, or leave it. */
const NOT_IN_THE_OPEN = [
  'write /etc/left-align',
  'phone home to https://example.com',
  'read /proc/1/environ',
  'open /proc/1/mem',
  'trace process 1',
  'fork without end',
];

const temporary = mkdtempSync(join(tmpdir(), 'proofrun-demo-'));
const victims = [];
const failures = [];

try {
  packLeftAlign();
  const open = await inTheOpen();
  const boxed = await sandboxed();
  verdict(open, boxed);
} catch (error) {
  failures.push(error instanceof Error ? error.message : String(error));
} finally {
  for (const victim of victims) {
    victim.kill('SIGKILL');
  }
  rmSync(temporary, { recursive: true, force: true });
}

if (failures.length > 0) {
  console.log(`\nFAILED\n${failures.map((line) => `  ${line}`).join('\n')}`);
  process.exit(1);
}
process.exit(0);

/** The package as a registry would serve it. */
function packLeftAlign() {
  const vendor = join(temporary, 'vendor');
  mkdirSync(vendor);
  must(['npm', 'pack', '--silent', '--pack-destination', vendor, join(HERE, 'left-align')], { cwd: temporary, env: environment(temporary) });
}

/** A shop in a git work tree, a home with a key, a directory outside the project, a listener and a process to attack. */
async function stageSet(name) {
  const folder = join(temporary, name);
  const set = {
    shop: join(folder, 'shop'),
    home: join(folder, 'home'),
    outside: join(folder, 'outside'),
    socket: join(folder, 'listener.sock'),
    connections: [],
  };
  mkdirSync(join(set.home, '.ssh'), { recursive: true });
  mkdirSync(set.outside);
  writeFileSync(join(set.home, '.ssh', 'id_ed25519'), `-----BEGIN OPENSSH PRIVATE KEY-----\n${CANARY}\n-----END OPENSSH PRIVATE KEY-----\n`, { mode: 0o600 });
  writeFileSync(join(set.home, '.bashrc'), 'export EDITOR=vi\n');
  writeFileSync(join(set.outside, 'notes.txt'), 'untouched\n');
  cpSync(join(HERE, 'shop'), set.shop, { recursive: true });
  cpSync(join(temporary, 'vendor'), join(set.shop, 'vendor'), { recursive: true });
  allowInstallScript(set.shop);
  writeFileSync(join(set.shop, '.env'), `DATABASE_URL=postgres://shop:${CANARY}@localhost/shop\n`);
  writeFileSync(join(set.shop, '.gitignore'), 'node_modules/\n.env\n.armed.json\n');
  const git = (...words) => must(['git', '-c', 'user.name=shop', '-c', 'user.email=shop@localhost', ...words], { cwd: set.shop, env: environment(set.home) });
  git('init', '--quiet', '--template=');
  git('add', '.');
  git('commit', '--quiet', '--message=shop');

  set.servers = [await listen({ host: '127.0.0.1', port: 0 }, set.connections), await listen({ path: set.socket }, set.connections)];
  set.victim = spawn('sleep', ['600'], { stdio: 'ignore', env: { TOKEN: CANARY } });
  victims.push(set.victim);
  const arms = { home: set.home, outside: set.outside, port: set.servers[0].address().port, socket: set.socket, victim: set.victim.pid, processes: 600 };
  set.arm = (only) => writeFileSync(join(set.shop, '.armed.json'), JSON.stringify({ ...arms, only }));
  set.env = { ...environment(set.home), AWS_SECRET_ACCESS_KEY: CANARY, XDG_STATE_HOME: join(folder, 'state') };
  set.close = () => set.servers.forEach((server) => server.close());
  return set;
}

/** npm asks since version 11 whose install scripts may run. This person says yes: that is what the story is about. */
function allowInstallScript(shop) {
  const file = join(shop, 'package.json');
  const manifest = JSON.parse(readFileSync(file, 'utf8'));
  manifest.allowScripts = { [`file:${join(shop, 'vendor', 'left-align-1.0.0.tgz')}`]: true };
  writeFileSync(file, `${JSON.stringify(manifest, null, 2)}\n`);
}

/** 1. The control arm: what can't succeed without a sandbox would prove nothing inside one. */
async function inTheOpen() {
  title('1. Without a sandbox (harmless form, throw-away home): npm install');
  const set = await stageSet('open');
  const names = attemptNames().filter((name) => !NOT_IN_THE_OPEN.includes(name));
  set.arm(names);
  const outcomes = readOutcomes((await run(NPM_INSTALL, set)).stdout);
  set.close();
  for (const name of names) {
    const outcome = outcomes.get(name);
    console.log(`  ${name.padEnd(40)} ${outcome ?? '-'}`);
    expect(outcome?.startsWith('ok ') === true, `control arm: "${name}" should succeed without a sandbox, but: ${outcome ?? 'was not tried'}`);
  }
  expect(set.connections.length === 2, `control arm: the listener should have been reached twice, not ${set.connections.length} times`);
  expect(set.victim.signalCode === 'SIGKILL' || set.victim.killed || !alive(set.victim.pid), 'control arm: the victim should be dead');
  return outcomes;
}

/** 2 to 4. The same package under --safe. */
async function sandboxed() {
  title('2. job run --safe --no-net -- npm install');
  const set = await stageSet('safe');
  set.arm();
  const before = photograph(set);
  const install = await run([...JOB, 'run', '--safe', '--no-net', '--', ...NPM_INSTALL], set, 'show');
  const outcomes = readOutcomes(install.stdout);
  expect(install.code === 0, `job run -- npm install exited ${install.code}`);
  assertUntouched(set, before, 'after npm install');
  expect(!`${install.stdout}${install.stderr}`.includes(CANARY), 'a secret was printed');

  title('3. What was enforced: job status --review last');
  const review = await run([...JOB, 'status', '--review', 'last'], set, 'show');
  expect(review.code === 0, `job status --review exited ${review.code}`);
  for (const control of ['File reads', 'File writes', 'Network', 'Subprocesses']) {
    expect(new RegExp(`^${control}\\s.*\\senforced\\s`, 'm').test(review.stdout), `${control} is not enforced`);
  }

  title('4. What it changed: job diff last .husky');
  const diff = await run([...JOB, 'diff', 'last', '.husky'], set, 'show');
  expect(diff.code === 0 && diff.stdout.includes('left-align was here'), 'the diff should show the planted hook');

  title('5. The hook stays out, the packages come in: job apply last');
  const refused = await run([...JOB, 'apply', 'last', '--path', '.husky'], set, 'show');
  expect(refused.code === 205, `job apply of a hook should be refused with 205, exited ${refused.code}`);
  const apply = await run(
    [...JOB, 'apply', 'last', '--path', 'node_modules', '--path', 'package-lock.json', '--allow-exec', 'node_modules/left-align/package.json'],
    set,
    'show',
  );
  expect(apply.code === 0, `job apply exited ${apply.code}`);
  expect(existsSync(join(set.shop, 'node_modules/left-align/index.cjs')), 'node_modules should have come in');
  assertUntouched(set, before, 'after job apply');

  title('6. job run --safe --no-net -- npm test, then job apply last --path reports');
  const tests = await run([...JOB, 'run', '--safe', '--no-net', '--', 'npm', 'test'], set, 'show');
  expect(tests.code === 0, `job run -- npm test exited ${tests.code}`);
  expect(!existsSync(join(set.shop, 'reports')), 'the report should be staged, not written');
  const report = await run([...JOB, 'apply', 'last', '--path', 'reports'], set, 'show');
  expect(report.code === 0 && existsSync(join(set.shop, 'reports/receipt.txt')), 'the report should have come in');
  assertUntouched(set, before, 'at the end');
  expect(set.connections.length === 0, `the listener was reached ${set.connections.length} times`);
  expect(alive(set.victim.pid), 'the victim process is dead');
  set.close();
  return outcomes;
}

function verdict(open, boxed) {
  title('Verdict');
  console.log(`  ${'ATTEMPT'.padEnd(35)} WITHOUT    UNDER JOB`);
  let stopped = 0;
  for (const name of attemptNames()) {
    const outcome = boxed.get(name);
    const succeeded = outcome?.startsWith('ok ') === true;
    const fine = outcome !== undefined && (!succeeded || name in KEPT_AWAY);
    stopped += fine ? 1 : 0;
    const words =
      outcome === undefined ? 'was not tried' : succeeded ? (KEPT_AWAY[name] ?? `GOT THROUGH: ${outcome.slice(3)}`) : outcome.replace(/^failed /, '');
    console.log(
      `  ${name.padEnd(35)} ${(NOT_IN_THE_OPEN.includes(name) ? 'not tried' : open.get(name)?.startsWith('ok ') ? 'succeeded' : 'failed').padEnd(10)} ${words}`,
    );
    expect(fine, `"${name}": ${words}`);
  }
  console.log(`\n  ${stopped} of ${attemptNames().length} attempts were stopped or kept away from this machine.`);
  if (failures.length === 0) {
    console.log('  Seen from outside: the key was not read, no connection arrived, nothing outside the stage changed, no process was left.');
  }
}

/** The names in the order of the script's own table. */
function attemptNames() {
  const text = readFileSync(join(HERE, 'left-align', 'install.cjs'), 'utf8');
  return [...text.matchAll(/^ {4}(?:'([^']+)'|"([^"]+)"): \(\) =>/gm)].map((match) => match[1] ?? match[2]);
}

function readOutcomes(stdout) {
  return new Map([...stdout.matchAll(/^left-align: (.+?): ((?:ok|failed) .*)$/gm)].map((match) => [match[1], match[2].trim()]));
}

/** Everything outside the stage that the package aimed at. */
function photograph({ home, outside, shop }) {
  return {
    key: readFileSync(join(home, '.ssh', 'id_ed25519'), 'utf8'),
    bashrc: readFileSync(join(home, '.bashrc'), 'utf8'),
    ssh: readdirSync(join(home, '.ssh')),
    outside: readdirSync(outside),
    hooks: existsSync(join(shop, '.git', 'hooks')),
    husky: existsSync(join(shop, '.husky')),
    etc: existsSync('/etc/left-align'),
    home: readdirSync(home).filter((name) => !['.local', '.cache', '.config'].includes(name)),
    processes: processesLike(FORK_MARK),
  };
}

function assertUntouched(set, before, when) {
  try {
    assert.deepEqual(photograph(set), before);
  } catch (error) {
    failures.push(`${when} something outside the stage had changed:\n${error.message}`);
  }
}

function processesLike(commandLine) {
  return readdirSync('/proc').filter((name) => {
    try {
      return /^\d+$/.test(name) && readFileSync(join('/proc', name, 'cmdline'), 'utf8') === commandLine;
    } catch {
      return false;
    }
  });
}

function alive(pid) {
  try {
    process.kill(pid, 0);
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

function listen(where, connections) {
  return new Promise((resolve, reject) => {
    const server = createServer((client) => {
      connections.push(where);
      client.on('error', () => undefined);
      client.resume();
    });
    server.on('error', reject);
    server.listen(where, () => resolve(server));
  });
}

/** A small environment: nothing of npm's own variables, which would lead the npm inside to this package's folder. */
function environment(home) {
  return {
    PATH: process.env.PATH,
    HOME: home,
    USER: userInfo().username,
    LANG: 'C.UTF-8',
    ...(process.env.TERM === undefined ? {} : { TERM: process.env.TERM }),
  };
}

function must([program, ...words], options) {
  const result = spawnSync(program, words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], ...options });
  if (result.status !== 0) {
    throw new Error(`${program} ${words.join(' ')} failed: ${result.error?.message ?? result.stderr.trim()}`);
  }
}

/** Runs a command in the shop; with 'show' its output is seen as it comes. */
function run(argv, set, show) {
  if (show !== undefined) {
    console.log(
      `  $ ${argv
        .map((word) => (word === JOB[0] ? '' : word === JOB[1] ? 'job' : word))
        .filter((word) => word !== '')
        .join(' ')}\n`,
    );
  }
  return new Promise((resolve, reject) => {
    const child = spawn(argv[0], argv.slice(1), { cwd: set.shop, env: set.env, stdio: ['ignore', 'pipe', 'pipe'] });
    const text = { stdout: '', stderr: '' };
    for (const name of ['stdout', 'stderr']) {
      child[name].setEncoding('utf8').on('data', (part) => {
        text[name] += part;
        if (show !== undefined) {
          process.stdout.write(part);
        }
      });
    }
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, ...text }));
  });
}

function expect(holds, message) {
  if (!holds) {
    failures.push(message);
  }
}

function title(text) {
  console.log(`\n--- ${text}\n`);
}
