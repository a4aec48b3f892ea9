import { buildSync } from 'esbuild';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { Duplex } from 'node:stream';
import { basename, dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll } from 'vitest';
import type { ExecutorCapabilities } from '../../src/core/plan.ts';
import type { NativeReport, NativeRequest } from '../fixtures/native-driver.ts';
import { installation, nodeFor } from './job-command.host.ts';
import type { NativeJob } from './native-job.ts';
import { temporaryDirectory, type TestUser } from './users.host.ts';

const CLONE = resolve(import.meta.dirname, '../..');

/** The driver, bundled so that the user can read it and the code finds its own package.json above. */
function driverFor(user: TestUser): string {
  const known = drivers.get(user.name);
  if (known !== undefined) return known;
  const directory = join(installation(user), 'build', `native-driver-${process.pid}`);
  const driver = join(directory, 'driver.mjs');
  mkdirSync(directory, { recursive: true });
  buildSync({
    entryPoints: [join(CLONE, 'test/fixtures/native-driver.ts')],
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    outfile: driver,
    banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" },
    logLevel: 'error',
  });
  for (const path of [dirname(directory), directory]) chmodSync(path, 0o755);
  chmodSync(driver, 0o644);
  drivers.set(user.name, driver);
  return driver;
}

const drivers = new Map<string, string>();
afterAll(() => {
  for (const driver of drivers.values()) rmSync(dirname(driver), { recursive: true, force: true });
  drivers.clear();
});

/** The shim that a user's sandboxes are made with. */
export function shimFor(user: TestUser): string {
  return join(installation(user), 'prebuilt', `linux-${process.arch}`, 'proofrun-shim');
}

/**
 * argv prefix that gives the driver a pid and a mount namespace of its own: whatever an altered shim signals, or mounts, stays in there. Only root can
 * make them without a user namespace around them, in which bubblewrap would no longer be seen to belong to root: undefined for anybody else.
 */
export function apart(user: TestUser, ...more: readonly string[]): readonly string[] | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const become = user.uid === 0 ? [] : ['/usr/bin/setpriv', '--reuid', String(user.uid), '--regid', String(user.gid), '--clear-groups', '--'];
  return ['/usr/bin/unshare', '--pid', '--mount', '--fork', '--kill-child', '--mount-proc', '--', ...more, ...become];
}

export interface DriverOptions {
  /** argv that comes before node: unshare(1) and its options. */
  readonly through?: readonly string[];
  /** Descriptors 0 to 2, and more from 4 on. Default: nothing to read, the rest to the test's standard error. */
  readonly stdio?: readonly (number | 'ignore' | 'inherit' | 'pipe')[];
  readonly env?: Readonly<Record<string, string>>;
}

/** A process of a user's that runs sandboxes. */
export class NativeDriver {
  readonly child: ChildProcess;
  private readonly channel: Duplex;
  private readonly waiting = new Map<number, { resolve: (report: unknown) => void; reject: (error: Error) => void }>();
  private readonly user: TestUser;
  private last = 0;

  constructor(user: TestUser, options: DriverOptions = {}) {
    this.user = user;
    const argv = [...(options.through ?? []), nodeFor(user), driverFor(user)];
    const [zero = 'ignore', one = 'ignore', two = 'inherit', , ...more] = options.stdio ?? [];
    const ids = user.uid === process.getuid?.() || options.through !== undefined ? {} : { uid: user.uid, gid: user.gid };
    this.child = spawn(argv[0] ?? '', argv.slice(1), {
      cwd: '/',
      env: { PATH: '/usr/local/bin:/usr/bin:/bin', HOME: user.home, USER: user.name, LANG: 'C.UTF-8', ...options.env },
      stdio: [zero, one, two, 'pipe', ...more],
      ...ids,
    });
    const channel = this.child.stdio[3];
    if (!(channel instanceof Duplex)) throw new Error('the driver has no channel');
    this.channel = channel;
    this.channel.on('error', () => undefined);
    const lines = createInterface({ input: this.channel });
    lines.on('error', () => undefined); // the end of the process says it
    lines.on('line', (line) => {
      const { id, report } = JSON.parse(line) as { readonly id: number; readonly report: unknown };
      this.waiting.get(id)?.resolve(report);
      this.waiting.delete(id);
    });
    this.child.once('close', (code, signal) => {
      for (const { reject } of this.waiting.values()) reject(new Error(`the driver ended (${String(code ?? signal)})`));
      this.waiting.clear();
    });
  }

