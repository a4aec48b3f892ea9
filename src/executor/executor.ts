import type { Readable, Writable } from 'node:stream';
import type { ReadablePath } from '../core/bundle.ts';
import type { StagedRoot } from '../core/change.ts';
import type { ExecutorObservations } from '../core/observation.ts';
import type { ExecutorCapabilities, ExecutorId, ExecutorPlan } from '../core/plan.ts';
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
  /** A 0700 directory of this attempt for what is thrown away: private home, its work directory. */
  readonly scratch: string;
  /** Literal absolute paths that must read as absent (literals and the matches of globs at the start). */
  readonly hidden: readonly string[];
  /** The state directory: always hidden. */
  readonly stateDirectory: string;
  readonly io: IoPlan;
  /** What answers the job's connections, when the plan opens the network for chosen hosts. */
  readonly network?: NetworkService;
  /** Cancels a launch that has not reached the gate. */
  readonly abort?: AbortSignal;
}

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
  /** Lets the command start. Rejects if the sandbox is gone. */
  release(): Promise<void>;
  /** Sends a signal to the command (name such as SIGTERM). SIGKILL ends the whole tree. */
  signal(name: NodeJS.Signals): void;
  /** Resolves once, when the command ended or never started. Never rejects. */
  readonly exited: Promise<Ending>;
  /** Idempotent. Ends the tree, waits for it, takes the final receipts, removes mounts and cgroups. */
  close(): Promise<SessionClosing>;
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
