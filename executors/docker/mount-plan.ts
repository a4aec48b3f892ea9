import { dirname } from 'node:path';
import type { StagedRoot } from '../../src/core/change.ts';
import { ProofrunError } from '../../src/core/errors.ts';
import type { JsonValue } from '../../src/core/json.ts';
import type { LaunchRequest } from '../../src/executor/executor.ts';
import { formatMount, type MountLine } from '../native/mountinfo.ts';
import { runtimeMounts, runtimeWritable } from './container-mounts.ts';
import type { DockerFacts } from './facts.host.ts';
import type { MountBody } from './lower.ts';

export const SHIM_IN_CONTAINER = '/.proofrun/shim';
export const CONTROL_IN_CONTAINER = '/.proofrun/control';
/** tmpfs without a limit of the job's. */
export const SHM_BYTES = 64 << 20;

/** A layer to make on the host before the launch. */
export interface LayerPlan {
  readonly directory: string;
  /** Whose names and modes it repeats; undefined: the private home. */
  readonly root: string | undefined;
}

/** A volume of one run, with what is put into it before the container is started. */
export interface VolumePlan {
  readonly name: string;
  /** In the job's container. */
  readonly target: string;
  readonly readOnly: boolean;
  readonly holds:
    | { readonly kind: 'shim' }
    | { readonly kind: 'home' }
    | { readonly kind: 'staged'; readonly root: StagedRoot }
    | { readonly kind: 'granted' }
    /** Part of the volume that `within` names, mounted over it read-only. */
    | { readonly kind: 'denied'; readonly within: string };
}

/** The container's mounts, and what its table and the engine have to say of them. */
export interface MountPlan {
  readonly bodies: readonly MountBody[];
  readonly tmpfs: Readonly<Record<string, string>>;
  readonly shmBytes: number;
  readonly layers: readonly LayerPlan[];
  /** Directories below HOME that others are mounted on: absolute. */
  readonly homeDirectories: readonly string[];
  /** Files below HOME that others are mounted on, made empty. */
  readonly homeFiles: readonly string[];
  readonly homeLower: string;
  readonly homeUpper: string;
  readonly homeWork: string;
  readonly table: readonly string[];
  readonly writable: readonly string[];
  /** Mount points that receive what the host mounts below them: volumes and the root. None of them sends. */
  readonly receiving: readonly string[];
  readonly uppers: readonly { readonly mount_point: string; readonly upper: string }[];
  readonly engineMounts: readonly JsonValue[];
  /** Where the engine doesn't see this machine's files: what is sent there instead of being mounted from here. */
  readonly volumes?: readonly VolumePlan[];
  /** Whether a path of the host can be seen in the container. */
  shows(path: string): boolean;
}

const within = (path: string, root: string): boolean => path === root || root === '/' || path.startsWith(`${root}/`);

/** The engine hands the options of an overlay on as one string of at most a page. */
const LONGEST_OPTIONS = 4095;

