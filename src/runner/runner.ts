import type { Writable } from 'node:stream';
import type { RunBundle } from '../core/bundle.ts';
import type { RunId } from '../core/ids.ts';
import type { EffectiveJob } from '../core/job.ts';
import type { ExecutorPlan, Refusal } from '../core/plan.ts';
import type { Ending, RunState, StageState } from '../core/run.ts';
import type { Executor } from '../executor/executor.ts';
import type { ExecutesOnHost } from '../policy/executes.ts';
import type { Store } from '../store/index.ts';
import type { OutputListener } from './output-pump.host.ts';
import type { AtPoint, LoginPoint } from './points.ts';
import type { StartingPoint } from './starting-point.host.ts';
import type { UpstreamSettings } from './run-network.host.ts';

/** What every run of one process shares. */
export interface RunnerParts {
  /** Absolute, made and checked by openStore. */
  readonly stateDirectory: string;
  readonly store: Store;
  /** The executor of a plan. Loads its code when first asked. */
  readonly executor: (id: ExecutorPlan['executor']) => Promise<Executor>;
  /** Absolute path of proofrun-shim, for reading the stage. */
  readonly shim: string;
  /** The table of what the host runs by itself. Asked for when there are changes. */
  readonly executesOnHost: () => Promise<ExecutesOnHost>;
  /** How this machine reaches the world, for jobs whose rules name hosts. */
  readonly upstream: UpstreamSettings;
  /** Milliseconds since the epoch. */
  readonly clock: () => number;
  /** Crash tests only. */
  readonly at?: AtPoint;
  /** Crash tests only: told of moments in the writing back of a login, while its lock is held. */
  readonly atLogin?: (point: LoginPoint) => void;
}

/** Where the command's streams go on our side. */
export type RunIo =
  /** stdin: our descriptor 0, or nothing. A sink that is undefined: only kept. */
  | { readonly kind: 'pipes'; readonly stdin: 'inherit' | 'none'; readonly stdout: Writable | undefined; readonly stderr: Writable | undefined }
  /** Descriptors 0 to 2 are one terminal, which the executor relays to a terminal of the job's own. */
  | { readonly kind: 'terminal' };

/** An event of the journal, as it happens. Not awaited. */
export interface RunNotice {
  readonly kind: string;
  readonly runId: RunId;
  readonly attempt: string | null;
  readonly timeMs: number;
  readonly data: Readonly<Record<string, string | number | boolean | null>>;
}

export interface RunOptions {
  readonly io: RunIo;
  /** The staged result that it starts from; absent: the workspace alone. */
  readonly from?: StartingPoint;
  /** Called when the run is in the store, before anything is started. What it throws ends the run. */
  readonly onRecorded?: (run: RecordedRun) => void;
  /** Called when the command may start. */
  readonly onReleased?: () => void;
  /** What it throws is a warning. */
  readonly onNotice?: (notice: RunNotice) => void;
  /** Sees output as it arrives, without holding it up. What it throws is a warning, and ends its listening. */
  readonly onOutput?: OutputListener;
}

export interface RecordedRun {
  readonly id: RunId;
  /** Absolute. */
  readonly directory: string;
  readonly plan: ExecutorPlan | null;
  /** Earlier runs of this workspace whose staged changes this one doesn't see. */
  readonly unseenStages: readonly string[];
}

export interface RunResult {
  readonly id: RunId;
  /** Absolute. */
  readonly directory: string;
  readonly state: RunState;
  readonly stageState: StageState;
  readonly ending: Ending;
  readonly exitCode: number;
  readonly refusal: Refusal | null;
  readonly bundle: RunBundle;
}

/** A run that is on its way. The calls are for people and other programs; after the end they do nothing. */
export interface RunHandle {
  readonly id: RunId;
  /** Absolute. */
  readonly directory: string;
  /** To the command. Before it has started: the run ends as if the signal had met it. */
  signal(name: NodeJS.Signals): void;
  /** `first` (SIGTERM) to the command, and after `graceMs` the whole tree is killed. */
  stop(graceMs: number, first?: NodeJS.Signals): void;
  /** Ends the whole tree. */
  kill(): void;
  /** Rejects only when the account could not be written (ERR_DISK_FULL, ERR_STORE_STALE); nothing is left running then either. */
  readonly result: Promise<RunResult>;
}

/** What a run is made of, before it is recorded. */
export interface RunInput {
  readonly job: EffectiveJob;
  readonly options: RunOptions;
}
