import { CONTAINMENT_DIMENSIONS, DIMENSIONS, type Dimension, type PerDimension } from '../core/dimension.ts';
import type { EffectiveJob } from '../core/job.ts';
import {
  EXECUTOR_IDS,
  type Admission,
  type ControlId,
  type DimensionPlan,
  type ExecutorCapabilities,
  type ExecutorId,
  type ExecutorPlan,
  type Refusal,
  type RefusalRow,
} from '../core/plan.ts';
import { changeFor } from './change.ts';
import { isRequested, networkWords, planDimensions } from './dimensions.ts';

interface Candidate {
  readonly capabilities: ExecutorCapabilities;
  readonly why: string;
  readonly job: EffectiveJob;
  readonly dimensions: PerDimension<DimensionPlan>;
  /** Needed or, in default mode, requested dimensions that can't be planned. */
  readonly missing: readonly Dimension[];
  readonly warnings: readonly string[];
}

/**
 * Decides which executor runs a job and what it has to install, or refuses. Pure: what the executors can do is data.
 * `--safe` and `--strict` refuse when a needed dimension can't be planned; the default mode plans what can be planned and records the rest as warnings.
 */
export function admit(job: EffectiveJob, capabilities: readonly ExecutorCapabilities[]): Admission {
  const waived = waivedOf(job);
  const needed = neededOf(job, waived);
  const { order, refused } = choicesFor(job, capabilities);
  const candidates = order.filter(({ capabilities: one }) => one.available).map(({ capabilities: one, why }) => candidateOf(job, one, why, needed));
  if (candidates.length === 0) return { kind: 'refused', job, refusal: unavailable(job, needed, { order, refused }, capabilities) };

  const complete = candidates.find((candidate) => candidate.missing.length === 0);
  const [first] = candidates;
  const chosen = complete ?? (job.mode === 'default' ? first : undefined);
  if (chosen === undefined) return { kind: 'refused', job, refusal: refusalOf(job, first, needed, capabilities) };
  const plan: ExecutorPlan = {
    version: 1,
    executor: chosen.capabilities.executor,
    executorReason: chosen === first || first === undefined ? chosen.why : `${first.capabilities.executor} can't plan ${first.missing.join(', ')}`,
    mode: job.mode,
    dimensions: chosen.dimensions,
    needed,
    waived,
    job: chosen.job,
    warnings: [...job.warnings, ...chosen.warnings, ...waiverWarnings(job, waived, chosen)],
  };
  return { kind: 'admitted', plan };
}

/** Whether the plan leaves nothing out that was asked for: no other executor needs to be looked at. */
export function isWhole(admission: Admission): boolean {
  if (admission.kind === 'refused') return false;
  const { dimensions, needed } = admission.plan;
  return DIMENSIONS.every((dimension) => dimensions[dimension].level === 'planned' || (!dimensions[dimension].requested && !needed.includes(dimension)));
}

/**
 * What must be planned before and enforced at the gate and at the end. None in default mode. A network that the person opened whole has nothing to
 * enforce: under --safe it is left out, with a warning; --strict refuses it.
 */
function neededOf(job: EffectiveJob, waived: readonly Dimension[]): readonly Dimension[] {
  if (job.mode === 'default') return [];
  return DIMENSIONS.filter((dimension) => !(dimension === 'network' && opensNetwork(job))).filter(
    (dimension) => CONTAINMENT_DIMENSIONS.some((one) => one === dimension) || (isRequested(job, dimension) && !waived.includes(dimension)),
  );
}

function opensNetwork({ mode, permissions }: EffectiveJob): boolean {
  return mode === 'safe' && permissions.network.kind === 'public';
}

function waivedOf(job: EffectiveJob): readonly Dimension[] {
  if (job.mode !== 'safe') return [];
  return DIMENSIONS.filter(
    (dimension) => job.waived.includes(dimension) && isRequested(job, dimension) && !CONTAINMENT_DIMENSIONS.some((one) => one === dimension),
  );
}

interface Choice {
  readonly capabilities: ExecutorCapabilities;
  readonly why: string;
}

