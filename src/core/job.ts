import type { Mode } from './dimension.ts';

/** Where a rule was written, for explain and for every denial. */
export interface Origin {
  readonly layer: 'flag' | 'job' | 'profile' | 'policy' | 'user policy' | 'workspace policy' | 'mode' | 'built-in';
  /** Name of the profile or policy, the flag as typed, or the path of the file. */
  readonly name: string;
  readonly file?: string;
  /** 1-based. */
  readonly line?: number;
}

/** A file rule after normalisation: absolute, `~` and the job's directory resolved, no `..`. */
export interface PathRule {
  /** Absolute path, or absolute glob (`*` stops at `/`, `**` crosses; a directory covers its descendants). */
  readonly pattern: string;
  /** False when `pattern` holds a glob character that is meant as one. */
  readonly literal: boolean;
  readonly origin: Origin;
}

export interface HostRule {
  readonly kind: 'name' | 'cidr';
  /** Canonical name (`*.` prefix allowed), or canonical CIDR. */
  readonly host: string;
  /** Undefined in a deny rule: every port. */
  readonly ports: readonly number[] | undefined;
  /** The rule may lead to private, loopback, link-local, CGNAT, metadata and multicast addresses. */
  readonly private: boolean;
  readonly origin: Origin;
}

/** How the text begins that a job holds in place of an injected secret. */
export const PLACEHOLDER_PREFIX = 'proofrun-placeholder-';

export interface SecretGrant {
  readonly name: string;
  /** `env:NAME`, `file:PATH`, `command:...`, `keyring:...`. */
  readonly from: string;
  readonly inject?: {
    readonly host: string;
    readonly header: string;
    /** With one `{}` where the secret goes. */
    readonly format: string;
    /** Also in https, which has to be read for it. */
    readonly intercept?: boolean;
  };
  readonly origin: Origin;
}

/** Limits; undefined means that nobody asked for one. */
export interface ResourceLimits {
  readonly memoryBytes?: number;
  readonly swapBytes?: number;
  readonly cpus?: number;
  readonly processes?: number;
  readonly openFiles?: number;
  readonly fileSizeBytes?: number;
  readonly stageSizeBytes?: number;
  readonly tmpSizeBytes?: number;
  readonly wallTimeMs?: number;
  readonly cpuTimeMs?: number;
  /** Head and tail of each output stream that are kept. */
  readonly outputKeptBytes?: number;
}

/** As in the caller's own git configuration; empty: not set there. */
export interface GitIdentity {
  readonly name: string;
  readonly email: string;
}

/** A login file that a profile's agent uses: copied into the private home. */
export interface LoginGrant {
  /** Absolute, below the caller's home. */
  readonly path: string;
  readonly profile: string;
  /** A changed file is written back when it is a JSON object that differs from what it was only in `values`. */
  readonly writeBack: boolean;
  /** Keys joined by dots, `*` for one of any name. */
  readonly values: readonly string[];
  /** Keys of a number or date that grows with every refresh. */
  readonly newest?: string;
  readonly origin: Origin;
}

