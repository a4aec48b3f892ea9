import type { SecretInjector } from '../overlaynet/injection.ts';
import type { AttemptId, RunId } from '../core/ids.ts';
import type { EffectiveJob } from '../core/job.ts';
import type { ExecutorPlan } from '../core/plan.ts';
import type { Session, SessionClosing } from '../executor/executor.ts';
import type { AgentDesk } from './agent-desk.ts';
import type { CommandControl } from './command-control.ts';
import type { FirstCause } from './first-cause.ts';
import type { Point } from './points.ts';
import type { RunStreams } from './run-streams.host.ts';
import type { RunNotice, RunnerParts, RunOptions } from './runner.ts';
import type { Staging } from './staging.host.ts';
import type { RunPaths } from './state-directory.ts';

/** One run on its way, as its phases see it. */
export interface LiveRun {
  readonly parts: RunnerParts;
  readonly options: RunOptions;
  readonly id: RunId;
  readonly attempt: AttemptId;
  readonly paths: RunPaths;
  readonly job: EffectiveJob;
  readonly plan: ExecutorPlan;
  readonly fence: number;
  readonly recordedMs: number;
  readonly unseenStages: readonly string[];
  readonly cause: FirstCause;
  readonly control: CommandControl;
  /** Of the plan first; grows. */
  readonly warnings: string[];
  notify(kind: string, data?: RunNotice['data']): void;
  at(point: Point): Promise<void>;
}

/** What exists of a run so far. Each phase adds its part; the end takes down what is there. */
export interface Built {
  streams: RunStreams | undefined;
  staging: Staging | undefined;
  session: Session | undefined;
  /** When the command might start, ms since the epoch. */
  startedMs: number | null;
  /** AgentCtl, from the release on. */
  desk: AgentDesk | undefined;
  closing: SessionClosing | undefined;
  /** Names that should be hidden and appeared during the run. null: not looked for. */
  possiblyRead: readonly string[] | null;
  /** Adds the job's secrets to its requests, and counts. */
  secrets: SecretInjector | undefined;
}
