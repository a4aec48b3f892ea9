import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmodSync, chownSync, mkdirSync, realpathSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Duplex } from 'node:stream';
import { ProofrunError, messageOf } from '../../src/core/errors.ts';
import type { ExecutorCapabilities } from '../../src/core/plan.ts';
import type { DeadAttempt, LaunchRequest, ReapingExecutor, Session } from '../../src/executor/executor.ts';
import { locateShim } from '../shim/locate.host.ts';
import { expectedLimits, type CgroupLimits, type CgroupSupport } from './cgroup.ts';
import { createCgroup, detectCgroups, listCgroups, type Cgroup } from './cgroup.host.ts';
import { gatherFacts, mountsInside, type HostFacts } from './facts.host.ts';
import { lower, type LaunchNames, type NativeLowering } from './lower.ts';
import { NativeNetwork } from './network.host.ts';
import { findBubblewrap, probeNative } from './probe.host.ts';
import { NativeSession } from './session.host.ts';

export interface NativeExecutorOptions {
  /** Shown in the run's record; the package's version. */
  readonly version: string;
  /** Another shim: a build with sanitizers. */
  readonly shim?: string;
  /**
   * For tests: changes what is installed, and leaves what is expected as it is. It shows that each control's receipts notice
   * when the control isn't there.
   */
  readonly alterInstall?: (install: NativeLowering['install']) => NativeLowering['install'];
}

/** Namespaces through bubblewrap and the shim: no daemon, no root. */
export function createNativeExecutor(options: NativeExecutorOptions): ReapingExecutor {
  let support: CgroupSupport | undefined;
  const cgroups = (): CgroupSupport => (support ??= detectCgroups());
  return {
    id: 'native',
    probe: (): Promise<ExecutorCapabilities> => probeNative(options.version, cgroups),
    launch: (request) => launch(request, options, cgroups),
    reap: (attempt) => reap(attempt, cgroups()),
  };
}

async function launch(request: LaunchRequest, options: NativeExecutorOptions, cgroups: () => CgroupSupport): Promise<Session> {
  if (request.abort?.aborted === true) throw new ProofrunError('ERR_LAUNCH', { message: 'the launch was aborted' });
  const bubblewrap = findBubblewrap();
  if (bubblewrap === undefined) throw new ProofrunError('ERR_LAUNCH', { message: 'bubblewrap is not installed', hint: 'apt-get install bubblewrap' });
  const facts = gatherFacts({ request, bubblewrap, shim: locateShim(options.shim), environment: process.env });
  refuseMounts(request, facts);
  refuseShares(request, facts);
  const nonce = randomBytes(12).toString('hex');
  prepareScratch(request, facts, nonce);
  const limits = cgroupLimitsOf(request, facts);
  const wanted = limits === undefined ? undefined : cgroups();
  const usable = wanted !== undefined && wanted.places.length > 0 ? wanted : undefined;
  const cgroup = usable === undefined || limits === undefined ? undefined : await createCgroup(usable, groupName(request.scratch), limits);
  try {
    const names: LaunchNames = { nonce, cgroupProcs: cgroup?.procsFiles ?? [], terminal: terminalSize(request) };
    const lowered = lower(request, facts, names, usable === undefined || limits === undefined ? {} : expectedLimits(limits, usable));
    const lowering = { ...lowered, install: options.alterInstall?.(lowered.install) ?? lowered.install };
    return await start(request, facts, lowering, cgroup);
  } catch (error) {
    await cgroup?.remove();
    throw error;
  }
}

async function start(request: LaunchRequest, facts: HostFacts, lowering: NativeLowering, cgroup: Cgroup | undefined): Promise<Session> {
  const terminal = request.io.kind === 'terminal';
  const selective = request.plan.job.permissions.network.kind === 'selective';
  const stdin = request.io.kind === 'pipes' && request.io.stdin === 'none' ? 'ignore' : 'inherit';
  // An empty environment: LD_PRELOAD and the like would act outside the sandbox. Without a terminal it is a session of its own,
  // so that signals of the terminal reach this process alone, which decides what they mean.
  const child = spawn(facts.shim, ['outer'], {
    env: {},
    cwd: '/',
    detached: !terminal,
    // Descriptor 4 is a channel of Node's own, over which sockets come.
    stdio: [
      ...(terminal ? (['inherit', 'inherit', 'inherit', 'pipe'] as const) : ([stdin, 'pipe', 'pipe', 'pipe'] as const)),
      ...(selective ? ['ipc' as const] : []),
    ],
  });
  const control = child.stdio[3];
  if (!(control instanceof Duplex)) throw new ProofrunError('ERR_LAUNCH', { message: 'the shim was started without a control channel' });
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve);
    child.once('error', (error) => {
      reject(new ProofrunError('ERR_LAUNCH', { message: `spawn ${facts.shim}: ${messageOf(error)}`, cause: error }));
    });
  });
  const network = selective ? networkOf(request, lowering, child) : undefined;
  const session = new NativeSession({ request, facts, lowering, cgroup, child, control, network });
  const cancel = (): void => {
    session.signal('SIGKILL');
  };
  request.abort?.addEventListener('abort', cancel, { once: true });
  try {
    await session.reachGate();
    return session;
  } catch (error) {
    await session.abandon();
    throw error;
  } finally {
    request.abort?.removeEventListener('abort', cancel);
  }
}

function networkOf(request: LaunchRequest, { install }: NativeLowering, child: ChildProcess): NativeNetwork {
  if (request.network === undefined)
    throw new ProofrunError('ERR_LAUNCH', { message: 'the plan opens the network for chosen hosts, and nothing answers there' });
  const listeners = install.operations.filter((one) => one.op === 'listener').length;
  return new NativeNetwork({ child, listeners, publish: install.published, service: request.network });
}

