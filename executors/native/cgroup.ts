import { directoryBelow, type CgroupMembership, type CgroupMount } from './cgroup-files.ts';

/** Controllers that carry limits of a job. */
export const LIMIT_CONTROLLERS = ['memory', 'pids', 'cpu'] as const;
export type LimitController = (typeof LIMIT_CONTROLLERS)[number];

/** What is read about one directory of the v2 hierarchy, the caller's own or an ancestor. */
export interface UnifiedFacts {
  readonly directory: string;
  readonly controllers: readonly string[];
  readonly subtreeControl: readonly string[];
  /** Directory, cgroup.procs and cgroup.subtree_control can be written by the caller. */
  readonly writable: boolean;
  /** Processes that sit in the directory itself: with any, no controller can be enabled below it. */
  readonly members: number;
  /** The root of the hierarchy, which is exempt from that rule. It alone has no cgroup.events. */
  readonly isHierarchyRoot: boolean;
  /** A directory that isn't the root shows memory.swap.max. Undefined: no such directory was found. */
  readonly hasSwap: boolean | undefined;
}

/** What is read about the caller's own directory in a v1 hierarchy. */
export interface LegacyFacts {
  readonly directory: string;
  readonly writable: boolean;
  /** memory.memsw.limit_in_bytes exists. */
  readonly hasSwap: boolean;
}

/** Everything that detection reads; pure data, so that layouts of other machines can be decided anywhere. */
export interface CgroupFacts {
  readonly membership: readonly CgroupMembership[];
  readonly mounts: readonly CgroupMount[];
  /** By directory. */
  readonly legacy: ReadonlyMap<string, LegacyFacts>;
  /** The caller's own directory first, then its ancestors up to the mount point. */
  readonly unified: readonly UnifiedFacts[];
  /** systemd's user manager, when it is there. */
  readonly scope: ScopeSupport | undefined;
}

/** The run can be started in a scope of its own by the user's service manager. */
export interface ScopeSupport {
  /** Absolute path of systemd-run, owned by root. */
  readonly program: string;
  /** What systemd-run needs to find the manager; nothing else of the environment is passed. */
  readonly environment: Readonly<Record<string, string>>;
  /** Controllers that the manager was delegated. */
  readonly controllers: readonly LimitController[];
}

/** A directory in which groups of runs are made, as `proofrun/<run id>`. */
export interface CgroupPlace {
  readonly version: 1 | 2;
  readonly directory: string;
  /** What a group made here controls or counts: memory, pids, cpu, cpuacct; none in the unified hierarchy of a hybrid layout. */
  readonly controllers: readonly string[];
  /** v2: controllers to enable in this directory first. */
  readonly enable: readonly string[];
}

export type ControllerSupport = { readonly usable: true; readonly version: 1 | 2 } | { readonly usable: false; readonly reason: string };

export interface CgroupSupport {
  readonly layout: 'none' | 'v1' | 'v2' | 'hybrid';
  readonly places: readonly CgroupPlace[];
  readonly controllers: Readonly<Record<LimitController, ControllerSupport>>;
  /** Swap of a group can be limited, so a memory limit covers swap too. */
  readonly swap: boolean;
  /** Where no group can be made directly. */
  readonly scope: ScopeSupport | undefined;
}

/** The mount through which a membership can be reached; of several, the last one made. */
export function reach(mounts: readonly CgroupMount[], membership: CgroupMembership): { readonly mount: CgroupMount; readonly directory: string } | undefined {
  const version = membership.controllers.length === 0 ? 2 : 1;
  for (const mount of mounts.toReversed()) {
    if (mount.version !== version) continue;
    if (version === 1 && !membership.controllers.every((name) => mount.controllers.includes(name))) continue;
    const directory = directoryBelow(mount, membership.path);
    if (directory !== undefined) return { mount, directory };
  }
  return undefined;
}

/** A controller counts where it limits, or, for cpuacct, where it measures. */
const LEGACY_CONTROLLERS = [...LIMIT_CONTROLLERS, 'cpuacct'];