/** Executors in the order in which they are tried. One that contains nothing (the host itself) is used only when it is asked for by name. */
function choicesFor(
  job: EffectiveJob,
  capabilities: readonly ExecutorCapabilities[],
): { readonly order: readonly Choice[]; readonly refused: string | undefined } {
  const { image } = job;
  const known = [...capabilities].sort((a, b) => EXECUTOR_IDS.indexOf(a.executor) - EXECUTOR_IDS.indexOf(b.executor));
  const asked =
    job.executor === 'auto' ? known.filter((one) => !one.available || one.subprocess.contained) : known.filter((one) => one.executor === job.executor);
  const { runtime } = job;
  if (runtime !== undefined && !asked.some((one) => one.runtimes?.some(({ name }) => name === runtime) === true || (!one.available && one.images === true))) {
    const known = [...new Set(asked.flatMap((one) => one.runtimes?.map(({ name }) => name) ?? []))];
    return {
      order: [],
      refused: `the container runtime ${runtime} was asked for, and ${known.length === 0 ? 'no executor here has one' : `the engine has ${known.join(', ')}`}`,
    };
  }
  const able = asked.filter((one) => (image === undefined ? one.images !== true || one.defaultImage !== undefined || !one.available : one.images === true));
  if (able.length === 0 && asked.length > 0 && image === undefined) {
    return {
      order: [],
      refused: `the ${asked.map((one) => one.executor).join(', ')} executor needs an image, and the job names none: --image NAME, or job image build`,
    };
  }
  if (able.length === 0 && image !== undefined) {
    const who = job.executor === 'auto' ? 'no executor here runs images' : `the ${job.executor} executor runs no images`;
    return { order: [], refused: `the image ${image} was asked for, and ${who}` };
  }
  const absent = able.find((one, index) => !one.available && able.slice(index).some((other) => other.available));
  const first = absent === undefined ? 'the first that is available' : `${absent.executor} is not available: ${absent.reason ?? 'no reason given'}`;
  const why = job.executor !== 'auto' ? 'asked for' : image === undefined ? first : 'an image was asked for';
  return { order: able.flatMap((one) => (runtime === undefined ? [{ capabilities: one, why }] : underRuntime(one, runtime, why))), refused: undefined };
}

/** What an executor can do under one of its runtimes; none without it. */
function underRuntime(one: ExecutorCapabilities, runtime: string, why: string): readonly Choice[] {
  if (!one.available) return one.images === true ? [{ capabilities: one, why }] : [];
  const found = one.runtimes?.find(({ name }) => name === runtime);
  if (found === undefined) return [];
  const { processes, memory, cpus } = one.limits;
  const has = (control: ControlId): boolean => found.controls.includes(control);
  return [
    {
      capabilities: {
        ...one,
        controls: found.controls,
        limits: { ...one.limits, processes: processes && has('process_limit'), memory: memory && has('memory_limit'), cpus: cpus && has('cpu_limit') },
        ...(found.note === undefined ? {} : { reason: found.note }),
      },
      why,
    },
  ];
}

function candidateOf(job: EffectiveJob, capabilities: ExecutorCapabilities, why: string, needed: readonly Dimension[]): Candidate {
  const warnings: string[] = [];
  const closed = closedInstead(job, capabilities);
  const effective = closed ?? job;
  let dimensions = planDimensions(effective, capabilities);
  if (closed !== undefined) {
    const asked = networkWords(job.permissions.network);
    const reason = `the ${capabilities.executor} executor can open the network or close it, not open it for chosen hosts`;
    dimensions = {
      ...dimensions,
      network: { ...dimensions.network, asked: `${asked}: closed`, scope: `closed instead: only the job's own loopback, none of the ${asked}`, reason },
    };
    warnings.push(`network: ${reason}; it is closed, and the ${asked} can't be reached`);
  }
  if (opensNetwork(effective)) warnings.push('network is open whole, as the job asks: nothing of it is enforced');
  const missing = DIMENSIONS.filter((dimension) => {
    const { level } = dimensions[dimension];
    if (job.mode !== 'default') return needed.includes(dimension) && level !== 'planned';
    return isRequested(job, dimension) && level !== 'planned';
  });
  if (job.mode === 'default') {
    for (const dimension of DIMENSIONS) {
      const { level, reason } = dimensions[dimension];
      const stands = isRequested(job, dimension) || CONTAINMENT_DIMENSIONS.some((one) => one === dimension);
      if (stands && level !== 'planned') warnings.push(`${dimension} is ${level}: ${reason ?? 'no mechanism'}`);
    }
  }
  return { capabilities, why, job: effective, dimensions, missing, warnings };
}

