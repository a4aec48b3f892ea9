import {
  BUNDLE_VERSION,
  type BundleAgentCtl,
  limitName,
  type BundleArtifact,
  type BundleChanges,
  type BundleLogin,
  type BundleLineage,
  type BundleOutput,
  type BundlePlan,
  type DirectShare,
  type EffectiveLimit,
  type HiddenPath,
  type ReadablePath,
  type RunBundleBody,
} from '../core/bundle.ts';
import { perDimension, type Dimension } from '../core/dimension.ts';
import type { Origin, ResourceLimits } from '../core/job.ts';
import type { ExecutorObservations } from '../core/observation.ts';
import type { ControlId, Refusal } from '../core/plan.ts';
import type { Ending, RunState } from '../core/run.ts';
import { VERSION } from '../core/version.ts';
import { agentStatePlace } from '../executor/kept-places.ts';
import type { SessionClosing } from '../executor/executor.ts';
import { describeNetwork } from './bundle-network.ts';
import type { SecretUse } from '../overlaynet/injection.ts';
import { summariseSafety } from './bundle-safety.ts';
import type { JobRecord } from './job-record.ts';

/** Everything that the account of one run is written from. */
export interface AccountFacts {
  readonly id: string;
  readonly attempt: string | null;
  readonly state: RunState;
  readonly ending: Ending | null;
  readonly job: JobRecord;
  /** null: refused. */
  readonly plan: BundlePlan | null;
  readonly refusal: Refusal | null;
  readonly user: { readonly uid: number; readonly gid: number };
  readonly recordedMs: number;
  readonly startedMs: number | null;
  readonly endedMs: number | null;
  readonly lineage: BundleLineage;
  /** What the executor said at teardown; undefined: it never came to that. */
  readonly closing: SessionClosing | undefined;
  /** What became of the login files that entered the job. */
  readonly logins: readonly BundleLogin[];
  readonly stateDirectory: string;
  /** What passed over AgentCtl; absent: nothing. */
  readonly agentctl?: BundleAgentCtl | undefined;
  /** Uses of an injected secret, by name and host; absent: not observed. */
  readonly secretUse?: ((name: string, host: string) => SecretUse) | undefined;
  /** Host paths that the sandbox showed, as the executor built it; undefined: nothing was built. */
  readonly readable: readonly ReadablePath[] | undefined;
  readonly hidden: readonly HiddenPath[];
  readonly possiblyRead: readonly string[] | null;
  readonly changes: BundleChanges | null;
  readonly outputs: readonly BundleOutput[];
  readonly artifacts: readonly BundleArtifact[];
  /** Of the plan, the gate and the end, in this order. */
  readonly warnings: readonly string[];
}

const UNOBSERVED_USE = { uses: null, refused: null, firstMs: null, lastMs: null } as const;

/** The bundle before it is hashed. Pure; levels come from the executor's observations alone. */
export function writeAccount(facts: AccountFacts): RunBundleBody {
  const { job, plan, closing } = facts;
  const { permissions } = job;
  const { credentials, fileWrite, network, resources } = permissions;
  const observations = closing?.observations ?? unobserved(plan?.executor ?? 'none');
  return {
    version: BUNDLE_VERSION,
    run: {
      id: facts.id,
      name: job.name,
      state: facts.state,
      ending: facts.ending,
      mode: job.mode,
      executor: plan?.executor ?? null,
      attempt: facts.attempt,
      argv: job.argv,
      cwd: job.cwd,
      workspace: job.workspace,
      user: facts.user,
      proofrunVersion: VERSION,
      recordedMs: facts.recordedMs,
      startedMs: facts.startedMs,
      endedMs: facts.endedMs,
    },
    lineage: facts.lineage,
    permissions,
    layers: job.layers,
    plan,
    refusal: facts.refusal,
    executorObservations: observations,
    safety: summariseSafety({ permissions, plan, refusal: facts.refusal, executorObservations: observations }),
    hostPaths: { readable: facts.readable ?? [], hidden: facts.hidden, possiblyRead: facts.possiblyRead },
    directShares: [
      ...fileWrite.direct.map((rule): DirectShare => ({ path: rule.pattern, origin: originWords(rule.origin) })),
      ...(permissions.fileRead.states ?? []).map((state): DirectShare => ({
        path: state.path,
        origin: originWords(state.origin),
        kept: agentStatePlace(facts.stateDirectory, job.workspace, state),
      })),
    ],
    credentials: {
      ...(facts.logins.length === 0 ? {} : { logins: facts.logins }),
      visible: credentials.visible,
      agentSockets: credentials.agentSockets,
      injected: credentials.secrets.flatMap((secret) =>
        secret.inject === undefined
          ? []
          : [{ name: secret.name, host: secret.inject.host, ...(facts.secretUse?.(secret.name, secret.inject.host) ?? UNOBSERVED_USE) }],
      ),
    },
    environmentNames: credentials.environmentNames,
    resources: {
      requested: resources.limits,
      effective: plan === null ? [] : effectiveLimits(resources.limits, plan.dimensions.resources.controls),
      peak: closing?.peaks ?? { memoryBytes: null, processes: null, cpuTimeMs: null },
      hits: closing?.limitHits ?? [],
    },
    network: describeNetwork(network.kind, closing?.network?.counters.destinations ?? null, {
      kernelRefused: closing?.network?.kernelRefused ?? null,
      gatewayRoutes: null,
    }),
    changes: facts.changes,
    discarded: closing?.discarded ?? null,
    outputs: facts.outputs,
    fileOperations: null,
    killed: closing?.killed ?? [],
    ...(facts.agentctl === undefined ? {} : { agentctl: facts.agentctl }),
    warnings: [...new Set(facts.warnings)],
    artifacts: facts.artifacts,
  };
}