function decideLegacy(facts: CgroupFacts): { readonly places: readonly CgroupPlace[]; readonly reasons: ReadonlyMap<string, string>; readonly swap: boolean } {
  const places = new Map<string, CgroupPlace>();
  const reasons = new Map<string, string>();
  let swap = false;
  for (const name of LEGACY_CONTROLLERS) {
    const membership = facts.membership.find(({ controllers }) => controllers.includes(name));
    if (membership === undefined) continue;
    const reached = reach(facts.mounts, membership);
    if (reached === undefined) {
      reasons.set(name, `the v1 hierarchy of ${name} is not mounted where this process can see its own group`);
      continue;
    }
    const { directory, mount } = reached;
    const own = facts.legacy.get(directory);
    if (own?.writable !== true) {
      reasons.set(name, mount.readOnly ? `${mount.mountPoint} is mounted read-only` : `${directory} can not be written by this user`);
      continue;
    }
    if (name === 'memory') swap = own.hasSwap;
    const place = places.get(directory);
    places.set(directory, { version: 1, directory, controllers: [...(place?.controllers ?? []), name], enable: [] });
  }
  return { places: [...places.values()], reasons, swap };
}

/** Which controllers a group below this directory could have. */
function obtainable(facts: UnifiedFacts): readonly LimitController[] {
  const canEnable = facts.isHierarchyRoot || facts.members === 0;
  return LIMIT_CONTROLLERS.filter((name) => facts.subtreeControl.includes(name) || (canEnable && facts.controllers.includes(name)));
}

/** The nearest directory that gives most; a process can only be moved where the common ancestor is writable too, so the walk ends at the first that isn't. */
function decideUnified(facts: CgroupFacts): { readonly place: CgroupPlace | undefined; readonly facts: UnifiedFacts | undefined } {
  let best: UnifiedFacts | undefined;
  for (const candidate of facts.unified) {
    if (!candidate.writable) break;
    if (best === undefined || obtainable(candidate).length > obtainable(best).length) best = candidate;
  }
  if (best === undefined) return { place: undefined, facts: undefined };
  const { directory, subtreeControl } = best;
  const controllers = obtainable(best);
  return { place: { version: 2, directory, controllers, enable: controllers.filter((name) => !subtreeControl.includes(name)) }, facts: best };
}

function unifiedReason(facts: CgroupFacts, name: LimitController, legacyReason: string | undefined): string {
  if (legacyReason !== undefined) return legacyReason;
  const [own] = facts.unified;
  const mount = facts.mounts.find(({ version }) => version === 2);
  if (mount === undefined) return facts.mounts.length === 0 ? 'no cgroup hierarchy is mounted' : `no mounted hierarchy has the ${name} controller`;
  if (own === undefined) return `the group of this process is not visible below ${mount.mountPoint}`;
  if (mount.readOnly) return `${mount.mountPoint} is mounted read-only`;
  if (!facts.unified.some(({ controllers }) => controllers.includes(name))) return `the ${name} controller is not available below ${mount.mountPoint}`;
  if (!own.writable) return `${own.directory} is not delegated to this user`;
  return `no group above ${own.directory} that this user may write has the ${name} controller in cgroup.subtree_control`;
}

/** Says what can be limited here, where, and why not; total. */
export function decideCgroups(facts: CgroupFacts): CgroupSupport {
  const legacy = decideLegacy(facts);
  const unified = decideUnified(facts);
  const support = (name: LimitController): ControllerSupport => {
    if (legacy.places.some(({ controllers }) => controllers.includes(name))) return { usable: true, version: 1 };
    if (unified.place?.controllers.includes(name) === true) return { usable: true, version: 2 };
    return { usable: false, reason: unifiedReason(facts, name, legacy.reasons.get(name)) };
  };
  const controllers = { memory: support('memory'), pids: support('pids'), cpu: support('cpu') };
  const hasV1 = facts.mounts.some(({ version, controllers: names }) => version === 1 && names.some((name) => LEGACY_CONTROLLERS.includes(name)));
  const hasV2 = facts.mounts.some(({ version }) => version === 2);
  const anywhere = legacy.places.length > 0 || (unified.place?.controllers.length ?? 0) > 0;
  return {
    layout: hasV1 ? (hasV2 ? 'hybrid' : 'v1') : hasV2 ? 'v2' : 'none',
    // In a hybrid layout the unified group, which has no controllers, gives what v1 lacks: cgroup.kill and cgroup.events.
    places: anywhere ? [...(unified.place === undefined ? [] : [unified.place]), ...legacy.places] : [],
    controllers,
    swap: controllers.memory.usable && (controllers.memory.version === 1 ? legacy.swap : unified.facts?.hasSwap === true),
    scope: facts.scope,
  };
}

/** Limits of one job; undefined means none. */
export interface CgroupLimits {
  readonly memoryBytes?: number;
  /** Swap besides memory. With a memory limit and no swap limit, none is allowed where swap can be limited. */
  readonly swapBytes?: number;
  readonly processes?: number;
  readonly cpus?: number;
}

