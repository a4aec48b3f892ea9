import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmodSync, chownSync, mkdirSync, realpathSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ProofrunError } from '../../src/core/errors.ts';
import type { ExecutorCapabilities } from '../../src/core/plan.ts';
import type {
  BegunLaunch,
  BeginRequest,
  DeadAttempt,
  EagerExecutor,
  LaunchRequest,
  LayeringExecutor,
  ReapingExecutor,
  Session,
} from '../../src/executor/executor.ts';
import { locateShim } from '../shim/locate.host.ts';
import { EXEC_POINTER_BYTES, execPointers } from '../shim/programs.ts';
import { beginLaunch, groupName, type Beginning } from './begin.host.ts';
import { expectedLimits, type CgroupSupport } from './cgroup.ts';
import { detectCgroups, joinCgroup, listCgroups } from './cgroup.host.ts';
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
export function createNativeExecutor(options: NativeExecutorOptions): ReapingExecutor & EagerExecutor & LayeringExecutor {
  let support: CgroupSupport | undefined;
  const cgroups = (): CgroupSupport => (support ??= detectCgroups());
  const beginnings = new WeakMap<BegunLaunch, Beginning>();
  const beginOne = (request: BeginRequest): Beginning =>
    // A test that changes what is installed decides about the group too.
    beginLaunch(request, { shim: options.shim, cgroups, join: options.alterInstall === undefined });
  return {
    id: 'native',
    startsFromLayers: true,
    probe: (): Promise<ExecutorCapabilities> => probeNative(options.version, cgroups),
    begin: (request) => {
      const beginning = beginOne(request);
      const begun: BegunLaunch = { discard: () => beginning.discard() };
      beginnings.set(begun, beginning);
      return begun;
    },
    launch: async (request) => {
      const beginning = (request.begun === undefined ? undefined : beginnings.get(request.begun)) ?? beginOne(request);
      try {
        return await launch(request, options, beginning);
      } finally {
        await beginning.discard();
      }
    },
    reap: (attempt) => reap(attempt, cgroups()),
  };
}

async function launch(request: LaunchRequest, options: NativeExecutorOptions, beginning: Beginning): Promise<Session> {
  if (request.abort?.aborted === true) throw new ProofrunError('ERR_LAUNCH', { message: 'the launch was aborted' });
  const bubblewrap = findBubblewrap();
  if (bubblewrap === undefined) throw new ProofrunError('ERR_LAUNCH', { message: 'bubblewrap is not installed', hint: 'apt-get install bubblewrap' });
  const { child, control, agent, group, joined, survey } = await beginning.started;
  const facts = gatherFacts({ request, bubblewrap, shim: realpathSync(locateShim(options.shim)), survey });
  refuseMounts(request, facts);
  refuseShares(request, facts);
  const nonce = randomBytes(12).toString('hex');
  prepareScratch(request, facts, nonce);
  const names: LaunchNames = {
    nonce,
    cgroupProcs: group?.cgroup.procsFiles ?? [],
    terminal: terminalSize(request),
    execAt: execPointers(randomBytes(EXEC_POINTER_BYTES)),
  };
  const lowered = lower(request, facts, names, group === undefined ? {} : expectedLimits(group.limits, group.support));
  const lowering = { ...lowered, install: options.alterInstall?.(lowered.install) ?? lowered.install };
  beginning.take();
  const network = request.plan.job.permissions.network.kind === 'selective' ? networkOf(request, lowering, child) : undefined;
  const session = new NativeSession({
    request,
    facts,
    lowering,
    cgroup: group?.cgroup,
    child,
    control,
    agent,
    network,
    joined: joined ?? joinCgroup(lowering.install.cgroupProcs, child.pid ?? 0),
  });
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
  if (request.network === undefined) {
    throw new ProofrunError('ERR_LAUNCH', { message: 'the plan opens the network for chosen hosts, and nothing answers there' });
  }
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
  const laid = [...request.stage, ...(request.views ?? [])].map((one) => one.root);
  const roots = [...laid, ...(job.permissions.fileRead.home === 'real' ? [job.home] : [])];
  for (const root of roots) {
    const place = MADE_ANEW.find((one) => root === one || root.startsWith(`${one}/`));
    if (place !== undefined) {
      throw new ProofrunError('ERR_LAUNCH', {
        message: `${root} lies in ${place}, which the sandbox makes anew`,
        hint: 'name a workspace elsewhere: --workspace DIR',
      });
    }
    const inside = mountsInside(root, facts.mounts).filter((path) => !laid.includes(path));
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
