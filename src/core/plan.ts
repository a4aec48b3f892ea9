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
  'host_sockets',
  'pid_namespace',
  'shim_is_init',
  'no_new_privs',
  'capabilities',
  'user_drop',
  'seccomp',
  'descriptors',
  'no_program',
  'tree_killed',
  'environment',
  'agent_sockets',
  'session_keyring',
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
  readonly network: { readonly public: boolean; readonly deny: boolean; readonly selective: boolean };
  readonly subprocess: { readonly contained: boolean; readonly listed: boolean; readonly none: boolean };
  /** Limits of the whole tree that can be set and read back: by a cgroup, or (processes) by RLIMIT_NPROC in the job's user namespace. `processesBy`: which, in words for the scope. */
  readonly limits: { readonly memory: boolean; readonly cpus: boolean; readonly processes: boolean; readonly swap: boolean; readonly processesBy?: string };
  /** Levels that are at best cooperative (the host executor). */
  readonly cooperative: readonly Dimension[];
  /** Runs the command in a container image. Absent: no. */
  readonly images?: boolean;
}