/** The kernel keeps memory limits in pages; 64 KiB is a multiple of every page size of x86-64 and arm64. */
const MEMORY_STEP = 65536;
/** Period of a CPU quota: the kernel's default. */
export const CPU_PERIOD_US = 100_000;
/** The kernel's least quota. */
const CPU_QUOTA_MIN_US = 1000;

/** What is written for the limits, so that it reads back exactly: memory rounded down to 64 KiB, CPUs to 1/10000. */
export interface RoundedLimits {
  readonly memoryBytes: number | undefined;
  readonly swapBytes: number | undefined;
  readonly processes: number | undefined;
  /** Of CPU_PERIOD_US. */
  readonly cpuQuotaUs: number | undefined;
}

export function roundLimits(limits: CgroupLimits, swap: boolean): RoundedLimits {
  const down = (bytes: number): number => Math.floor(bytes / MEMORY_STEP) * MEMORY_STEP;
  const swapBytes = limits.swapBytes ?? (limits.memoryBytes !== undefined && swap ? 0 : undefined);
  return {
    memoryBytes: limits.memoryBytes === undefined ? undefined : down(limits.memoryBytes),
    swapBytes: swapBytes === undefined ? undefined : down(swapBytes),
    processes: limits.processes,
    cpuQuotaUs: limits.cpus === undefined ? undefined : Math.max(CPU_QUOTA_MIN_US, Math.round(limits.cpus * 10_000) * (CPU_PERIOD_US / 10_000)),
  };
}

/** Facts that readBack gives for a limit. */
export type LimitFactName = 'memory_limit' | 'swap_limit' | 'process_limit' | 'cpu_limit';

/** The values that the facts have when the limits are installed: bytes, bytes, tasks, CPUs. Limits that nobody asked for are left out. */
export function expectedLimits(limits: CgroupLimits, support: CgroupSupport): Readonly<Partial<Record<LimitFactName, number>>> {
  const rounded = roundLimits(limits, support.swap);
  return {
    ...(rounded.memoryBytes === undefined ? {} : { memory_limit: rounded.memoryBytes }),
    ...(rounded.swapBytes === undefined ? {} : { swap_limit: rounded.swapBytes }),
    ...(rounded.processes === undefined ? {} : { process_limit: rounded.processes }),
    ...(rounded.cpuQuotaUs === undefined ? {} : { cpu_limit: rounded.cpuQuotaUs / CPU_PERIOD_US }),
  };
}

/** Which of the limits this support can't set, each with the reason. */
export function unsupportedLimits(limits: CgroupLimits, support: CgroupSupport): readonly { readonly limit: keyof CgroupLimits; readonly reason: string }[] {
  const missing: { limit: keyof CgroupLimits; reason: string }[] = [];
  const ask = (limit: keyof CgroupLimits, controller: LimitController): void => {
    const state = support.controllers[controller];
    if (limits[limit] !== undefined && !state.usable) missing.push({ limit, reason: state.reason });
  };
  ask('memoryBytes', 'memory');
  ask('swapBytes', 'memory');
  ask('processes', 'pids');
  ask('cpus', 'cpu');
  if (limits.swapBytes !== undefined && support.controllers.memory.usable && !support.swap) {
    missing.push({ limit: 'swapBytes', reason: 'this kernel does not count swap per group (swapaccount=1)' });
  }
  return missing;
}

/**
 * The argv that starts `argv` in a scope of the user's service manager with the limits on it (systemd.resource-control(5)).
 * The scope is collected when its last process ends.
 */
export function scopeArgv(scope: ScopeSupport, id: string, limits: CgroupLimits, argv: readonly string[]): readonly string[] {
  const property = (name: string, value: string | number | undefined): readonly string[] => (value === undefined ? [] : ['-p', `${name}=${value}`]);
  const rounded = roundLimits(limits, true);
  return [
    scope.program,
    '--user',
    '--scope',
    '--quiet',
    '--collect',
    `--unit=proofrun-${id}`,
    ...property('MemoryMax', rounded.memoryBytes),
    ...property('MemorySwapMax', rounded.swapBytes),
    ...property('TasksMax', rounded.processes),
    ...property('CPUQuota', rounded.cpuQuotaUs === undefined ? undefined : `${(rounded.cpuQuotaUs * 100) / CPU_PERIOD_US}%`),
    '--',
    ...argv,
  ];
}