/** What is left after grants were joined, ceilings intersected and denials subtracted: what the executor must make true. */
export interface EffectivePermissions {
  readonly fileRead: {
    readonly requested: boolean;
    /** host: everything the caller can read, less `deny`. projected: system directories, toolchains and `allow` only. */
    readonly root: 'host' | 'projected';
    /** private: a fresh HOME. real: the caller's HOME is visible, its writes are private and thrown away. */
    readonly home: 'private' | 'real';
    readonly allow: readonly PathRule[];
    readonly deny: readonly PathRule[];
    /** Names of the workspace that are hidden under --safe and --strict. Absent: none. */
    readonly secretNames?: {
      readonly always: readonly PathRule[];
      /** Names that `always` matches and that stay visible. */
      readonly except: readonly PathRule[];
      /** Hidden when the file holds a private key. */
      readonly privateKeys: readonly PathRule[];
    };
    /** Configuration of profiles below HOME: copied into a private home, where the job may change its copy. Absolute paths of the real home. */
    readonly homeCopies?: readonly PathRule[];
    /** Cache directories of profiles: a directory of ours for each profile, mounted at that path of the private home. */
    readonly caches?: readonly { readonly path: string; readonly profile: string }[];
    /** Where agents of profiles keep what they continue from: a directory of ours for each workspace and profile, mounted writable at that path of the private home. */
    readonly states?: readonly { readonly path: string; readonly profile: string; readonly origin: Origin }[];
    /** The caller's git name and email, for git in a private home. Absent: not granted, or the caller has none. */
    readonly gitIdentity?: GitIdentity;
    /** Where it is written that what no rule names can't be read. */
    readonly defaultOrigin?: Origin;
  };
  readonly fileWrite: {
    readonly requested: boolean;
    /** Absolute host directories that are staged: the workspace (or the parts of it named) and a linked worktree's common directory. */
    readonly stage: readonly string[];
    readonly direct: readonly PathRule[];
    readonly deny: readonly PathRule[];
  };
  readonly network: {
    readonly requested: boolean;
    readonly kind: 'public' | 'deny' | 'selective';
    readonly defaultAllow: boolean;
    readonly allow: readonly HostRule[];
    readonly deny: readonly HostRule[];
    readonly hostPorts: readonly number[];
    readonly publish: readonly { readonly hostPort: number; readonly jobPort: number }[];
    /** Where the default is written: `safe.yaml:14`. Absent: nobody wrote one. */
    readonly defaultOrigin?: Origin;
  };
  readonly subprocess: {
    readonly requested: boolean;
    /** contained: any program, in the job's own pid namespace. listed: only `allow`. none: no fork, no exec beyond the first. */
    readonly kind: 'contained' | 'listed' | 'none';
    readonly allow: readonly string[];
    readonly defaultOrigin?: Origin;
  };
  readonly credentials: {
    readonly requested: boolean;
    /** The environment of the command, complete: name to value. Sorted by name. */
    readonly environment: Readonly<Record<string, string>>;
    /** Names among them that look like credentials; listed in review. */
    readonly visible: readonly string[];
    readonly secrets: readonly SecretGrant[];
    /** Sockets of agents (ssh-agent ...) that were granted by name. */
    readonly agentSockets: readonly string[];
    /** Login files of profiles. Absent: none. */
    readonly logins?: readonly LoginGrant[];
    /** Where it is written that only named variables pass. Absent: the whole environment passes. */
    readonly defaultOrigin?: Origin;
  };
  readonly models: { readonly requested: boolean };
  readonly tools: { readonly requested: boolean };
  readonly resources: {
    readonly requested: boolean;
    readonly limits: ResourceLimits;
    /** Where each limit comes from. */
    readonly origins?: Readonly<Partial<Record<keyof ResourceLimits, Origin>>>;
  };
}

/** A policy or profile file, or a preset, that took part. */
export interface LayerRecord {
  readonly kind: 'policy' | 'profile' | 'job';
  readonly name: string;
  readonly source: string;
  readonly sha256: string;
}

/** A job, complete and normalised: the input of admission. */
export interface EffectiveJob {
  readonly name: string | undefined;
  readonly mode: Mode;
  /** Who asked for the mode; absent for the default one. */
  readonly modeOrigin?: Origin;
  readonly argv: readonly [string, ...string[]];
  /** Absolute. Inside the workspace. */
  readonly cwd: string;
  /** Absolute, real path (no symlink in it). */
  readonly workspace: string;
  /** The caller's home, absolute real path. */
  readonly home: string;
  readonly executor: 'auto' | 'native' | 'docker' | 'host';
  readonly image: string | undefined;
  /** OCI runtime that the container is to have. Absent: the engine's default. */
  readonly runtime?: string;
  /** Dimensions waived by --degrade. */
  readonly waived: readonly string[];
  readonly permissions: EffectivePermissions;
  readonly layers: readonly LayerRecord[];
  readonly warnings: readonly string[];
  /** Of profiles: what to do where a tool's own sandbox can't nest. */
  readonly hints?: readonly string[];
}
