import { chownSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createDockerExecutor, type DockerExecutorOptions } from '../../executors/docker/index.ts';
import { admit } from '../../src/admission/admit.ts';
import { DIMENSIONS, type Dimension } from '../../src/core/dimension.ts';
import type { ResourceLimits } from '../../src/core/job.ts';
import type { GateDecision } from '../../src/core/observation.ts';
import type { ExecutorCapabilities } from '../../src/core/plan.ts';
import type { Ending } from '../../src/core/run.ts';
import { decideGate } from '../../src/evidence/index.ts';
import type { SessionClosing } from '../../src/executor/executor.ts';
import { users, type TestUser } from './accounts.ts';
import { engineEnvironment } from './docker-lab.host.ts';
import type { DockerInstall, DockerPlaces } from './docker-removals.ts';
import { effectiveJob, type NativeJob } from './native-job.ts';
import { temporaryDirectory } from './users.host.ts';

export interface DockerJob extends Partial<Omit<NativeJob, 'argv' | 'workspace' | 'home'>> {
  readonly image?: string;
  readonly runtime?: string;
  readonly hidden?: readonly string[];
  readonly alter?: (install: DockerInstall, places: DockerPlaces) => DockerInstall;
  readonly executor?: Partial<DockerExecutorOptions>;
  /** While the command runs. */
  readonly during?: (stdout: NodeJS.ReadableStream) => Promise<void>;
}

export interface DockerReport {
  readonly decision: GateDecision;
  readonly ending: Ending;
  readonly stdout: string;
  readonly stderr: string;
  readonly levels: Readonly<Record<string, string>>;
  /** `dimension id status`. */
  readonly unmet: readonly string[];
  readonly closing: SessionClosing;
  readonly scratch: string;
  readonly upper: string;
}

/** Directories of one owner, and containers of the session's engine that work there. Runs in this process: as root. */
export class DockerLab {
  readonly base: string;
  readonly workspace: string;
  readonly home: string;
  readonly owner: TestUser;
  readonly #environment: NodeJS.ProcessEnv | string;
  #count = 0;
  #capabilities: ExecutorCapabilities | undefined;

  constructor(owner: TestUser, environment: NodeJS.ProcessEnv | string = engineEnvironment()) {
    this.owner = owner;
    this.#environment = environment;
    this.base = temporaryDirectory(owner, 'proofrun-docker-');
    this.workspace = this.#own(join(this.base, 'work'));
    this.home = this.#own(join(this.base, 'home'));
  }

  #own(path: string): string {
    mkdirSync(path, { recursive: true, mode: 0o755 });
    chownSync(path, this.owner.uid, this.owner.gid);
    return path;
  }

  write(path: string, text: string): string {
    const full = join(this.workspace, path);
    this.#own(dirname(full));
    writeFileSync(full, text);
    chownSync(full, this.owner.uid, this.owner.gid);
    return full;
  }

  async capabilities(): Promise<ExecutorCapabilities> {
    return (this.#capabilities ??= await createDockerExecutor(this.#options({})).probe());
  }

  #options(more: Partial<DockerExecutorOptions>): DockerExecutorOptions {
    const environment = this.#environment;
    if (typeof environment === 'string') throw new Error(environment);
    return { version: '0.0.0-test', environment, ...more };
  }

  /** From launch to close; released when the gate opens. Rejects as launch() does. */
  async run(argv: readonly [string, ...string[]], job: DockerJob = {}): Promise<DockerReport> {
    const run = join(this.base, `run-${++this.#count}`);
    for (const name of ['upper', 'work', 'scratch', 'state']) mkdirSync(join(run, name), { recursive: true, mode: 0o700 });
    chownSync(join(run, 'upper'), this.owner.uid, this.owner.gid);
    writeFileSync(join(run, 'preimage'), '');
    const capabilities = await this.capabilities();
    const { image, runtime, hidden, alter, executor: options, during, ...rest } = job;
    const effective = {
      ...effectiveJob({ mode: 'safe', ...rest, argv, workspace: this.workspace, home: this.home }),
      executor: 'docker' as const,
      image,
      ...(runtime === undefined ? {} : { runtime }),
    };
    const admission = admit(effective, [capabilities]);
    if (admission.kind === 'refused') throw new Error(`refused: ${JSON.stringify(admission.refusal)}`);
    const scratch = join(run, 'scratch');
    const places = { workspace: this.workspace, home: this.home, scratch };
    const executor = createDockerExecutor(this.#options({ ...options, ...(alter === undefined ? {} : { alterInstall: (install) => alter(install, places) }) }));
    const session = await executor.launch({
      plan: admission.plan,
      stage: [{ root: this.workspace, upper: join(run, 'upper'), work: join(run, 'work'), preimage: join(run, 'preimage') }],
      scratch,
      hidden: hidden ?? [],
      stateDirectory: join(run, 'state'),
      io: { kind: 'pipes', stdin: 'none' },
    });
    try {
      const decision = decideGate(admission.plan.needed, session.requirements, session.receipts);
      const parts: { out: Buffer[]; err: Buffer[] } = { out: [], err: [] };
      session.stdout?.on('data', (part: Buffer) => parts.out.push(part));
      session.stderr?.on('data', (part: Buffer) => parts.err.push(part));
      if (decision.kind === 'release') {
        await session.release();
        if (session.stdout !== undefined) await during?.(session.stdout);
        await session.exited;
      }
      const closing = await session.close();
      const ending = await session.exited;
      const { dimensions } = closing.observations;
      return {
        decision,
        ending,
        stdout: Buffer.concat(parts.out).toString(),
        stderr: Buffer.concat(parts.err).toString(),
        levels: Object.fromEntries(DIMENSIONS.map((dimension) => [dimension, dimensions[dimension].level])),
        unmet: DIMENSIONS.flatMap((dimension) =>
          dimensions[dimension].outcomes.filter(({ status }) => status !== 'matched').map(({ id, status }) => `${dimension} ${id} ${status}`),
        ),
        closing,
        scratch,
        upper: join(run, 'upper'),
      };
    } finally {
      await session.close();
    }
  }
}

export const ASKED: readonly Dimension[] = DIMENSIONS.filter((dimension) => dimension !== 'models' && dimension !== 'tools');

/** Levels of the dimensions that are asked for when these are lost. */
export function levelsWithout(lost: readonly Dimension[]): Readonly<Record<string, string>> {
  return Object.fromEntries(DIMENSIONS.map((dimension) => [dimension, ASKED.includes(dimension) && !lost.includes(dimension) ? 'enforced' : 'unenforced']));
}

export const LIMITS: ResourceLimits = {
  processes: 64,
  openFiles: 256,
  wallTimeMs: 60_000,
  tmpSizeBytes: 16 << 20,
  memoryBytes: 256 << 20,
  cpus: 1,
};

export function rootAndOrdinary(): { readonly root: TestUser; readonly ordinary: TestUser } {
  const { root, user } = users();
  if (typeof root === 'string') throw new Error(root);
  if (typeof user === 'string') throw new Error(user);
  return { root, ordinary: user };
}
