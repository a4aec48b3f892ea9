import type { Dimension, Mode, PerDimension, PlanLevel } from './dimension.ts';
import type { EffectiveJob } from './job.ts';

/** Ids of the controls that executors install. src/evidence/controls.ts says which receipts each one owes. */
export const CONTROLS = [
  'mount_namespace',
  'projected_root',
  'hidden_paths',
  'staged_workspace',
  'read_only_host',
  'private_home',
  'kernel_files',
  'network_namespace',
  'network_public',
  'overlay_network',
  'published_ports',
  'proxy_offered',
  'host_sockets',
  'pid_namespace',
  'shim_is_init',
  'no_new_privs',
  'capabilities',
  'user_drop',
  'seccomp',
  'descriptors',
  'no_program',
  'listed_programs',
  'tree_killed',
  'environment',
  'agent_sockets',
  'session_keyring',
  'secret_injection',
  'rlimits',
  'process_limit',
  'memory_limit',
  'cpu_limit',
  'wall_time',
  'tmp_size',
  'stage_size',
] as const;
export type ControlId = (typeof CONTROLS)[number];

export const EXECUTOR_IDS = ['native', 'docker', 'host'] as const;
export type ExecutorId = (typeof EXECUTOR_IDS)[number];

export interface DimensionPlan {
  readonly level: PlanLevel;
  readonly requested: boolean;
  /** Short words for the REQUESTED column: `safe`, `deny`, `stage .`, `14 variables`, `512 processes`; `-` when not asked. */
  readonly asked: string;
  /** Controls to install, each owing its receipts. Empty when unsupported. */
  readonly controls: readonly ControlId[];
  /** What the level covers and what it does not, in words. */
  readonly scope: string;
  /** Why the level is unsupported or cooperative. */
  readonly reason?: string;
}

/** An image as the plan holds it: by its digest, so that a tag that moves changes nothing. */
export interface PinnedImage {
  /** As it was asked for. */
  readonly reference: string;
  /** `sha256:` and 64 hex digits: the digest of the image's configuration, which names its layers. */
  readonly id: string;
  /** `name@sha256:...` of registries; none for an image that was made here. Sorted. */
  readonly digests: readonly string[];
}

/** Pure result of admission: what one executor will install for one job. Data only. */
export interface ExecutorPlan {
  readonly version: 1;
  readonly executor: ExecutorId;
  /** Why this executor: asked for, or the only one that can. */
  readonly executorReason: string;
  readonly mode: Mode;
  readonly dimensions: PerDimension<DimensionPlan>;
  /** Dimensions that must be enforced at the gate and at the end, else the run is refused or fails. */
  readonly needed: readonly Dimension[];
  readonly waived: readonly Dimension[];
  readonly job: EffectiveJob;
  readonly warnings: readonly string[];
  /** Where a program in the job finds the socket of AgentCtl. Absent: the executor has none. */
  readonly agentSocket?: string;
  /** What the command runs in. Absent: the executor takes no image. */
  readonly image?: PinnedImage;
}

/** One row of the refusal table. */
export interface RefusalRow {
  readonly dimension: Dimension;
  readonly needed: string;
  readonly planned: PlanLevel;
  /** The missing right or mechanism. */
  readonly missing: string;
  /** Executors that could enforce it here. */
  readonly couldEnforce: readonly ExecutorId[];
  /** One command that would change it, and what that gives up. */
  readonly change?: { readonly command: string; readonly givesUp: string };
}

export interface Refusal {
  readonly reason: string;
  readonly rows: readonly RefusalRow[];
}

export type Admission =
  { readonly kind: 'admitted'; readonly plan: ExecutorPlan } | { readonly kind: 'refused'; readonly refusal: Refusal; readonly job: EffectiveJob };

export interface RuntimeCapabilities {
  readonly name: string;
  readonly controls: readonly ControlId[];
  /** Why some are missing. */
  readonly note?: string;
}

/** What one executor can do on this machine now, from its probe. Pure data. */
export interface ExecutorCapabilities {
  readonly executor: ExecutorId;
  readonly available: boolean;
  /** Why not, with the remedy. */
  readonly reason?: string;
  readonly remedy?: string;
  readonly version: string;
  /** Where the executor runs: as root, as an ordinary user. */
  readonly user: 'root' | 'user';
  readonly controls: readonly ControlId[];
  readonly network: {
    readonly public: boolean;
    readonly deny: boolean;
    readonly selective: boolean;
    /** Selective, and what isn't named is allowed: every port has to be covered. Absent: no. */
    readonly openByDefault?: boolean;
    /** Selective for clients that use a proxy by configuration; others go around it. Absent: no. */
    readonly byProxy?: boolean;
    /** URL of the explicit proxy inside a selective network, for the usual variables. Absent: there is none, or it is known only at launch. */
    readonly proxy?: string;
  };
  readonly subprocess: { readonly contained: boolean; readonly listed: boolean; readonly none: boolean };
  /** Limits of the whole tree that can be set and read back: by a cgroup, or (processes) by RLIMIT_NPROC in the job's user namespace. `processesBy`: which, in words for the scope. */
  readonly limits: { readonly memory: boolean; readonly cpus: boolean; readonly processes: boolean; readonly swap: boolean; readonly processesBy?: string };
  /** Levels that are at best cooperative (the host executor). */
  readonly cooperative: readonly Dimension[];
  /** Runs the command in a container image. Absent: no. */
  readonly images?: boolean;
  /** Where its sandboxes have the socket of AgentCtl. Absent: they have none. */
  readonly agentSocket?: string;
  /** The image of a job that names none, when it is there. */
  readonly defaultImage?: string;
  /** OCI runtimes that a job may name, each with the controls that can be proven with it. Absent: none may be named. */
  readonly runtimes?: readonly RuntimeCapabilities[];
}
