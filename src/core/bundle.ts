import { snakeKey } from './case.ts';
import type { ChangeSet } from './change.ts';
import type { Dimension, Mode, ObservedLevel, PerDimension, PlanLevel } from './dimension.ts';
import type { EffectivePermissions, LayerRecord, ResourceLimits } from './job.ts';
import type { ExecutorObservations } from './observation.ts';
import type { DimensionPlan, ExecutorId, PinnedImage, Refusal } from './plan.ts';
import type { Ending, RunState } from './run.ts';

/** Version of the bundle's form. A reader refuses a version that it does not know. */
export const BUNDLE_VERSION = 1;

/** File name of the bundle in a run's directory. */
export const BUNDLE_FILE = 'run-bundle.json';

/** Facts of the run itself. Times are milliseconds since the epoch; null: it never came to that. */
export interface BundleRun {
  /** `run-<ulid>`. */
  readonly id: string;
  readonly name: string | null;
  readonly state: RunState;
  /** null for a run whose end was not seen. */
  readonly ending: Ending | null;
  readonly mode: Mode;
  /** null when the job was refused before an executor was chosen. */
  readonly executor: ExecutorId | null;
  /** `att-<ulid>`; null when nothing was launched. */
  readonly attempt: string | null;
  readonly argv: readonly string[];
  /** Absolute. */
  readonly cwd: string;
  /** Absolute, real path. */
  readonly workspace: string;
  readonly user: { readonly uid: number; readonly gid: number };
  /** Version of Proofrun that wrote the bundle. */
  readonly proofrunVersion: string;
  readonly recordedMs: number;
  readonly startedMs: number | null;
  readonly endedMs: number | null;
}

/** Where the run came from, and which staged work of the same workspace it did not see. */
export interface BundleLineage {
  /** The run whose staged result this one started from (`--on`). */
  readonly on: string | null;
  /** The run whose checkpoint this one was forked from. */
  readonly forkedFrom: string | null;
  /** That checkpoint, `cp-<ulid>`. Only of a fork. */
  readonly checkpoint?: string;
  /** Runs of the same workspace with an unapplied stage when this one began. */
  readonly unseenStages: readonly string[];
}

/** What was asked for, after joining and intersecting. Values of the environment and of secrets are never kept, only names. */
export interface BundlePermissions extends Omit<EffectivePermissions, 'credentials'> {
  readonly credentials: Omit<EffectivePermissions['credentials'], 'environment'> & { readonly environmentNames: readonly string[] };
}

/** The executor plan as data: what was promised before the run. Never evidence. */
export interface BundlePlan {
  readonly version: 1;
  readonly executor: ExecutorId;
  readonly executorReason: string;
  readonly mode: Mode;
  readonly dimensions: PerDimension<DimensionPlan>;
  readonly needed: readonly Dimension[];
  readonly waived: readonly Dimension[];
  /** What the command ran in. Absent: no image. */
  readonly image?: PinnedImage;
}

/** Receipts of one kind: how many were owed, and how many matched. */
export interface ReceiptCount {
  readonly matched: number;
  readonly owed: number;
}

export interface DimensionSafety {
  readonly requested: boolean;
  /** The mode needs it enforced. */
  readonly needed: boolean;
  readonly waived: boolean;
  readonly planned: PlanLevel;
  readonly observed: ObservedLevel;
  readonly installed: ReceiptCount;
  readonly probes: ReceiptCount;
}

/**
 * Derived from plan and observations by src/runner/bundle-safety.ts; `job verify` derives it again and compares. The four lists hold each
 * dimension once.
 */
export interface SafetySummary {
  readonly dimensions: PerDimension<DimensionSafety>;
  readonly enforced: readonly Dimension[];
  readonly cooperative: readonly Dimension[];
  /** Requested or needed, and observed as unenforced. */
  readonly unenforced: readonly Dimension[];
  /** Neither requested nor needed, and observed as unenforced. */
  readonly notAsked: readonly Dimension[];
  /** Needed by the mode and not enforced. */
  readonly missing: readonly Dimension[];
  /** none: the mode needs nothing. kept: every needed dimension was enforced. broken: `missing` isn't empty. refused: nothing was launched. */
  readonly promise: 'none' | 'kept' | 'broken' | 'refused';
}

export interface ReadablePath {
  /** Absolute host path. */
  readonly path: string;
  readonly access: 'read_only' | 'staged' | 'private_writes' | 'direct';
}

