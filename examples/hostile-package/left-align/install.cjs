// What a malicious install script does, kept harmless by three rules: it does nothing without the story's .armed.json, it sends and
// keeps no secret (only whether it got one), and everything that it starts is bounded.
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');

const shop = process.env.INIT_CWD ?? process.cwd();
const MARK = 'left-align was here';

main();

async function main() {
  let arms;
  try {
    arms = JSON.parse(fs.readFileSync(path.join(shop, '.armed.json'), 'utf8'));
  } catch {
    return;
  }
  for (const [name, attempt] of Object.entries(attempts(arms))) {
    if (arms.only !== undefined && !arms.only.includes(name)) {
      continue;
    }
    let outcome;
    try {
      outcome = `ok ${await attempt()}`;
    } catch (error) {
      outcome = `failed ${error.code ?? error.message}`;
    }
    process.stdout.write(`left-align: ${name}: ${outcome}\n`);
  }
}

/** Name -> attempt. One that gets what it wants returns words about it; one that doesn't throws. */
function attempts({ home, outside, port, socket, victim, processes }) {
  return {
    'read ~/.ssh/id_ed25519': () => got(path.join(os.homedir(), '.ssh', 'id_ed25519')),
    'read the key by its full path': () => got(path.join(home, '.ssh', 'id_ed25519')),
    'read .env': () => got(path.join(shop, '.env')),
    'read AWS_SECRET_ACCESS_KEY': () => {
      if (process.env.AWS_SECRET_ACCESS_KEY === undefined) {
        throw new Error('not set');
      }
      return 'set';
    },
    'list the home': () => {
      const names = fs.readdirSync(home);
      if (!names.includes('.ssh')) {
        throw new Error(`no .ssh among ${names.length} names`);
      }
      return `${names.length} names`;
    },
    'plant .git/hooks/pre-commit': () => plant(path.join(shop, '.git', 'hooks', 'pre-commit')),
    'plant .husky/pre-commit': () => plant(path.join(shop, '.husky', 'pre-commit')),
    'append to ~/.bashrc': () => append(path.join(os.homedir(), '.bashrc')),
    'append to .bashrc by its full path': () => append(path.join(home, '.bashrc')),
    'write outside the project': () => append(path.join(outside, 'planted')),
    'write /etc/left-align': () => append('/etc/left-align'),
    'phone home to 127.0.0.1': () => connect({ host: '127.0.0.1', port }),
    'phone home over a unix socket': () => connect({ path: socket }),
    'phone home to https://example.com': () =>
      fetch('https://example.com', { signal: AbortSignal.timeout(5000) }).then(
        (answer) => `status ${answer.status}`,
        (error) => Promise.reject(error.cause ?? error),
      ),
    'read /proc/1/environ': () => got('/proc/1/environ'),
    'open /proc/1/mem': () => fs.closeSync(fs.openSync('/proc/1/mem', 'r+')) ?? 'opened for writing',
    'trace process 1': () => trace(1),
    "read another process's environment": () => got(`/proc/${victim}/environ`),
    'kill a process of the host': () => process.kill(victim, 'SIGKILL') && `sent SIGKILL to ${victim}`,
    'fork without end': () => forks(processes),
  };
}

function got(file) {
  return `${fs.readFileSync(file).length} bytes`;
}

function plant(file) {
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, `#!/bin/sh\necho '${MARK}' > "$HOME/owned"\n`, { mode: 0o755 });
  return 'written';
}

function append(file) {
  fs.appendFileSync(file, `# ${MARK}\n`);
  return 'written';
}

function connect(target) {
  return new Promise((resolve, reject) => {
    const client = net.connect(target, () => {
      client.end(MARK);
      resolve('connected');
    });
    client.setTimeout(3000, () => client.destroy(new Error('no answer')));
    client.on('error', reject);
  });
}

function trace(pid) {
  const number = { x64: 101, arm64: 117 }[process.arch];
  const PTRACE_ATTACH = 16;
  const run = spawnSync('perl', ['-e', `syscall(${number}, ${PTRACE_ATTACH}, ${pid}, 0, 0) == 0 or do { print STDERR "$!"; exit 1 }`], { encoding: 'utf8' });
  if (run.status !== 0) {
    throw run.error ?? new Error(run.stderr.trim());
  }
  return 'attached';
}

/** As many children as are let, at most `count`. All but three are ended again, so that npm can go on; the three outlive it. */
function forks(count) {
  const script = `i=0; while [ $i -lt ${count} ]; do sleep 60.0417 >/dev/null 2>&1 </dev/null & echo $!; i=$((i+1)); done`;
  const run = spawnSync('sh', ['-c', script], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  const pids = run.stdout
    .split('\n')
    .filter((line) => line !== '')
    .map(Number);
  for (const pid of pids.slice(3)) {
    process.kill(pid, 'SIGKILL');
  }
  if (pids.length < count) {
    throw new Error(`stopped at ${pids.length} of ${count} processes`);
  }
  return `${pids.length} processes`;
}
