import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { users } from './accounts.ts';

/** An engine of the tests' own: private socket, data and state; gone when stopped. */
export interface TestEngine {
  /** For DOCKER_HOST. */
  readonly host: string;
  readonly directory: string;
  /** The same engine as somebody elsewhere reaches it: DOCKER_HOST, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH. */
  readonly remote: RemoteEnvironment;
  /** Of dockerd. */
  readonly pid: number;
  /** Kills dockerd with SIGKILL and starts it again on the same data. */
  crash(): Promise<void>;
  stop(): Promise<void>;
}

export type RemoteEnvironment = {
  readonly DOCKER_HOST: string;
  readonly DOCKER_TLS_VERIFY: '1';
  /** Holds ca.pem, cert.pem and key.pem of a client. */
  readonly DOCKER_CERT_PATH: string;
};

const PROGRAMS = ['/usr/sbin/dockerd', '/usr/bin/dockerd'];
/** Overlay where the data directory can have one, else plain copies. */
const DRIVERS = ['overlay2', 'vfs'] as const;

/** Why there can be no engine here; undefined: there can. */
export function whyNoEngine(): string | undefined {
  if (process.getuid?.() !== 0) return 'starting an engine needs root';
  if (!PROGRAMS.some((path) => existsSync(path))) return 'docker.io is not installed; node scripts/setup.mjs --tests adds it';
  return undefined;
}

/**
 * Starts dockerd without a bridge or firewall rules: it touches nothing of the machine's network. The ordinary user of the tests may use its socket.
 * `more`: words for dockerd. Rejects with what it said when it ends before it listens.
 */
