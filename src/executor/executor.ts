import type { Readable, Writable } from 'node:stream';
import type { ReadablePath } from '../core/bundle.ts';
import type { StagedRoot } from '../core/change.ts';
import type { ExecutorObservations } from '../core/observation.ts';
import type { ExecutorCapabilities, ExecutorId, ExecutorPlan, PinnedImage } from '../core/plan.ts';
import type { Receipt, ReceiptRequirement } from '../core/receipt.ts';
import type { Ending } from '../core/run.ts';
import type { NetworkAccount, NetworkService } from './network.ts';

/** Where the command's three streams go. */
export type IoPlan =
  /** stdin: a descriptor of ours (0) or none. stdout and stderr arrive as streams, with backpressure. */
  | { readonly kind: 'pipes'; readonly stdin: 'inherit' | 'none' }
  /** The caller's terminal is relayed to a pty that the shim makes. */
  | { readonly kind: 'terminal' };

/** What the runner prepared on the host before a launch. */
export interface LaunchRequest {
  readonly plan: ExecutorPlan;
  /** Staged roots in the order of plan.job.permissions.fileWrite.stage. */
  readonly stage: readonly StagedRoot[];
  /** Host directories that the job sees without writing, each with a staged result over it. Only for an executor that starts from layers. */
  readonly views?: readonly StagedView[];
  /** A 0700 directory of this attempt for what is thrown away: private home, its work directory. */
  readonly scratch: string;
  /** Literal absolute paths that must read as absent (literals and the matches of globs at the start). */
  readonly hidden: readonly string[];
  /** The state directory: always hidden. */
  readonly stateDirectory: string;
  /** AgentCtl: where the job finds its socket, and a 0700 directory of the host for the owner's. Only for a plan that has `agentSocket`. */
  readonly agent?: { readonly guestSocket: string; readonly hostDirectory: string };
  /** Login files for the private home: where the job finds each, and our copy of it (0600). */
  readonly logins?: readonly { readonly path: string; readonly source: string }[];
  readonly io: IoPlan;
  /** Of the same executor, for the same plan, scratch, io and agent. */
  readonly begun?: BegunLaunch;
  /** What answers the job's connections, when the plan opens the network for chosen hosts. */
  readonly network?: NetworkService;
  /** Cancels a launch that has not reached the gate. */
  readonly abort?: AbortSignal;
}

/** A directory as a run left it, read-only. */
export type StagedView = Required<Pick<StagedRoot, 'root' | 'base' | 'earlier'>>;

/** A sandbox that is built and waits at the gate. close() must be called, whatever happened. */
export interface Session {
  /** Read at the gate; complete before the promise of launch() resolves. */
  readonly receipts: readonly Receipt[];
  /** What the lowering says is owed, both phases. */
  readonly requirements: readonly ReceiptRequirement[];
  /** Present with pipes. */
  readonly stdout: Readable | undefined;
  readonly stderr: Readable | undefined;
  readonly stdin: Writable | undefined;
  /** Host process ids of the sandbox, for the record (never evidence). */
  readonly hostPids: readonly number[];
  /** Host paths that the sandbox shows, as it was built; for the review. Absent: the executor doesn't choose them. */
  readonly readable?: readonly ReadablePath[];
  /** Directory of the host in which what the job writes to its private home lies, as the job left it, until the runner removes the scratch. Absent: there is none. */
  readonly privateHome?: string;
  /** AgentCtl's connections. Present when the request asked for it. */
  readonly agent?: AgentLink | undefined;
  /** Lets the command start. Rejects if the sandbox is gone. */
  release(): Promise<void>;
  /** Sends a signal to the command (name such as SIGTERM). SIGKILL ends the whole tree. */
  signal(name: NodeJS.Signals): void;
  /** Resolves once, when the command ended or never started. Never rejects. */
  readonly exited: Promise<Ending>;
  /** Idempotent. Ends the tree, waits for it, takes the final receipts, removes mounts and cgroups. */
  close(): Promise<SessionClosing>;
}

/** The connections of AgentCtl, as the sandbox carries them. What comes from the side `guest` was said by the job. */
export interface AgentLink {
  /** Hands over what has arrived since the launch, and all that follows. Once. */
  attach(listener: AgentListener): void;
  /** A guest that doesn't read loses its connection. */
  send(connection: number, text: string): void;
  /** When everything is sent. */
  close(connection: number): void;
}