/** Directories of one launch: the mount point of the private tmpfs, the private home's layer, the file that must not be seen. */
function prepareScratch(request: LaunchRequest, facts: HostFacts, nonce: string): void {
  const { uid, gid } = facts.job;
  for (const name of ['ns', 'home', 'home/upper', 'home/work']) mkdirSync(join(request.scratch, name), { recursive: true, mode: 0o700 });
  const upper = join(request.scratch, 'home/upper');
  chmodSync(upper, 0o700);
  if (facts.asRoot) chownSync(upper, uid, gid);
  for (const { source } of facts.caches) {
    mkdirSync(source, { recursive: true, mode: 0o700 });
    if (facts.asRoot) chownSync(source, uid, gid);
  }
  writeFileSync(join(request.scratch, `outside-${nonce}`), 'not for the job\n', { mode: 0o644 });
}

/** Places of the host that no sandbox shows. */
const MADE_ANEW = ['/dev', '/proc', '/sys'];

/** overlayfs can't have mounts below its lower directory for an ordinary user, and would show empty directories there for root. */
function refuseMounts(request: LaunchRequest, facts: HostFacts): void {
  const { job } = request.plan;
  const roots = [...request.stage.map((one) => one.root), ...(job.permissions.fileRead.home === 'real' ? [job.home] : [])];
  for (const root of roots) {
    const place = MADE_ANEW.find((one) => root === one || root.startsWith(`${one}/`));
    if (place !== undefined) {
      throw new ProofrunError('ERR_LAUNCH', {
        message: `${root} lies in ${place}, which the sandbox makes anew`,
        hint: 'name a workspace elsewhere: --workspace DIR',
      });
    }
    const inside = mountsInside(root, facts.mounts).filter((path) => !request.stage.some((one) => one.root === path));
    if (inside.length === 0) continue;
    throw new ProofrunError('ERR_LAUNCH', {
      message: `${root} has other filesystems mounted below it (${inside.slice(0, 3).join(', ')}${inside.length > 3 ? ', ...' : ''}): an overlay can't stage them`,
      hint: root === job.home ? 'use --safe, which shows no home' : 'name a workspace without mounts: --workspace DIR',
    });
  }
}

/** A direct share is the host itself: nothing in it can be hidden, and a link on its way would choose what is written without a stage. */
function refuseShares(request: LaunchRequest, facts: HostFacts): void {
  // One that isn't there would be staged in silence, while the review calls it direct.
  const missing = request.plan.job.permissions.fileWrite.direct.find(({ pattern }) => !facts.directShares.some(({ path }) => path === pattern));
  if (missing !== undefined) {
    throw new ProofrunError('ERR_LAUNCH', {
      message: `${missing.pattern} can't be shared for writing: there is no such file or directory`,
      hint: 'make it first',
    });
  }
  for (const { path } of facts.directShares) {
    const real = realpathSync(path);
    if (real !== path) {
      throw new ProofrunError('ERR_LAUNCH', {
        message: `${path} can't be shared for writing: a symbolic link leads from there to ${real}`,
        hint: `name the directory itself: --write-direct ${real}`,
      });
    }
    const state = request.stateDirectory;
    if (isWithin(state, path) || isWithin(path, state)) {
      throw new ProofrunError('ERR_LAUNCH', {
        message: `${path} can't be shared for writing: Proofrun's own records lie ${isWithin(path, state) ? 'above' : 'below'} it, in ${state}`,
        hint: 'share another directory, or keep the records elsewhere with XDG_STATE_HOME',
      });
    }
    const hidden = facts.hiddenPresent.find((one) => isWithin(one, path));
    if (hidden !== undefined) {
      throw new ProofrunError('ERR_LAUNCH', {
        message: `${path} can't be shared for writing: ${hidden} must stay hidden, and a direct share hides nothing`,
        hint: `share a directory without it, or let it be read: --allow-read ${hidden}`,
      });
    }
  }
}

function isWithin(path: string, directory: string): boolean {
  return path === directory || path.startsWith(directory === '/' ? '/' : `${directory}/`);
}

function cgroupLimitsOf(request: LaunchRequest, facts: HostFacts): CgroupLimits | undefined {
  const { limits } = request.plan.job.permissions.resources;
  const wanted: CgroupLimits = {
    ...(limits.memoryBytes === undefined ? {} : { memoryBytes: limits.memoryBytes }),
    ...(limits.swapBytes === undefined ? {} : { swapBytes: limits.swapBytes }),
    ...(limits.cpus === undefined ? {} : { cpus: limits.cpus }),
    ...(limits.processes === undefined || !facts.asRoot ? {} : { processes: limits.processes }),
  };
  return Object.keys(wanted).length === 0 ? undefined : wanted;
}

/** The run's directory name: unique, and the same when the run is reaped later. */
function groupName(scratch: string): string {
  return scratch.split('/').at(-2) ?? 'run';
}

function terminalSize(request: LaunchRequest): LaunchNames['terminal'] {
  if (request.io.kind !== 'terminal') return undefined;
  return { rows: process.stdout.rows, columns: process.stdout.columns };
}

async function reap(attempt: DeadAttempt, support: CgroupSupport): Promise<readonly string[]> {
  const name = groupName(attempt.scratch);
  const left: string[] = [];
  for (const group of listCgroups(support)) if (group.id === name) left.push(...(await group.remove()));
  return left.map((path) => `the control group ${path} could not be removed`);
}
