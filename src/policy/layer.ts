import type { Mode } from '../core/dimension.ts';
import type { JsonValue } from '../core/json.ts';

/**
 * The form of a job file's permissions, of a profile and of a policy after parsing and before they meet a host: plain JSON, every rule
 * with the line where it stands. Paths are as written (`~`, relative); presets are shipped in this form.
 */
export interface Sited<T> {
  readonly value: T;
  /** 1-based. 0: no file. */
  readonly line: number;
}

export type Action = 'allow' | 'deny';
/** Which grants a ceiling admits besides its lists. none: only what its lists cover. named: every rule that names what it opens. any: also `default_action: allow`. */
export type GrantScope = 'none' | 'named' | 'any';
export type AgentSocket = 'ssh-agent' | 'gpg-agent';
export const REGISTRY_SOURCES = ['npm-config', 'pip-config', 'cargo-config', 'go-env', 'maven-settings', 'git-remotes'] as const;
/** A tool's own configuration that names the hosts it uses. */
export type RegistrySource = (typeof REGISTRY_SOURCES)[number];

/** What every section of a file may hold. */
export interface SectionHead {
  readonly line: number;
  readonly defaultAction?: Sited<Action>;
  /** In a policy only. */
  readonly grants?: Sited<GrantScope>;
}

export interface RawHost {
  readonly host: string;
  readonly ports?: readonly number[];
  readonly private?: boolean;
}

export interface RawSecret {
  readonly name: string;
  readonly from?: string;
  readonly inject?: { readonly host: string; readonly header: string; readonly format: string; readonly intercept?: boolean };
}

/** A tool's login file as a profile names it. */
export interface RawLogin {
  readonly path: string;
  readonly writeBack: boolean;
  readonly values: readonly string[];
  readonly newest?: string;
}

export interface FileReadSection extends SectionHead {
  readonly allow?: readonly Sited<string>[];
  readonly deny?: readonly Sited<string>[];
  /** In a profile only: configuration below HOME. */
  readonly config?: readonly Sited<string>[];
  /** In a profile only: directories below HOME of which each workspace has one of ours. */
  readonly state?: readonly Sited<string>[];
  /** In a profile only: caches below HOME. */
  readonly cache?: readonly Sited<string>[];
}

export interface FileWriteSection extends SectionHead {
  readonly stage?: readonly Sited<string>[];
  /** The line of the `stage` key, also of an empty list. */
  readonly stageLine?: number;
  readonly direct?: readonly Sited<string>[];
  readonly deny?: readonly Sited<string>[];
}

export interface NetworkSection extends SectionHead {
  readonly allow?: readonly Sited<RawHost>[];
  readonly deny?: readonly Sited<RawHost>[];
  readonly allowFrom?: readonly Sited<RegistrySource>[];
  readonly hostPorts?: readonly Sited<number>[];
  readonly publish?: readonly Sited<{ readonly hostPort: number; readonly jobPort: number }>[];
  /** In a policy only: false forbids rules that open private addresses. */
  readonly private?: Sited<boolean>;
}

export interface SubprocessSection extends SectionHead {
  readonly allow?: readonly Sited<string>[];
}

export interface CredentialsSection extends SectionHead {
  readonly passEnv?: readonly Sited<string>[];
  readonly secrets?: readonly Sited<RawSecret>[];
  readonly agentSockets?: readonly Sited<AgentSocket>[];
  /** In a profile only. */
  readonly login?: readonly Sited<RawLogin>[];
  /** In a profile only. */
  readonly gitIdentity?: boolean;
}

/** Sections that are stated but decided by a later part of Proofrun: kept whole. */
export interface StatedSection {
  readonly line: number;
  readonly value: JsonValue;
}

/** Limits by the field of ResourceLimits. */
export interface ResourcesSection {
  readonly line: number;
  readonly limits: Readonly<Partial<Record<LimitField, Sited<number>>>>;
}

export const LIMIT_FIELDS = {
  memory: 'memoryBytes',
  swap: 'swapBytes',
  cpus: 'cpus',
  processes: 'processes',
  open_files: 'openFiles',
  file_size: 'fileSizeBytes',
  stage_size: 'stageSizeBytes',
  tmp_size: 'tmpSizeBytes',
  wall_time: 'wallTimeMs',
  cpu_time: 'cpuTimeMs',
  output_kept: 'outputKeptBytes',
} as const;
/** The key of a limit in a file. */
export type LimitKey = keyof typeof LIMIT_FIELDS;
export type LimitField = (typeof LIMIT_FIELDS)[LimitKey];
export const LIMIT_KEYS = Object.keys(LIMIT_FIELDS) as LimitKey[];

export interface PermissionSections {
  readonly fileRead?: FileReadSection;
  readonly fileWrite?: FileWriteSection;
  readonly network?: NetworkSection;
  readonly subprocess?: SubprocessSection;
  readonly credentials?: CredentialsSection;
  readonly models?: StatedSection;
  readonly tools?: StatedSection;
  readonly resources?: ResourcesSection;
}

/** Where a fact about a tool was read. */
export interface SourceNote {
  readonly what: string;
  readonly where: string;
  /** A date, `2026-12-01`. */
  readonly checked: string;
  /** Why it was not tried. */
  readonly untested?: string;
}

/** A profile (grants) or a policy (ceilings), or the permissions of a job file. */
export interface CompiledLayer {
  readonly kind: 'policy' | 'profile' | 'job';
  readonly name: string;
  /** As named to a person: `safe.yaml`, or the path of a file. */
  readonly file: string;
  /** Of the file's bytes, lower-case hex. */
  readonly sha256: string;
  readonly description?: string;
  readonly mode?: Sited<Mode>;
  readonly permissions: PermissionSections;
  /** In a profile: programs that choose it. */
  readonly programs?: readonly string[];
  /** In a profile: variables set unless the caller sets them. */
  readonly env?: Readonly<Record<string, string>>;
  /** In a profile: what to do where the tool's own sandbox can't nest. */
  readonly hint?: string;
  readonly notes?: readonly string[];
  readonly sources?: readonly SourceNote[];
}