export async function startEngine(more: readonly string[] = []): Promise<TestEngine> {
  // Not TMPDIR: the ordinary user has to reach the socket. A session that was killed left its directory.
  sweep();
  const directory = mkdtempSync(`/tmp/proofrun-engine-${process.pid}-`);
  mkdirSync(join(directory, 'run'), { mode: 0o755 });
  chmodSync(directory, 0o755); // mkdtemp makes it 0700
  writeFileSync(join(directory, 'daemon.json'), JSON.stringify({ runtimes: runtimes() }));
  makeAuthority(join(directory, 'tls'));
  const containerd = await startContainerd(directory);
  let child: Daemon | undefined;
  let failure: Error | undefined;
  let driver: (typeof DRIVERS)[number] = 'overlay2';
  for (const one of DRIVERS) {
    try {
      driver = one;
      child = await start(directory, one, more);
      break;
    } catch (error) {
      failure = error instanceof Error ? error : new Error(String(error));
    }
  }
  if (child === undefined) {
    await ended(containerd.child, 'SIGTERM');
    rmSync(directory, { recursive: true, force: true });
    throw failure ?? new Error('dockerd did not start');
  }
  let running = child;
  return {
    host: `unix://${join(directory, 'run', 'docker.sock')}`,
    directory,
    get remote(): RemoteEnvironment {
      return { DOCKER_HOST: `tcp://${addressOf(running)}`, DOCKER_TLS_VERIFY: '1', DOCKER_CERT_PATH: join(directory, 'tls', 'client') };
    },
    get pid() {
      return running.child.pid ?? 0;
    },
    crash: async () => {
      await ended(running.child, 'SIGKILL');
      // Whoever was connected finds it again.
      running = await start(directory, driver, more, addressOf(running));
    },
    stop: async () => {
      await ended(running.child, 'SIGTERM');
      await ended(containerd.child, 'SIGTERM');
      // A container with the host's network leaves a mount of dockerd's behind.
      for (const point of mountsBelow(directory)) spawnSync('umount', ['--lazy', point]);
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

function addressOf({ said }: Daemon): string {
  return /API listen on (127\.0\.0\.1:\d+)/.exec(said)?.[1] ?? 'nowhere';
}

function runtimes(): Record<string, { readonly path: string; readonly runtimeArgs?: readonly string[] }> {
  return {
    ...(existsSync('/usr/bin/crun') ? { crun: { path: '/usr/bin/crun' } } : {}),
    ...(existsSync('/usr/bin/runsc') ? { runsc: { path: '/usr/bin/runsc', runtimeArgs: ['--platform=ptrace', '--network=none'] } } : {}),
  };
}

/** As a service of its own, as distributions run it: it outlives a dockerd that is killed. */
async function startContainerd(directory: string): Promise<Daemon> {
  const config = join(directory, 'containerd.toml');
  const text = [
    'version = 2',
    `root = "${join(directory, 'containerd')}"`,
    `state = "${join(directory, 'exec-containerd')}"`,
    'disabled_plugins = ["io.containerd.grpc.v1.cri"]',
    '[grpc]',
    `address = "${join(directory, 'containerd.sock')}"`,
  ];
  writeFileSync(config, `${text.join('\n')}\n`);
  return await until('containerd', ['/usr/bin/containerd', '--config', config], (said) => said.includes('containerd successfully booted'));
}

interface Daemon {
  readonly child: ChildProcess;
  /** Until it was ready. */
  readonly said: string;
}

/** Starts a daemon that ends with the process that started it, whatever becomes of that one; resolves when it has said that it is ready. */
async function until(name: string, argv: readonly string[], ready: (said: string) => boolean): Promise<Daemon> {
  const child = spawn('setpriv', ['--pdeathsig', 'TERM', '--', ...argv], {
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' },
  });
  let said = '';
  await new Promise<void>((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code) => {
      reject(new Error(`${name} ended with ${String(code)}: ${said.slice(-1000)}`));
    });
    child.stderr.on('data', (part: Buffer) => {
      said = `${said}${part.toString()}`.slice(-20_000);
      if (ready(said)) resolve();
    });
  });
  child.unref();
  return { child, said };
}

/** Own key, certificate of this engine, and certificate of a client, all signed by an authority of this session's. */
function makeAuthority(directory: string): void {
  const client = join(directory, 'client');
  mkdirSync(client, { recursive: true });
  chmodSync(directory, 0o755);
  const run = (...words: readonly string[]): void => {
    const made = spawnSync('openssl', words, { cwd: directory, encoding: 'utf8' });
    if (made.status !== 0) throw new Error(`openssl ${words.join(' ')}: ${made.stderr}`);
  };
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  run('req', '-x509', ...key, '-days', '2', '-keyout', 'ca-key.pem', '-out', 'client/ca.pem', '-subj', '/CN=test authority');
  for (const [name, usage, folder] of [
    ['server', 'serverAuth', '.'],
    ['client', 'clientAuth', 'client'],
  ] as const) {
    writeFileSync(join(directory, `${name}.ext`), `subjectAltName=IP:127.0.0.1\nextendedKeyUsage=${usage}\n`);
    run('req', ...key, '-keyout', `${folder}/key.pem`, '-out', `${name}.csr`, '-subj', `/CN=${name}`);
    const signed = ['-req', '-in', `${name}.csr`, '-CA', 'client/ca.pem', '-CAkey', 'ca-key.pem', '-CAcreateserial', '-days', '2'];
    run('x509', ...signed, '-extfile', `${name}.ext`, '-out', `${folder}/cert.pem`);
  }
  // The ordinary user of the tests is this client too.
  chmodSync(join(client, 'key.pem'), 0o644);
}

async function start(directory: string, driver: string, more: readonly string[], address = '127.0.0.1:0'): Promise<Daemon> {
  const { user } = users();
  const group = typeof user === 'string' ? 0 : user.gid;
  const program = PROGRAMS.find((path) => existsSync(path)) ?? 'dockerd';
  const words = [
    ...['--config-file', join(directory, 'daemon.json'), '--host', `unix://${join(directory, 'run', 'docker.sock')}`, '--group', String(group)],
    ...[
      '--data-root',
      join(directory, 'data'),
      '--exec-root',
      join(directory, 'exec'),
      '--pidfile',
      join(directory, 'docker.pid'),
      '--containerd',
      join(directory, 'containerd.sock'),
    ],
    ...['--bridge=none', '--iptables=false', '--ip6tables=false', '--ip-forward=false', '--ip-masq=false', '--userland-proxy=false'],
    ...['--host', `tcp://${address}`, '--tlsverify', '--tlscacert', join(directory, 'tls/client/ca.pem')],
    ...['--tlscert', join(directory, 'tls/cert.pem'), '--tlskey', join(directory, 'tls/key.pem')],
    ...['--exec-opt', 'native.cgroupdriver=cgroupfs', '--storage-driver', driver, ...more],
  ];
  return await until('dockerd', [program, ...words], (said) => said.includes('API listen on /') && said.includes('API listen on 127.'));
}

async function ended(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.ref();
  const gone = new Promise((resolve) => child.once('exit', resolve));
  child.kill(signal);
  await gone;
}

function mountsBelow(directory: string): readonly string[] {
  return readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
    .filter((point) => point.startsWith(`${directory}/`))
    .reverse();
}

function sweep(): void {
  for (const name of readdirSync('/tmp')) {
    const pid = /^proofrun-engine-(\d+)-/.exec(name)?.[1];
    if (pid === undefined || existsSync(`/proc/${pid}`)) continue;
    if (mountsBelow(join('/tmp', name)).length === 0) rmSync(join('/tmp', name), { recursive: true, force: true });
  }
}
