import { admit, isWhole } from '../admission/admit.ts';
import type { EffectiveJob } from '../core/job.ts';
import type { Admission } from '../core/plan.ts';
import { canPin, type PullPolicy, type PullProgress } from '../executor/executor.ts';
import type { ExecutorRegistry } from '../executor/registry.ts';
import { compileExecutesOnHost } from '../policy/executes.ts';
import { loadPresets } from '../policy/load.host.ts';
import { openStore } from '../store/index.ts';
import type { AtPoint, LoginPoint } from './points.ts';
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
  /** Crash tests only. */
  readonly atLogin?: (point: LoginPoint) => void;
}

export interface ImageChoice {
  readonly pull: PullPolicy;
  readonly progress?: (progress: PullProgress) => void;
}

/** Runs jobs, any number at a time, and keeps their record. */
export interface Runner {
  readonly parts: RunnerParts;
  /** Begins to look at the executors, so that admit() finds it done. Never rejects. */
  probe(): Promise<void>;
  /** What would be installed for a job here, or why it is refused. Starts nothing; fetches an image as `images` says (default: never). ERR_IMAGE. */
  admit(job: EffectiveJob, images?: ImageChoice): Promise<Admission>;
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
    ...(setup.atLogin === undefined ? {} : { atLogin: setup.atLogin }),
  };
  return {
    parts,
    probe: async () => {
      await setup.executors.near();
    },
    admit: async (job, images) => await pinned(await choose(job, setup.executors), setup.executors, images ?? { pull: 'never' }),
    start: (admission, options) => startRun(parts, admission, options),
    close: () => {
      store.close();
    },
  };
}

/** A daemon is asked only for a job that names its executor or an image, or that no other executor can plan whole. */
async function choose(job: EffectiveJob, executors: ExecutorRegistry): Promise<Admission> {
  if (job.image === undefined && job.runtime === undefined && job.executor === 'auto') {
    const admission = admit(job, await executors.near());
    if (isWhole(admission)) return admission;
  }
  if (job.executor !== 'auto' && executors.ids.includes(job.executor)) {
    // The others matter only for what a refusal says of them.
    const admission = admit(job, [await executors.capabilities(job.executor)]);
    if (isWhole(admission)) return admission;
  }
  return admit(job, await executors.all());
}

/** The plan names the very image: what a tag means later changes nothing of this run. */
async function pinned(admission: Admission, executors: ExecutorRegistry, { pull, progress }: ImageChoice): Promise<Admission> {
  if (admission.kind === 'refused') return admission;
  const { plan } = admission;
  const { images, defaultImage } = await executors.capabilities(plan.executor);
  const reference = plan.job.image ?? defaultImage;
  if (images !== true || reference === undefined) return admission;
  const executor = await executors.executor(plan.executor);
  return canPin(executor) ? { kind: 'admitted', plan: { ...plan, image: await executor.pinImage(reference, pull, progress) } } : admission;
}
