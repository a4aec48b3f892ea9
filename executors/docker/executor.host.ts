import { randomBytes } from 'node:crypto';
import { realpathSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type Docker from 'dockerode';
import { ProofrunError, messageOf } from '../../src/core/errors.ts';
import type { ExecutorCapabilities, PinnedImage } from '../../src/core/plan.ts';
import type { DeadAttempt, ImageExecutor, LaunchRequest, PullPolicy, PullProgress, ReapingExecutor, Session } from '../../src/executor/executor.ts';
import { loadCarrier } from './apart/carrier.host.ts';
import { AttachChannel } from './attach-channel.host.ts';
import { placeName } from '../../src/executor/kept-places.ts';
import { locateShim } from '../shim/locate.host.ts';
import { EXEC_POINTER_BYTES, execPointers } from '../shim/programs.ts';
import { connect, findEndpoint } from './connect.host.ts';
import { acceptOnce, openProbeTargets, type OneAccept } from './control-socket.host.ts';
import { gatherFacts, groupOf, ownOwner, type DockerFacts } from './facts.host.ts';
import { DEFAULT_IMAGE, findImage, pinImage } from './images.host.ts';
import { prepareLayers } from './layers.host.ts';
import { lower, type DockerLowering } from './lower.ts';
import { capabilitiesOf, obstacleOf, readEngine, unavailable, type ProbedEngine } from './probe.host.ts';
import type { Obstacle } from './obstacle.ts';
import { reapRun, sweepOrphans } from './reap.host.ts';
import { isUserSpaceKernel } from './runtimes.ts';
import { scrubDirectories } from './scrub.host.ts';
import { DockerSession, launchError } from './session.host.ts';
import { callerTerminal } from './terminal.host.ts';

export interface DockerExecutorOptions {
  /** Shown in the run's record; the package's version. */
  readonly version: string;
  /** Which engine, and what `docker login` kept. Default: this process's environment. */
  readonly environment?: NodeJS.ProcessEnv;
  /** An OCI runtime that the engine knows. Default: the engine's. */
  readonly runtime?: string;
  /** How the shim reaches this process. Default: a socket, or the container's own input and output where none gets through. */
  readonly channel?: 'socket' | 'attach';
  /** Whether the engine sees this machine's files. Default: found out. */
  readonly workspace?: 'seen' | 'sent';
  /** Another shim: a build with a part left out. */
  readonly shim?: string;
  /** For tests: changes what is installed, and leaves what is expected as it is. */
  readonly alterInstall?: (install: DockerLowering['install']) => DockerLowering['install'];
}

/** How long a container may take from its start to the shim's first word. */
const FIRST_WORD_MS = 60_000;

/** Containers of a Docker engine: the shim is their entrypoint, and the same receipts are owed. */
export function createDockerExecutor(options: DockerExecutorOptions): ReapingExecutor & ImageExecutor {
  const environment = options.environment ?? process.env;
  const home = homedir();
  let probed: Promise<ProbedEngine | Obstacle> | undefined;
  const ask = async (): Promise<ProbedEngine | Obstacle> => {
    try {
      const connection = await connect(findEndpoint(environment, home));
      if ('obstacle' in connection) return connection.obstacle;
      const found = readEngine(connection, options.workspace);
      return obstacleOf(found) ?? found;
    } catch (error) {
      return { reason: messageOf(error), remedy: error instanceof ProofrunError && error.hint !== undefined ? error.hint : 'job doctor' };
    }
  };
  const engine = async (): Promise<ProbedEngine> => {
    const found = await (probed ??= ask());
    if ('engine' in found) return found;
    // An engine that was started since is asked again.
    probed = undefined;
    throw new ProofrunError('ERR_EXECUTOR_UNAVAILABLE', { message: found.reason, hint: found.remedy });
  };
  return {
    id: 'docker',
    probe: async (): Promise<ExecutorCapabilities> => {
      probed = ask();
      const found = await probed;
      if (!('engine' in found)) return unavailable(options.version, found);
      const image = await findImage(found.engine, DEFAULT_IMAGE).catch(() => undefined);
      return capabilitiesOf(options.version, found, image === undefined ? undefined : DEFAULT_IMAGE);
    },
    launch: async (request) => launch(request, options, await engine(), environment, home),
    pinImage: async (reference: string, pull: PullPolicy, progress?: (progress: PullProgress) => void): Promise<PinnedImage> =>
      pinImage((await engine()).engine, reference, { pull, environment, home, ...(progress === undefined ? {} : { progress }) }),
    reap: async (attempt: DeadAttempt) => reapRun((await engine()).engine, attempt.scratch, locateShim(options.shim)),
  };
}

async function launch(
  request: LaunchRequest,
  options: DockerExecutorOptions,
  probed: ProbedEngine,
  environment: NodeJS.ProcessEnv,
  home: string,
): Promise<Session> {
  if (request.abort?.aborted === true) throw aborted();
  refuseArguments(request);
  refusePaths(request);
  const { engine, apart } = probed;
  const { plan } = request;
  const pinned = plan.image ?? (await pinImage(engine, plan.job.image ?? DEFAULT_IMAGE, { pull: 'never', environment, home }));
  const image = await findImage(engine, pinned.id);
  if (image === undefined) {
    throw new ProofrunError('ERR_IMAGE', { message: `the image ${pinned.reference} (${pinned.id}) is not on the engine any more`, hint: 'run the job again' });
  }
  const nonce = randomBytes(12).toString('hex');
  const targets = await openProbeTargets(`proofrun-${nonce}`, join(request.scratch, 'probe.sock'));
  let listener: OneAccept | undefined;
  try {
    const socket = engine.chosen.endpoint.kind === 'unix' ? engine.chosen.endpoint.path : undefined;
    const facts = gatherFacts({
      request,
      engine: probed.info,
      apart,
      image,
      bridge: probed.bridge,
      shim: locateShim(options.shim),
      owner: ownOwner(),
      environment,
      cacheSource: (profile, path) => join(request.stateDirectory, 'caches', profile, placeName(path)),
      socketGroup: socket === undefined ? undefined : groupOf(realpathSync(socket)),
      tcpPort: targets.tcpPort,
    });
    refuseShares(request, facts);
    const terminal = request.io.kind === 'terminal' ? callerTerminal() : undefined;
    const runtime = plan.job.runtime ?? options.runtime;
    // A kernel in user space hands no socket of this machine on unless it is told to.
    const channel = options.channel ?? (apart || isUserSpaceKernel(runtime ?? probed.info.defaultRuntime) ? 'attach' : 'socket');
    const lowered = lower(request, facts, { nonce, terminal: terminal?.size, execAt: execPointers(randomBytes(EXEC_POINTER_BYTES)), runtime, channel });
    const lowering = { ...lowered, install: options.alterInstall?.(lowered.install) ?? lowered.install };
    await prepareLayers(request, facts, lowering.mounts, nonce);
    if (channel === 'socket') listener = await acceptOnce(join(request.scratch, 'control'), facts.asRoot ? facts.job : undefined);
    const labels = lowering.install.body.Labels;
    const carrier = apart ? await loadCarrier({ docker: engine.docker, image: image.id, labels, request, facts, mounts: lowering.mounts }) : undefined;
    let container: Docker.Container | undefined;
    let removed: Promise<unknown>;
    let control: Duplex;
    try {
      container = await create(engine.docker, lowering);
      removed = container.wait({ condition: 'removed' });
      removed.catch(() => undefined); // the session hears of it
      control = await firstWord(container, removed, listener, request.abort);
    } catch (error) {
      await container?.remove({ force: true, v: true }).catch(() => undefined);
      await carrier?.remove();
      throw error;
    }
    const scrub = (directories: readonly string[]) => scrubDirectories(engine.docker, { image: image.id, shim: facts.shim, directories, labels });
    const session = new DockerSession({ request, facts, lowering, container, removed, control, terminal, carrier, scrub });
    const cancel = (): void => {
      session.signal('SIGKILL');
    };
    request.abort?.addEventListener('abort', cancel, { once: true });
    try {
      await session.reachGate();
      // What earlier runs left is taken away while this one waits; it doesn't wait for that.
      void sweepOrphans(engine, request.stateDirectory).catch(() => undefined);
      return session;
    } catch (error) {
      await session.abandon();
      throw error;
    } finally {
      request.abort?.removeEventListener('abort', cancel);
    }
  } finally {
    listener?.close();
    targets.close();
  }
}

async function create(docker: Docker, lowering: DockerLowering): Promise<Docker.Container> {
  try {
    return await docker.createContainer(lowering.install.body as unknown as Docker.ContainerCreateOptions);
  } catch (error) {
    throw new ProofrunError('ERR_LAUNCH', { message: `the engine can't make the container: ${messageOf(error)}`, hint: 'job doctor', cause: error });
  }
}

/** Starts the container; resolves to the shim's connection. Rejects when it ends before, when it takes too long, or when it is cancelled. */
async function firstWord(
  container: Docker.Container,
  removed: Promise<unknown>,
  listener: OneAccept | undefined,
  abort: AbortSignal | undefined,
): Promise<Duplex> {
  const attached = listener === undefined ? await attach(container) : undefined;
  const over = new AbortController();
  const cancelled = new Promise<never>((_, reject) => {
    const cancel = (): void => {
      reject(aborted());
    };
    if (abort?.aborted === true) cancel();
    abort?.addEventListener('abort', cancel, { once: true, signal: over.signal });
  });
  cancelled.catch(() => undefined);
  const late = delay(FIRST_WORD_MS, undefined, { signal: over.signal }).then(
    () => Promise.reject(launchError(`the container said nothing within ${FIRST_WORD_MS / 1000} s`)),
    () => new Promise<never>(() => undefined),
  );
  const running = container.start();
  const started = running.then(
    () => new Promise<never>(() => undefined),
    (error: unknown) =>
      Promise.reject(
        new ProofrunError('ERR_LAUNCH', { message: `the engine can't start the container: ${messageOf(error)}`, hint: 'job doctor', cause: error }),
      ),
  );
  const connection: Promise<Duplex> =
    attached === undefined ? (listener === undefined ? new Promise<never>(() => undefined) : listener.accepted) : running.then(() => attached);
  const ended = removed.then(
    () => Promise.reject(launchError('the container ended before the shim connected')),
    (error: unknown) => Promise.reject(launchError(`the engine was lost: ${messageOf(error)}`)),
  );
  try {
    return await Promise.race([connection, cancelled, late, started, preferStart(started, ended)]);
  } finally {
    over.abort();
  }
}

async function attach(container: Docker.Container): Promise<Duplex> {
  const raw = await container.attach({ stream: true, stdin: true, stdout: true, stderr: true, hijack: true });
  return new AttachChannel(raw as Duplex);
}

/** A container that can't be started is removed at once: the reason is worth a moment's wait. */
async function preferStart(started: Promise<never>, ended: Promise<never>): Promise<never> {
  try {
    return await ended;
  } catch (error) {
    await Promise.race([started, delay(1000)]);
    throw error;
  }
}

function aborted(): ProofrunError {
  return new ProofrunError('ERR_LAUNCH', { message: 'the launch was aborted' });
}

/** Frames carry text that ends with NUL: found before a container is made for nothing. */
function refuseArguments({ plan: { job } }: LaunchRequest): void {
  const holding = [...job.argv, ...Object.entries(job.permissions.credentials.environment).flat()].find((one) => one.includes('\0'));
  if (holding !== undefined) {
    throw new ProofrunError('ERR_LAUNCH', { message: `an argument or variable holds a NUL byte: ${JSON.stringify(holding)}` });
  }
}

/** Places that a container has of its own. */
const OWN_PLACES = ['/dev', '/proc', '/sys', '/.proofrun'];

function refusePaths(request: LaunchRequest): void {
  const { job } = request.plan;
  for (const root of [job.home, ...request.stage.map((one) => one.root), ...job.permissions.fileWrite.direct.map((one) => one.pattern)]) {
    const place = OWN_PLACES.find((one) => root === one || root.startsWith(`${one}/`));
    if (place === undefined && root !== '/') continue;
    throw new ProofrunError('ERR_LAUNCH', {
      message: `${root} ${place === undefined ? 'is the root, which a container has from its image' : `lies in ${place}, which a container has of its own`}`,
      hint: 'name a directory elsewhere',
    });
  }
}

/** A direct share is the host itself: nothing in it can be hidden, and a link on its way would choose what is written without a stage. */
function refuseShares(request: LaunchRequest, facts: DockerFacts): void {
  for (const { pattern } of request.plan.job.permissions.fileWrite.direct) {
    const share = facts.direct.find(({ path }) => path === pattern);
    const present = statSync(pattern, { throwIfNoEntry: false });
    if (share === undefined) {
      const reason = present === undefined ? 'there is no such file or directory' : 'it is neither a file nor a directory';
      throw new ProofrunError('ERR_LAUNCH', { message: `${pattern} can't be shared for writing: ${reason}`, hint: 'make it first' });
    }
    const real = realpathSync(pattern);
    if (real !== pattern) {
      throw new ProofrunError('ERR_LAUNCH', {
        message: `${pattern} can't be shared for writing: a symbolic link leads from there to ${real}`,
        hint: `name the directory itself: --write-direct ${real}`,
      });
    }
    const hidden = [request.stateDirectory, ...facts.hiddenPresent].find((one) => isWithin(one, pattern) || isWithin(pattern, one));
    if (hidden !== undefined) {
      throw new ProofrunError('ERR_LAUNCH', {
        message: `${pattern} can't be shared for writing: ${hidden} must stay hidden, and a direct share hides nothing`,
        hint: 'share a directory without it',
      });
    }
  }
}

function isWithin(path: string, directory: string): boolean {
  return path === directory || path.startsWith(directory === '/' ? '/' : `${directory}/`);
}