export interface HiddenPath {
  /** Absolute host path. */
  readonly path: string;
  /** The rule that hides it, as written. */
  readonly rule: string;
}

export interface HostPaths {
  readonly readable: readonly ReadablePath[];
  readonly hidden: readonly HiddenPath[];
  /** Names that match a hiding glob and appeared during the run: the job may have read them. null: not looked for. */
  readonly possiblyRead: readonly string[] | null;
}

/** A host path that the job wrote without staging. */
export interface DirectShare {
  readonly path: string;
  /** Our directory that the job saw at `path`. Absent: the host's own path. */
  readonly kept?: string;
  /** The flag or line that asked for it. */
  readonly origin: string;
}

/**
 * unchanged: as the job was given it. written_back: the host's file is what the job left. superseded: the host's was refreshed later. not_kept: changed, and the
 * profile doesn't write it back. deleted: gone in the job, untouched on the host. failed: changed, and not written back.
 */
export const LOGIN_OUTCOMES = ['unchanged', 'written_back', 'superseded', 'not_kept', 'deleted', 'failed'] as const;
export type LoginOutcome = (typeof LOGIN_OUTCOMES)[number];

/** A login file that the job could read. */
export interface BundleLogin {
  readonly path: string;
  readonly profile: string;
  readonly outcome: LoginOutcome;
  /** Why it failed. */
  readonly detail: string | null;
  /** Where what the job left is kept, when it could not be written back. */
  readonly kept: string | null;
}

export interface BundleCredentials {
  /** Login files of profiles. Absent: none. */
  readonly logins?: readonly BundleLogin[];
  /** Names of variables in the environment that look like credentials. */
  readonly visible: readonly string[];
  readonly agentSockets: readonly string[];
  /** Secrets that a host-side proxy adds to requests. `uses` counts requests that it was added to, `refused` those that carried its placeholder elsewhere; null when not observed. */
  readonly injected: readonly {
    readonly name: string;
    readonly host: string;
    readonly uses: number | null;
    readonly refused: number | null;
    readonly firstMs: number | null;
    readonly lastMs: number | null;
  }[];
}

type SnakeCase<S extends string> = S extends `${infer Head}${infer Tail}`
  ? `${Head extends Lowercase<Head> ? Head : `_${Lowercase<Head>}`}${SnakeCase<Tail>}`
  : S;

/** A limit as a word on disk: `memory_bytes`. */
export type LimitName = SnakeCase<keyof ResourceLimits>;

/** `memory_bytes` for `memoryBytes`. */
export function limitName(limit: keyof ResourceLimits): LimitName {
  return snakeKey(limit) as LimitName;
}

/** A limit that was set. `tree`: of all processes together; `process`: of each. */
export interface EffectiveLimit {
  readonly limit: LimitName;
  /** In the unit of the limit's name; null: unlimited. */
  readonly value: number | null;
  readonly scope: 'tree' | 'process';
}

export interface BundleResources {
  readonly requested: ResourceLimits;
  readonly effective: readonly EffectiveLimit[];
  /** null: not observed. */
  readonly peak: { readonly memoryBytes: number | null; readonly processes: number | null; readonly cpuTimeMs: number | null };
  /** Names of the limits that were hit. */
  readonly hits: readonly string[];
}

/** Counters of one destination. null: not observed; 0: observed without a hit. */
export interface DestinationCounters {
  readonly host: string;
  /** null: the name was looked up and refused, so that no connection came to name a port. */
  readonly port: number | null;
  readonly allowed: number | null;
  readonly denied: number | null;
  readonly failed: number | null;
  readonly bytesOut: number | null;
  readonly bytesIn: number | null;
  readonly firstMs: number | null;
  readonly lastMs: number | null;
  /** The deciding rule with its place: `safe.yaml:14 default_action: deny`. */
  readonly rule: string | null;
}

/** What the resolver of a selective network was asked. Names that no rule can allow are destinations too, without a port. */
export interface LookupCounters {
  /** Questions, each type of record by itself. */
  readonly queries: number;
  /** Names that were given an address, each once. */
  readonly names: number;
  /** Questions for names that no rule can allow. */
  readonly refused: number;
  /** Messages that were no question, and questions beyond a limit: not answered. */
  readonly dropped: number;
}

/** What a selective network counted, as read at one moment. */
export interface NetworkCounters {
  readonly destinations: readonly DestinationCounters[];
  /** Destinations beyond the longest list that is kept: their decisions are in no row. */
  readonly unlisted: number;
  /** null: nothing listened for questions. */
  readonly lookups: LookupCounters | null;
  /** Connections open now, and the most there were at once. */
  readonly open: number;
  readonly mostOpen: number;
}