/** Observations of a run of which nothing was observed. */
export function unobserved(executor: string): ExecutorObservations {
  return {
    contract: 1,
    executor,
    dimensions: perDimension(() => ({ level: 'unenforced', scope: 'nothing was observed', outcomes: [] })),
    requirements: [],
    receipts: [],
  };
}

/** `safe.yaml:14`, `--write-direct dist`. */
export function originWords(origin: Origin): string {
  if (origin.file === undefined) return origin.name;
  return origin.line === undefined ? origin.file : `${origin.file}:${origin.line}`;
}

/** Which limit the tree as a whole has, and by which control; the others hold for each process. */
const TREE_LIMITS: readonly (readonly [keyof ResourceLimits, ControlId | undefined])[] = [
  ['memoryBytes', 'memory_limit'],
  ['swapBytes', 'memory_limit'],
  ['cpus', 'cpu_limit'],
  ['processes', 'process_limit'],
  ['wallTimeMs', undefined],
  ['tmpSizeBytes', 'tmp_size'],
  ['stageSizeBytes', 'stage_size'],
  ['outputKeptBytes', undefined],
];
const PROCESS_LIMITS: readonly (keyof ResourceLimits)[] = ['openFiles', 'fileSizeBytes', 'cpuTimeMs'];

/** A limit that was asked for and that no planned control sets is shown as what it is: unlimited. */
function effectiveLimits(limits: ResourceLimits, controls: readonly ControlId[]): readonly EffectiveLimit[] {
  const tree = TREE_LIMITS.flatMap(([limit, control]): readonly EffectiveLimit[] => {
    const value = limits[limit];
    if (value === undefined) return [];
    return [{ limit: limitName(limit), value: control === undefined || controls.includes(control) ? value : null, scope: 'tree' }];
  });
  const each = PROCESS_LIMITS.flatMap((limit): readonly EffectiveLimit[] => {
    const value = limits[limit];
    return value === undefined ? [] : [{ limit: limitName(limit), value: controls.includes('rlimits') ? value : null, scope: 'process' }];
  });
  return [...tree, ...each];
}

/** What was promised by the plan and not observed, as warnings; empty where the mode needs nothing. */
export function missingControls(plan: Pick<BundlePlan, 'dimensions'>, observations: ExecutorObservations): readonly string[] {
  return (Object.keys(plan.dimensions) as Dimension[]).flatMap((dimension) => {
    const { level } = observations.dimensions[dimension];
    const { level: planned, controls } = plan.dimensions[dimension];
    // A network that is open has nothing that could be missing.
    const restricts = controls.some((control) => control !== 'network_public');
    if (planned !== 'planned' || level === 'enforced' || !restricts) return [];
    const faults = observations.dimensions[dimension].outcomes.filter((outcome) => outcome.status !== 'matched');
    const which =
      faults.length === 0
        ? 'no receipt was taken'
        : faults
            .slice(0, 4)
            .map((outcome) => `${outcome.id} ${outcome.status === 'missing' ? 'is missing' : 'differs'}`)
            .join(', ');
    return [`${dimension} was planned and is ${level}: ${which}${faults.length > 4 ? ` and ${faults.length - 4} more` : ''}`];
  });
}