function overlayOptions(lowers: readonly string[], layer: { readonly upper: string; readonly work: string } | undefined, userxattr: boolean): string {
  const paths = [...lowers, ...(layer === undefined ? [] : [layer.upper, layer.work])];
  const odd = paths.find((path) => /[,:\\"\n]/.test(path));
  if (odd !== undefined) {
    throw new ProofrunError('ERR_LAUNCH', {
      message: `an engine can't stage ${JSON.stringify(odd)}: a comma, colon, backslash, quote or line break in its path ends a mount option`,
      hint: 'use --executor native, or another place for it',
    });
  }
  const options = [
    `lowerdir=${lowers.join(':')}`,
    ...(layer === undefined ? [] : [`upperdir=${layer.upper}`, `workdir=${layer.work}`]),
    ...(userxattr ? ['userxattr'] : []),
    ...(layer === undefined ? ['ro'] : []),
    ...['nosuid', 'nodev'],
  ].join(',');
  if (options.length > LONGEST_OPTIONS) {
    throw new ProofrunError('ERR_LAUNCH', {
      message: `the paths of an overlay are too long for an engine: ${options.length} bytes of mount options`,
      hint: 'use --executor native',
    });
  }
  return options;
}

/** Pure: the same request and facts give the same plan. Throws ERR_LAUNCH for paths that an engine can't be given. */
export function planMounts(request: LaunchRequest, facts: DockerFacts, labels: Readonly<Record<string, string>>, channel: 'socket' | 'attach'): MountPlan {
  const { job } = request.plan;
  const { scratch } = request;
  // Layers of root's own runs are read by root later, with the names that the kernel uses by itself.
  const userxattr = !facts.asRoot;
  const bodies: MountBody[] = [];
  const table = [...runtimeMounts(facts.machine)];
  const writable = [...runtimeWritable(facts.machine)];
  const receiving: string[] = ['/'];
  const uppers: { mount_point: string; upper: string }[] = [];
  const engineMounts: { type: string; target: string; writable: boolean; from: string }[] = [];
  const layers: LayerPlan[] = [];

  const overlay = (target: string, lowers: readonly string[], layer: { readonly upper: string; readonly work: string } | undefined): void => {
    const masked = facts.masks.has(target) ? `${scratch}/mask-${layers.length}` : undefined;
    if (masked !== undefined) layers.push({ directory: masked, root: target });
    const stack = [...(masked === undefined ? [] : [masked]), ...lowers];
    // An overlay without an upper layer needs two lower ones.
    const options = overlayOptions(layer === undefined && stack.length === 1 ? [...stack, `${scratch}/empty`] : stack, layer, userxattr);
    const readOnly = layer === undefined;
    bodies.push({
      Type: 'volume',
      Target: target,
      // A volume without a name, which goes with its container, can't be marked read-only: its overlay is.
      ReadOnly: false,
      VolumeOptions: { NoCopy: true, Labels: labels, DriverConfig: { Name: 'local', Options: { type: 'overlay', device: 'overlay', o: options } } },
    });
    table.push(formatMount(target, 'overlay', [readOnly ? 'ro' : 'rw', 'nosuid', 'nodev']));
    receiving.push(target);
    engineMounts.push({ type: 'volume', target, writable: true, from: options });
    if (layer !== undefined) {
      writable.push(target);
      uppers.push({ mount_point: target, upper: layer.upper });
    }
  };
  const bind = (source: string, target: string, readOnly: boolean): void => {
    bodies.push({ Type: 'bind', Source: source, Target: target, ReadOnly: readOnly, BindOptions: { Propagation: 'rprivate' } });
    engineMounts.push({ type: 'bind', target, writable: !readOnly, from: source });
    if (!readOnly) writable.push(target);
  };

  const home = { lower: `${scratch}/home/lower`, upper: `${scratch}/home/upper`, work: `${scratch}/home/work` };
  overlay(job.home, [home.lower], home);
  for (const staged of request.stage) overlay(staged.root, [staged.root], staged);
  const binds: { readonly source: string; readonly target: string; readonly readOnly: boolean }[] = [
    { source: facts.shim, target: SHIM_IN_CONTAINER, readOnly: true },
    ...(channel === 'socket' ? [{ source: `${scratch}/control`, target: CONTROL_IN_CONTAINER, readOnly: true }] : []),
    ...facts.direct.map(({ path }) => ({ source: path, target: path, readOnly: false })),
    ...facts.caches.map(({ path, source }) => ({ source, target: path, readOnly: false })),
    ...facts.granted.filter((one) => !one.directory).map(({ path }) => ({ source: path, target: path, readOnly: true })),
    ...facts.writeDenied.filter((one) => !one.directory).map(({ path }) => ({ source: path, target: path, readOnly: true })),
  ];
  // Through an overlay the sockets and FIFOs of a directory don't answer; through a bind they would.
  for (const { path, directory } of [...facts.granted, ...facts.writeDenied]) if (directory) overlay(path, [path], undefined);
  for (const { source, target, readOnly } of binds) bind(source, target, readOnly);

  const limit = job.permissions.resources.limits.tmpSizeBytes;
  const size = limit === undefined ? '' : `,size=${limit}`;
  const tmpfs: Record<string, string> = {};
  const targets = new Set(bodies.map((one) => one.Target));
  for (const path of ['/tmp', '/var/tmp']) {
    if (targets.has(path)) continue;
    tmpfs[path] = `rw,exec,nosuid,nodev,mode=1777${size}`;
  }
  // A volume that the image declares would be one of the engine's, kept beyond the run.
  for (const path of facts.image.volumes) {
    if (targets.has(path) || path in tmpfs || !path.startsWith('/') || path === '/') continue;
    tmpfs[path] = `rw,exec,nosuid,nodev,mode=1777${size}`;
  }
  for (const path of Object.keys(tmpfs)) {
    table.push(formatMount(path, 'tmpfs', ['rw', 'nosuid', 'nodev']));
    writable.push(path);
  }

  const all = [...targets, ...Object.keys(tmpfs)].filter((path) => path !== job.home && within(path, job.home));
  const file = (path: string): boolean => binds.some((one) => one.target === path && !isDirectoryTarget(path, facts));
  const homeDirectories = [
    ...new Set([...all.filter((path) => !file(path)), ...all.map(dirname), ...facts.homeCopies.flatMap(({ path }) => parentsOf(path, job.home))]),
  ]
    .filter((path) => path !== job.home && within(path, job.home))
    .sort();
  const roots = [...request.stage.map((one) => one.root), ...facts.granted.map((one) => one.path), ...facts.direct.map((one) => one.path)];
  return {
    bodies,
    tmpfs,
    shmBytes: limit ?? SHM_BYTES,
    layers,
    homeDirectories,
    homeFiles: all.filter(file),
    homeLower: home.lower,
    homeUpper: home.upper,
    homeWork: home.work,
    table: [...table, ...bindLines(binds, facts)].sort(),
    writable: [...new Set(writable)].sort(),
    receiving: [...new Set(receiving)].sort(),
    uppers: uppers.sort((a, b) => (a.mount_point < b.mount_point ? -1 : 1)),
    engineMounts: engineMounts.sort((a, b) => (a.target < b.target ? -1 : 1)),
    shows: (path) => roots.some((root) => within(path, root)),
  };
}

/** The directories between a home and a path in it, outermost first. */
function parentsOf(path: string, home: string): readonly string[] {
  const parents: string[] = [];
  for (let at = dirname(path); at !== home && within(at, home); at = dirname(at)) parents.unshift(at);
  return parents;
}

function isDirectoryTarget(path: string, facts: DockerFacts): boolean {
  return facts.direct.some((one) => one.path === path && one.directory) || facts.caches.some((one) => one.path === path);
}

/** Files that the engine itself mounts into every container. */
export const ENGINE_FILES = ['/etc/hostname', '/etc/hosts', '/etc/resolv.conf'];

/** Binds keep the filesystem of their source; the engine's files lie in its data directory. */
function bindLines(binds: readonly { readonly source: string; readonly target: string; readonly readOnly: boolean }[], facts: DockerFacts): readonly string[] {
  return [
    ...binds.map(({ source, target, readOnly }) => bindLine(facts, source, target, readOnly)),
    ...ENGINE_FILES.map((path) => bindLine(facts, facts.engine.dataRoot, path, true)),
  ];
}

function bindLine(facts: DockerFacts, source: string, target: string, readOnly: boolean): string {
  const { fsType, options } = mountOf(facts.mounts, source) ?? { fsType: '', options: [] };
  // To make it read-only it is mounted once more, with that flag alone; else it keeps the flags of its source.
  return formatMount(target, fsType, readOnly ? ['ro'] : options);
}

/** The mount that a path of the host lies on. */
function mountOf(mounts: readonly MountLine[], path: string): MountLine | undefined {
  let found: MountLine | undefined;
  for (const mount of mounts) if (within(path, mount.mountPoint) && mount.mountPoint.length >= (found?.mountPoint.length ?? 0)) found = mount;
  return found;
}