  private ask(request: Omit<NativeRequest, 'id' | 'shim'> & { readonly shim?: string | undefined }): Promise<unknown> {
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      if (this.child.exitCode !== null || this.child.signalCode !== null) {
        reject(new Error(`the driver ended (${String(this.child.exitCode ?? this.child.signalCode)})`));
        return;
      }
      this.waiting.set(id, { resolve, reject });
      this.channel.write(`${JSON.stringify({ ...request, id, shim: request.shim ?? shimFor(this.user) })}\n`);
    });
  }

  async capabilities(): Promise<ExecutorCapabilities> {
    return (await this.ask({ verb: 'probe', base: '' })) as ExecutorCapabilities;
  }

  async run(request: Omit<NativeRequest, 'id' | 'verb' | 'shim'> & { readonly shim?: string | undefined }): Promise<NativeReport> {
    return (await this.ask({ ...request, verb: 'run' })) as NativeReport;
  }

  async then(verb: 'release' | 'signal' | 'close', base: string, signal?: NodeJS.Signals): Promise<NativeReport> {
    return (await this.ask({ verb, base, ...(signal === undefined ? {} : { signal }) })) as NativeReport;
  }

  async reap(base: string): Promise<readonly string[]> {
    return (await this.ask({ verb: 'reap', base })) as readonly string[];
  }

  /** SIGKILL, and waits until it is gone. */
  async kill(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const gone = once(this.child, 'exit');
    this.child.kill('SIGKILL');
    await gone;
  }

  async end(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const gone = once(this.child, 'exit');
    this.channel.end();
    await gone;
  }
}

export interface LabRun extends Partial<Omit<NativeJob, 'argv' | 'workspace' | 'home'>> {
  readonly hidden?: readonly string[];
  readonly stdin?: 'inherit' | 'none';
  readonly names?: Readonly<Record<string, number>>;
  readonly nameserver?: string;
  readonly alterations?: readonly string[];
  readonly parameters?: Readonly<Record<string, string>>;
  readonly callerEnv?: Readonly<Record<string, string>>;
  readonly shim?: string | undefined;
  readonly stop?: 'gate' | 'line';
}

/** A workspace and a home of a user's, and sandboxes over them. One driver for all, unless a test brings its own. */
export class NativeLab {
  readonly user: TestUser;
  readonly owner: TestUser;
  readonly base: string;
  readonly workspace: string;
  readonly home: string;
  private driver: NativeDriver | undefined;
  private runs = 0;

  /** `owner`: whose the workspace and home are, when root runs the sandbox of somebody else. */
  constructor(user: TestUser, owner: TestUser = user) {
    this.user = user;
    this.owner = owner;
    this.base = temporaryDirectory(user, 'proofrun-native-');
    chmodSync(this.base, 0o755);
    this.workspace = this.directory(join(this.base, 'work'));
    this.home = this.directory(join(this.base, 'home'));
  }

  /** A directory that belongs to the owner. */
  directory(path: string, mode = 0o755): string {
    mkdirSync(path, { recursive: true });
    chmodSync(path, mode);
    chownSync(path, this.owner.uid, this.owner.gid);
    return path;
  }

  /** A file of the owner's, relative to the workspace. */
  write(path: string, text: string | Uint8Array, mode = 0o644): string {
    const full = resolve(this.workspace, path);
    if (dirname(full) !== this.workspace) this.directory(dirname(full));
    writeFileSync(full, text);
    chmodSync(full, mode);
    chownSync(full, this.owner.uid, this.owner.gid);
    return full;
  }

  get shared(): NativeDriver {
    if (this.driver === undefined) {
      const driver = new NativeDriver(this.user);
      this.driver = driver;
    }
    return this.driver;
  }

  /** Where the directories of the next run will lie. */
  nextBase(): string {
    // Its name is that of the run's control group: no other test may have it.
    const base = join(this.base, `${basename(this.base)}-${++this.runs}`);
    mkdirSync(base);
    chownSync(base, this.user.uid, this.user.gid);
    return base;
  }

  /** From launch to close, or up to `stop`. Under --safe unless another mode is named. */
  async run(argv: readonly [string, ...string[]], options: LabRun = {}, driver: NativeDriver = this.shared, base = this.nextBase()): Promise<NativeReport> {
    const { hidden, stdin, names, nameserver, alterations, parameters, callerEnv, shim, stop, ...job } = options;
    return await driver.run({
      base,
      job: { mode: 'safe', ...job, argv, workspace: this.workspace, home: this.home },
      hidden: hidden ?? [],
      stdin: stdin ?? 'none',
      shim,
      ...(names === undefined ? {} : { names }),
      ...(nameserver === undefined ? {} : { nameserver }),
      ...(alterations === undefined ? {} : { alterations }),
      ...(parameters === undefined ? {} : { parameters }),
      ...(callerEnv === undefined ? {} : { callerEnv }),
      ...(stop === undefined ? {} : { stop }),
    });
  }

  async dispose(): Promise<void> {
    await this.driver?.end();
    this.driver = undefined;
  }
}