export interface AgentListener {
  opened(connection: number, side: 'guest' | 'host'): void;
  data(connection: number, bytes: Uint8Array): void;
  closed(connection: number): void;
  /** A peer of another uid was turned away from the host's socket. */
  refused(uid: number): void;
}

export interface SessionClosing {
  readonly observations: ExecutorObservations;
  /** Peaks that were read: bytes, counts. null: not observed. */
  readonly peaks: { readonly memoryBytes: number | null; readonly processes: number | null; readonly cpuTimeMs: number | null };
  /** Limits that were hit, by name. */
  readonly limitHits: readonly string[];
  /** Processes that outlived the command and were killed: name and pid in the job. */
  readonly killed: readonly { readonly pid: number; readonly name: string }[];
  readonly warnings: readonly string[];
  /** What the job's connections came to. Absent: nobody answered them. */
  readonly network?: NetworkAccount;
  /** What was written to the private home and thrown away. null: not observed. */
  readonly discarded: { readonly files: number; readonly bytes: number; readonly top: readonly { readonly path: string; readonly files: number }[] } | null;
}

/** A backend. An optional ability is an extra interface named by a capability, never a throwing stub. */
export interface Executor {
  readonly id: ExecutorId;
  /** Looks at the machine now. Never throws: an unavailable executor says why and what would help. */
  probe(): Promise<ExecutorCapabilities>;
  /** Rejects with ERR_LAUNCH (the failing call named) and leaves nothing behind. */
  launch(request: LaunchRequest): Promise<Session>;
}

/** What a launch knows before its stage is there. */
export type BeginRequest = Pick<LaunchRequest, 'plan' | 'scratch' | 'io' | 'agent'>;

/** A launch that was begun before its stage was there. */
export interface BegunLaunch {
  /** Ends what was begun. Without effect once a launch took it. Idempotent, never rejects. */
  discard(): Promise<void>;
}

/** A backend that can do a part of a launch while the stage is still being prepared. */
export interface EagerExecutor extends Executor {
  /** Never throws: what fails is told by the launch that takes it, as LaunchRequest.begun. */
  begin(request: BeginRequest): BegunLaunch;
}

export function canBegin(executor: Executor): executor is EagerExecutor {
  return 'begin' in executor && typeof executor.begin === 'function';
}

/** A backend that can lay a stage over the staged result of another run (StagedRoot.base), and show one read-only (LaunchRequest.views). */
export interface LayeringExecutor extends Executor {
  readonly startsFromLayers: true;
}

export function startsFromLayers(executor: Executor): executor is LayeringExecutor {
  return 'startsFromLayers' in executor && executor.startsFromLayers === true;
}

/** An attempt whose owner died. */
export interface DeadAttempt {
  readonly runId: string;
  readonly attempt: string;
  /** The scratch directory that its launch was given; it may be gone. */
  readonly scratch: string;
}

/**
 * A backend whose sandboxes can leave what doesn't end with their processes (control groups, containers). The runner kills the processes
 * that were recorded, then asks for the rest.
 */
export interface ReapingExecutor extends Executor {
  /** Idempotent; never touches a living attempt. Resolves to what could not be removed, in words. */
  reap(attempt: DeadAttempt): Promise<readonly string[]>;
}

export function canReap(executor: Executor): executor is ReapingExecutor {
  return 'reap' in executor && typeof executor.reap === 'function';
}

/** When a missing or old image is fetched from its registry. */
export const PULL_POLICIES = ['never', 'missing', 'always'] as const;
export type PullPolicy = (typeof PULL_POLICIES)[number];

export interface PullProgress {
  readonly reference: string;
  /** The engine's words for what goes on. */
  readonly status: string;
  readonly bytes: number;
  /** Of the layers that are known so far. */
  readonly totalBytes: number;
}

/** A backend that runs commands in images (capability `images`): it says which image a name is, once, before a plan is made of it. */
export interface ImageExecutor extends Executor {
  /** Rejects with ERR_IMAGE (not there, or not to be had), ERR_EXECUTOR_UNAVAILABLE. */
  pinImage(reference: string, pull: PullPolicy, progress?: (progress: PullProgress) => void): Promise<PinnedImage>;
}

export function canPin(executor: Executor): executor is ImageExecutor {
  return 'pinImage' in executor && typeof executor.pinImage === 'function';
}