export interface GatewayRoute {
  readonly kind: 'models' | 'tools';
  readonly name: string;
  readonly calls: number | null;
}

/** Sums over `destinations` (null when that is null), and what only the kernel counted. */
export interface BundleNetwork {
  readonly kind: 'public' | 'deny' | 'selective';
  readonly allowed: number | null;
  readonly denied: number | null;
  readonly failed: number | null;
  readonly bytesOut: number | null;
  readonly bytesIn: number | null;
  /** Connections to ports that nobody answers, refused in the job's network namespace; only a total exists. */
  readonly kernelRefused: number | null;
  readonly destinations: readonly DestinationCounters[] | null;
  readonly gatewayRoutes: readonly GatewayRoute[] | null;
}

/** The workspace changes that the run staged. `roots[change.root]` is the host directory that a path is relative to. */
export interface BundleChanges extends ChangeSet {
  readonly roots: readonly string[];
}

/** Writes to the private home and the like, thrown away at the end. */
export interface DiscardedWrites {
  readonly files: number;
  readonly bytes: number;
  readonly top: readonly { readonly path: string; readonly files: number }[];
}

/**
 * What was kept of one output stream: exact bytes of its beginning and its end. `truncated` says that bytes between the two are
 * missing, and holds exactly when `bytesTotal` is more than both together.
 */
export interface BundleOutput {
  readonly stream: 'stdout' | 'stderr' | 'terminal';
  readonly encoding: 'utf8' | 'base64';
  readonly head: string;
  readonly tail: string;
  readonly bytesTotal: number;
  readonly truncated: boolean;
}

/** AgentCtl of one run: what the program in the job said about itself, and what it was asked. */
export interface BundleAgentCtl {
  /** The last of each; null: it never said so. */
  readonly saidByGuest: { readonly agent: string | null; readonly state: 'active' | 'idle' | 'quiesced' | null };
  /** Lines of the guest's that were understood. */
  readonly messages: number;
  /** Lines that were not; each ended its connection. */
  readonly malformed: number;
  readonly connections: number;
  /** Processes of other users that the host's socket turned away. */
  readonly refusedPeers: number;
  /** The latest of them. */
  readonly directives: readonly { readonly directive: 'continue' | 'quiesce' | 'shutdown'; readonly atMs: number }[];
}

/** A file in the run's directory, besides the bundle. */
export interface BundleArtifact {
  readonly name: string;
  /** Relative to the run's directory. */
  readonly path: string;
  readonly bytes: number;
  readonly sha256: string;
}

/**
 * The whole account of a run (`run-bundle.json`). On disk the keys are snake_case and the text is canonical JSON.
 * `executorObservations` is the only evidence of enforcement; nothing else in here is.
 */
export interface RunBundle {
  readonly version: 1;
  readonly run: BundleRun;
  readonly lineage: BundleLineage;
  readonly permissions: BundlePermissions;
  readonly layers: readonly LayerRecord[];
  /** null when the job was refused. */
  readonly plan: BundlePlan | null;
  /** null unless the job was refused at admission. */
  readonly refusal: Refusal | null;
  readonly executorObservations: ExecutorObservations;
  readonly safety: SafetySummary;
  readonly hostPaths: HostPaths;
  readonly directShares: readonly DirectShare[];
  readonly credentials: BundleCredentials;
  /** Sorted. */
  readonly environmentNames: readonly string[];
  readonly resources: BundleResources;
  readonly network: BundleNetwork;
  /** null: the stage was not read (refused, launch failed). */
  readonly changes: BundleChanges | null;
  /** null: not observed. */
  readonly discarded: DiscardedWrites | null;
  readonly outputs: readonly BundleOutput[];
  /** Nothing observes single file operations; the change set is the record. */
  readonly fileOperations: null;
  /** Processes that outlived the command and were killed. */
  readonly killed: readonly { readonly pid: number; readonly name: string }[];
  /** What passed over AgentCtl. Absent: nothing did. Never evidence. */
  readonly agentctl?: BundleAgentCtl;
  readonly warnings: readonly string[];
  readonly artifacts: readonly BundleArtifact[];
  /** SHA-256 (lower-case hex) of the canonical text of everything above. */
  readonly sha256: string;
}

/** A bundle before it is hashed. */
export type RunBundleBody = Omit<RunBundle, 'sha256'>;