/**
 * In default mode a network that an executor can't open for chosen hosts is closed: the restriction holds, the hosts stay out of reach. Opening it would
 * turn a stated restriction into none. See docs/decisions.
 */
function closedInstead(job: EffectiveJob, capabilities: ExecutorCapabilities): EffectiveJob | undefined {
  const { network } = job.permissions;
  if (job.mode !== 'default' || network.kind !== 'selective' || capabilities.network.selective || !capabilities.network.deny) return undefined;
  return { ...job, permissions: { ...job.permissions, network: { ...network, kind: 'deny' } } };
}

function waiverWarnings(job: EffectiveJob, waived: readonly Dimension[], chosen: Candidate): readonly string[] {
  const used = waived.map((dimension) => `${dimension} is waived by --degrade ${dimension}; its level is ${chosen.dimensions[dimension].level}`);
  const unused = job.waived.filter((dimension) => !waived.some((one) => one === dimension)).map((dimension) => `--degrade ${dimension} has nothing to waive`);
  return [...used, ...unused];
}

function refusalOf(job: EffectiveJob, candidate: Candidate | undefined, needed: readonly Dimension[], capabilities: readonly ExecutorCapabilities[]): Refusal {
  const missing = candidate?.missing ?? needed;
  const rows = missing.map((dimension): RefusalRow => {
    const plan = candidate?.dimensions[dimension];
    return {
      dimension,
      needed: plan?.asked ?? '-',
      planned: plan?.level ?? 'unsupported',
      missing: plan?.reason ?? 'no mechanism',
      couldEnforce: enforcers(job, dimension, capabilities),
      ...withChange(job, dimension, plan, capabilities),
    };
  });
  return {
    reason: `--${job.mode} needs ${missing.join(', ')}, and ${candidate?.capabilities.executor ?? 'no executor'} can't plan ${missing.length === 1 ? 'it' : 'them'}`,
    rows,
  };
}

function unavailable(
  job: EffectiveJob,
  needed: readonly Dimension[],
  { order, refused }: { readonly order: readonly Choice[]; readonly refused: string | undefined },
  capabilities: readonly ExecutorCapabilities[],
): Refusal {
  const reasons = order.map(({ capabilities: one }) => `${one.executor}: ${one.reason ?? 'not available'}${one.remedy === undefined ? '' : `; ${one.remedy}`}`);
  const reason = refused ?? (reasons.length === 0 ? `no executor named ${job.executor} is here` : `no executor can run here. ${reasons.join('. ')}`);
  const dimensions = needed.length > 0 ? needed : CONTAINMENT_DIMENSIONS;
  return {
    reason,
    rows: dimensions.map((dimension) => ({
      dimension,
      needed: 'an executor',
      planned: 'unsupported',
      missing: refused ?? reasons[0] ?? 'an executor',
      couldEnforce: enforcers(job, dimension, capabilities),
      ...withChange(job, dimension, undefined, capabilities),
    })),
  };
}

/** Executors that are here now and could plan a dimension of this job. */
function enforcers(job: EffectiveJob, dimension: Dimension, capabilities: readonly ExecutorCapabilities[]): readonly ExecutorId[] {
  return capabilities
    .filter(
      (one) =>
        one.available &&
        (job.image === undefined ? one.images !== true || one.defaultImage !== undefined : one.images === true) &&
        planDimensions(job, one)[dimension].level === 'planned',
    )
    .map((one) => one.executor);
}

function withChange(
  job: EffectiveJob,
  dimension: Dimension,
  plan: DimensionPlan | undefined,
  capabilities: readonly ExecutorCapabilities[],
): Pick<RefusalRow, 'change'> {
  const change = changeFor(job, dimension, plan, enforcers(job, dimension, capabilities), capabilities);
  return change === undefined ? {} : { change };
}
