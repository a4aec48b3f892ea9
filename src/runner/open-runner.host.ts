import { admit } from '../admission/admit.ts';
import type { EffectiveJob } from '../core/job.ts';
import type { Admission } from '../core/plan.ts';
import type { ExecutorRegistry } from '../executor/registry.ts';
import { compileExecutesOnHost } from '../policy/executes.ts';
import { loadPresets } from '../policy/load.host.ts';
import { openStore } from '../store/index.ts';
import type { AtPoint } from './points.ts';
import type { UpstreamSettings } from './run-network.host.ts';
import { startRun } from './run.host.ts';
import type { RunHandle, RunnerParts, RunOptions } from './runner.ts';

export interface RunnerSetup {
  /** Absolute; made when missing, refused when it isn't ours alone (see openStore). */
  readonly stateDirectory: string;
  readonly executors: ExecutorRegistry;
  /** Absolute path of proofrun-shim; asked for when it is first needed. */
  readonly shim: () => string;
  /** How this machine reaches the world. Absent: without a proxy, and with its own resolver. */
  readonly upstream?: UpstreamSettings;
  /** Milliseconds since the epoch. */
  readonly clock: () => number;
  /** Crash tests only. */
  readonly at?: AtPoint;
}

/** Runs jobs, any number at a time, and keeps their record. */
export interface Runner {
  readonly parts: RunnerParts;
  /** Begins to look at the executors, so that admit() finds it done. Never rejects. */
  probe(): Promise<void>;
  /** What would be installed for a job here, or why it is refused. Starts nothing. */
  admit(job: EffectiveJob): Promise<Admission>;
  /** Records the job and lives it; see startRun. */
  start(admission: Admission, options: RunOptions): Promise<RunHandle>;
  /** Closes the store. Live runs must have ended. Idempotent. */
  close(): void;
}

/** Opens the store of a state directory. ERR_STORE_UNREADABLE, ERR_DISK_FULL. */
export function openRunner(setup: RunnerSetup): Runner {
  const store = openStore(setup.stateDirectory, setup.clock);
  let shim: string | undefined;
  const parts: RunnerParts = {
    stateDirectory: setup.stateDirectory,
    store,
    executor: (id) => setup.executors.executor(id),
    get shim() {
      shim ??= setup.shim();
      return shim;
    },
    executesOnHost: async () => compileExecutesOnHost((await loadPresets()).executes),
    upstream: setup.upstream ?? {},
    clock: setup.clock,
    ...(setup.at === undefined ? {} : { at: setup.at }),
  };
  return {
    parts,
    probe: async () => {
      await setup.executors.all();
    },
    admit: async (job) => admit(job, await setup.executors.all()),
    start: (admission, options) => startRun(parts, admission, options),
    close: () => {
      store.close();
    },
  };
}
