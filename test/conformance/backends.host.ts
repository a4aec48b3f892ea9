import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, realpathSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createDockerExecutor } from '../../executors/docker/index.ts';
import { createHostExecutor } from '../../executors/host/index.ts';
import type { ControlId, ExecutorCapabilities, ExecutorId } from '../../src/core/plan.ts';
import type { Ending } from '../../src/core/run.ts';
import type { Executor, IoPlan, LaunchRequest, Session, SessionClosing } from '../../src/executor/executor.ts';
import { planFor } from '../support/conformance-job.ts';
import { engineClient, engineEnvironment, ensureImage, remoteEnvironment } from '../support/docker-lab.host.ts';
import { removeTree } from '../support/users.host.ts';

export interface Backend {
  /** As REQUIRE_EXECUTORS names it: an executor, or one in a place of its own. */
  readonly id: ExecutorId | 'docker-remote';
  /** Undefined: not built into this version. */
  readonly load: (() => Promise<Executor>) | undefined;
  /** Controls that this executor never has, wherever it runs: requirements that need them don't apply. */
  readonly never: (control: ControlId) => boolean;
}

/** The native executor is loaded by its path, so that this suite also runs before it is there. */
function nativeLoader(): (() => Promise<Executor>) | undefined {
  const file = new URL('../../executors/native/index.ts', import.meta.url);
  if (!existsSync(file)) return undefined;
  return async () => {
    const module: unknown = await import(/* @vite-ignore */ file.href);
    if (typeof module !== 'object' || module === null || !('createNativeExecutor' in module) || typeof module.createNativeExecutor !== 'function') {
      throw new Error('executors/native/index.ts exports no createNativeExecutor');
    }
    return (module.createNativeExecutor as (options: { readonly version: string }) => Executor)({ version: '0.0.0-test' });
  };
}

/** On the session's engine; else whatever engine this environment names. */
async function loadDocker(): Promise<Executor> {
  const environment = engineEnvironment();
  if (typeof environment === 'string') return createDockerExecutor({ version: '0.0.0-test' });
  await ensureImage(engineClient());
  return createDockerExecutor({ version: '0.0.0-test', environment });
}

/** Its engine over TCP with TLS: the workspace is sent there, and the changes come back. */
async function loadRemoteDocker(): Promise<Executor> {
  const environment = remoteEnvironment();
  if (typeof environment === 'string') return createDockerExecutor({ version: '0.0.0-test', environment: { DOCKER_HOST: 'tcp://127.0.0.1:1' } });
  await ensureImage(engineClient());
  return createDockerExecutor({ version: '0.0.0-test', environment });
}

export const BACKENDS: readonly Backend[] = [
  { id: 'host', load: async () => createHostExecutor({ version: '0.0.0-test' }), never: (control) => control !== 'environment' && control !== 'wall_time' },
  { id: 'native', load: nativeLoader(), never: () => false },
  { id: 'docker', load: loadDocker, never: () => false },
  { id: 'docker-remote', load: loadRemoteDocker, never: () => false },
];

/** REQUIRE_EXECUTORS=native,docker: what has to be here, so that a skip is a failure. Who needs docker needs both ways to reach it. */
export const REQUIRED: ReadonlySet<string> = new Set(
  (process.env['REQUIRE_EXECUTORS'] ?? '').split(',').flatMap((name) => (name === '' ? [] : name === 'docker' ? ['docker', 'docker-remote'] : [name])),
);

export interface CommandOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** Replaces the whole environment. */
  readonly exactEnv?: Readonly<Record<string, string>>;
  /** Relative to the workspace. */
  readonly cwd?: string;
  readonly wallTimeMs?: number;
  readonly io?: IoPlan;
  readonly abort?: AbortSignal;
}

/** One executor on this machine, with directories for its runs; `dispose` removes them. */
export class Bench {
  readonly executor: Executor;
  readonly capabilities: ExecutorCapabilities;
  readonly root: string;
  readonly workspace: string;
  /** In the environment of every command, so that its processes can be found from outside. */
  readonly mark: string;
  readonly #sessions: Session[] = [];
  #count = 0;

