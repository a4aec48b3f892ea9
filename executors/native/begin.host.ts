import { spawn, type ChildProcess } from 'node:child_process';
import { Duplex } from 'node:stream';
import { messageOf, ProofrunError } from '../../src/core/errors.ts';
import type { BeginRequest, LaunchRequest } from '../../src/executor/executor.ts';
import { locateShim } from '../shim/locate.host.ts';
import type { CgroupLimits, CgroupSupport } from './cgroup.ts';
import { createCgroup, joinCgroup, type Cgroup } from './cgroup.host.ts';
import { surveyHost, type HostSurvey } from './facts.host.ts';

/** The control group of a launch, with what it was made from. */
export interface LaunchGroup {
  readonly cgroup: Cgroup;
  readonly limits: CgroupLimits;
  readonly support: CgroupSupport;
}

/** Outer, which has done nothing yet and has no child. */
export interface StartedOuter {
  readonly child: ChildProcess;
  readonly control: Duplex;
  /** The channel of AgentCtl's guard. undefined: the request has no AgentCtl. */
  readonly agent: Duplex | undefined;
  /** undefined: the job needs none, or this machine lets the caller have none. */
  readonly group: LaunchGroup | undefined;
  /** Resolves when outer is in the group. undefined: nobody has asked for it yet. */
  readonly joined: Promise<void> | undefined;
  /** Of the host, read meanwhile. */
  readonly survey: HostSurvey;
}

/** What a launch does before it knows the stage. */
export interface Beginning {
  /** Rejects with ERR_LAUNCH; then there is nothing to end. */
  readonly started: Promise<StartedOuter>;
  /** From now on somebody else ends outer and its group. */
  take(): void;
  /** Ends outer and removes its group, unless they were taken. Idempotent, never rejects. */
  discard(): Promise<void>;
}

export interface BeginOptions {
  readonly shim: string | undefined;
  readonly cgroups: () => CgroupSupport;
  /** Whether outer is put into its group at once: a migration takes the kernel some 10 ms, in which the stage is prepared. */
  readonly join: boolean;
}

/** Starts outer and looks at the host while it comes up. */
export function beginLaunch(request: BeginRequest, options: BeginOptions): Beginning {
  const started = start(request, options);
  // Whoever launches is told; one that never comes isn't.
  started.catch(() => undefined);
  let taken = false;
  let ended: Promise<void> | undefined;
  const end = async (): Promise<void> => {
    const outer = await started.catch(() => undefined);
    if (outer !== undefined) await endOuter(outer.child, outer.control, outer.group);
  };
  return {
    started,
    take: () => {
      taken = true;
    },
    discard: async () => {
      if (taken) return;
      await (ended ??= end());
    },
  };
}

async function start(request: BeginRequest, options: BeginOptions): Promise<StartedOuter> {
  const { child, control, agent, spawned } = spawnOuter(locateShim(options.shim), request);
  let group: LaunchGroup | undefined;
  try {
    group = await makeGroup(request, options);
    // The pid is there before the event.
    const joined = options.join ? joinCgroup(group?.cgroup.procsFiles ?? [], child.pid ?? 0) : undefined;
    joined?.catch(() => undefined);
    const survey = surveyHost(request.plan.job, process.env);
    await spawned;
    return { child, control, agent, group, joined, survey };
  } catch (error) {
    await endOuter(child, control, group);
    throw error;
  }
}

function spawnOuter(
  shim: string,
  { io, agent: wanted }: BeginRequest,
): Pick<StartedOuter, 'child' | 'control' | 'agent'> & { readonly spawned: Promise<void> } {
  const terminal = io.kind === 'terminal';
  const stdin = io.kind === 'pipes' && io.stdin === 'none' ? 'ignore' : 'inherit';
  // An empty environment: LD_PRELOAD and the like would act outside the sandbox. Without a terminal it is a session of its own,
  // so that signals of the terminal reach this process alone, which decides what they mean.
  const child = spawn(shim, ['outer'], {
    env: {},
    cwd: '/',
    detached: !terminal,
    stdio: [
      ...(terminal ? (['inherit', 'inherit', 'inherit'] as const) : ([stdin, 'pipe', 'pipe'] as const)),
      'pipe',
      ...(wanted === undefined ? [] : (['ignore', 'pipe'] as const)),
    ],
  });
  const control = child.stdio[3];
  if (!(control instanceof Duplex)) throw new ProofrunError('ERR_LAUNCH', { message: 'the shim was started without a control channel' });
  const agent = Array.from<unknown>(child.stdio)[5];
  const spawned = new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve);
    child.once('error', (error) => {
      reject(new ProofrunError('ERR_LAUNCH', { message: `spawn ${shim}: ${messageOf(error)}`, cause: error }));
    });
  });
  // Who awaits it is told; somebody else's failure may come first.
  spawned.catch(() => undefined);
  return { child, control, agent: agent instanceof Duplex ? agent : undefined, spawned };
}

async function makeGroup({ plan, scratch }: Pick<LaunchRequest, 'plan' | 'scratch'>, { cgroups }: BeginOptions): Promise<LaunchGroup | undefined> {
  const { limits: asked } = plan.job.permissions.resources;
  const asRoot = process.geteuid?.() === 0;
  const limits: CgroupLimits = {
    ...(asked.memoryBytes === undefined ? {} : { memoryBytes: asked.memoryBytes }),
    ...(asked.swapBytes === undefined ? {} : { swapBytes: asked.swapBytes }),
    ...(asked.cpus === undefined ? {} : { cpus: asked.cpus }),
    // An ordinary user's processes are limited by RLIMIT_NPROC in a user namespace of the job's own.
    ...(asked.processes === undefined || !asRoot ? {} : { processes: asked.processes }),
  };
  if (Object.keys(limits).length === 0) return undefined;
  const support = cgroups();
  return support.places.length === 0 ? undefined : { cgroup: await createCgroup(support, groupName(scratch), limits), limits, support };
}

/** The run's directory name: unique, and the same when the run is reaped later. */
export function groupName(scratch: string): string {
  return scratch.split('/').at(-2) ?? 'run';
}

/** Hang-up ends an outer that was told nothing; its group goes after it. */
async function endOuter(child: ChildProcess, control: Duplex, group: LaunchGroup | undefined): Promise<void> {
  const gone = new Promise<void>((resolve) => {
    if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) resolve();
    else child.once('exit', () => resolve());
  });
  control.destroy();
  child.stdout?.resume();
  child.stderr?.resume();
  await gone;
  await group?.cgroup.remove().catch(() => []);
}