  constructor(executor: Executor, capabilities: ExecutorCapabilities) {
    this.executor = executor;
    this.capabilities = capabilities;
    this.root = realpathSync(mkdtempSync(join(tmpdir(), 'proofrun-conformance-')));
    this.workspace = join(this.root, 'workspace');
    this.mark = `conformance-${process.pid}-${this.root.slice(-6)}`;
    mkdirSync(join(this.workspace, 'sub'), { recursive: true });
  }

  request(argv: readonly [string, ...string[]], options: CommandOptions = {}): LaunchRequest {
    const run = join(this.root, `run-${++this.#count}`);
    for (const name of ['upper', 'work', 'scratch', 'state']) mkdirSync(join(run, name), { recursive: true, mode: 0o700 });
    writeFileSync(join(run, 'preimage'), '');
    const plan = planFor(
      {
        argv,
        workspace: this.workspace,
        cwd: options.cwd === undefined ? this.workspace : join(this.workspace, options.cwd),
        home: realpathSync(process.env['HOME'] ?? '/'),
        environment: options.exactEnv ?? { PATH: '/usr/local/bin:/usr/bin:/bin', MARK: this.mark, ...options.env },
        ...(options.wallTimeMs === undefined ? {} : { wallTimeMs: options.wallTimeMs }),
      },
      this.capabilities,
    );
    return {
      plan,
      stage: plan.job.permissions.fileWrite.stage.map((root) => ({
        root,
        upper: join(run, 'upper'),
        work: join(run, 'work'),
        preimage: join(run, 'preimage'),
      })),
      scratch: join(run, 'scratch'),
      hidden: [],
      stateDirectory: join(run, 'state'),
      io: options.io ?? { kind: 'pipes', stdin: 'none' },
      ...(options.abort === undefined ? {} : { abort: options.abort }),
    };
  }

  /** Up to the gate. Closed with the bench, if the test didn't do so. */
  async launch(argv: readonly [string, ...string[]], options?: CommandOptions): Promise<Session> {
    const session = await this.executor.launch(this.request(argv, options));
    this.#sessions.push(session);
    return session;
  }

  /** From launch to close, all output read. */
  async run(
    argv: readonly [string, ...string[]],
    options?: CommandOptions,
  ): Promise<{ readonly ending: Ending; readonly stdout: Buffer; readonly stderr: Buffer; readonly closing: SessionClosing }> {
    const session = await this.launch(argv, options);
    const output = Promise.all([collect(session.stdout), collect(session.stderr)]);
    await session.release();
    const ending = await session.exited;
    const closing = await session.close();
    const [stdout, stderr] = await output;
    return { ending, stdout, stderr, closing };
  }

  /** Names and numbers of living processes, anywhere on the machine, that carry the mark. Zombies carry nothing. */
  marked(mark = this.mark): readonly string[] {
    return readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
      .filter((pid) => readOr(`/proc/${pid}/environ`).includes(mark) || readOr(`/proc/${pid}/cmdline`).includes(mark))
      .map((pid) => `${pid} ${readOr(`/proc/${pid}/comm`).trim()}`);
  }

  async dispose(): Promise<void> {
    for (const session of this.#sessions.splice(0)) {
      session.stdout?.destroy();
      session.stderr?.destroy();
      await session.close();
    }
    removeTree(this.root);
  }
}

function readOr(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '';
  }
}

export async function collect(stream: AsyncIterable<unknown> | undefined): Promise<Buffer> {
  const parts: Buffer[] = [];
  if (stream !== undefined) for await (const part of stream) parts.push(Buffer.from(part as Uint8Array));
  return Buffer.concat(parts);
}

/** A reader that takes lines one at a time and holds nothing back from the stream in between. */
export function lineReader(stream: AsyncIterable<unknown> | undefined): { next(): Promise<string> } {
  if (stream === undefined) throw new Error('the session has no such stream');
  const chunks = stream[Symbol.asyncIterator]();
  let text = '';
  return {
    next: async () => {
      for (;;) {
        const end = text.indexOf('\n');
        if (end >= 0) {
          const line = text.slice(0, end);
          text = text.slice(end + 1);
          return line;
        }
        const step: IteratorResult<unknown> = await chunks.next();
        if (step.done === true) throw new Error(`the stream ended after ${JSON.stringify(text)}`);
        text += Buffer.from(step.value as Uint8Array).toString();
      }
    },
  };
}
