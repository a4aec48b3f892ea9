import { randomBytes } from 'node:crypto';
import { existsSync, linkSync, lstatSync, readFileSync, readdirSync, readlinkSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { arch } from 'node:process';
import { errnoOf } from '../../src/core/errors.ts';
import type { LaunchRequest } from '../../src/executor/executor.ts';
import { agentSockets, grantedPaths, idsOf, maskOf, supplementaryGroups, type Ids, type Mask } from '../native/facts.host.ts';
import { gatherHomeFiles, statePlaces, type HomeFiles } from '../native/home-files.host.ts';
import { parseMountinfo, type MountLine } from '../native/mountinfo.ts';
import { MASKED, READ_ONLY, type MachineFacts } from './container-mounts.ts';
import type { EngineInfo, ImageFacts } from './engine-facts.ts';
import type { OwnerMark } from './labels.ts';

/** A host directory or file that the container shows. */
export interface Shown {
  readonly path: string;
  readonly directory: boolean;
}

/** Everything about the host, the engine and the image that the lowering needs. Plain data. */
export interface DockerFacts extends HomeFiles {
  readonly arch: string;
  readonly asRoot: boolean;
  readonly job: Ids;
  /** A process of the caller's that the job must not reach by its number. */
  readonly hostPid: number;
  readonly namespaces: { readonly mnt: string; readonly pid: string; readonly net: string };
  readonly engine: EngineInfo;
  /** The engine doesn't see this machine's files: what the job needs of them is sent, and /proc here doesn't show its processes. */
  readonly apart: boolean;
  readonly image: ImageFacts;
  /** The engine has a network that leads out. */
  readonly bridge: boolean;
  readonly machine: MachineFacts;
  /** Of the host. */
  readonly mounts: readonly MountLine[];
  readonly shim: string;
  readonly owner: OwnerMark;
  /** Of the state directory. */
  readonly stateToken: string;
  /** Granted for reading, outside what the image is for. */
  readonly granted: readonly Shown[];
  readonly direct: readonly Shown[];
  readonly caches: readonly { readonly path: string; readonly source: string }[];
  readonly writeDenied: readonly Shown[];
  /** By root that is shown through an overlay. */
  readonly masks: ReadonlyMap<string, Mask>;
  readonly hiddenPresent: readonly string[];
  readonly agentSockets: readonly string[];
  /** TCP on 127.0.0.1 of the caller, for the probe. Undefined: no IPv4 loopback. */
  readonly tcpPort: number | undefined;
}

export interface DockerFactsInput {
  readonly request: LaunchRequest;
  readonly engine: EngineInfo;
  readonly apart: boolean;
  readonly image: ImageFacts;
  readonly bridge: boolean;
  readonly shim: string;
  readonly owner: OwnerMark;
  readonly environment: NodeJS.ProcessEnv;
  readonly cacheSource: (profile: string, path: string) => string;
  readonly socketGroup: number | undefined;
  readonly tcpPort: number | undefined;
}

/** Directories that belong to the image: a grant of the host's would break its programs. */
const IMAGE_PLACES = ['/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32', '/etc', '/proc', '/sys', '/dev'];

const within = (path: string, root: string): boolean => path === root || root === '/' || path.startsWith(`${root}/`);

/** The directory or file at a path; undefined for anything else, a socket among it. */
function shown(path: string): Shown | undefined {
  const facts = statSync(path, { throwIfNoEntry: false });
  return facts?.isDirectory() === true || facts?.isFile() === true ? { path, directory: facts.isDirectory() } : undefined;
}

function isDirectory(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

/** The engine's machine is this one: its kernel's files are here to be looked at. */
function machineFacts(engine: EngineInfo, mounts: readonly MountLine[]): MachineFacts {
  const legacy = mounts.filter((one) => one.fsType === 'cgroup' && one.mountPoint.startsWith('/sys/fs/cgroup/'));
  return {
    cgroupVersion: engine.cgroupVersion,
    hierarchies: engine.cgroupVersion === 2 ? [] : legacy.map((one) => basename(one.mountPoint)),
    rootType: rootType(engine, mounts),
    masked: MASKED.filter((path) => existsSync(path)).map((path) => ({ path, directory: isDirectory(path) })),
    readOnly: READ_ONLY.filter((path) => existsSync(path)),
  };
}

function rootType({ storageDriver, dataRoot }: EngineInfo, mounts: readonly MountLine[]): string {
  if (storageDriver === 'overlay2' || storageDriver === 'overlayfs' || storageDriver === 'overlay') return 'overlay';
  if (storageDriver === 'fuse-overlayfs') return 'fuse.fuse-overlayfs';
  // vfs and btrfs: a directory of the filesystem that holds the engine's data.
  let found = '';
  let length = -1;
  for (const mount of mounts) {
    if (!within(dataRoot, mount.mountPoint) || mount.mountPoint.length < length) continue;
    found = mount.fsType;
    length = mount.mountPoint.length;
  }
  return found;
}

/** Reads the host once for a launch. */
export function gatherFacts(input: DockerFactsInput): DockerFacts {
  const { request, engine, image, environment } = input;
  const { job } = request.plan;
  const { permissions } = job;
  const uid = process.geteuid?.() ?? 0;
  const gid = process.getegid?.() ?? 0;
  const asRoot = uid === 0;
  const owner = asRoot ? lstatSync(job.workspace) : undefined;
  // Who may use the engine can become root: that group isn't handed on.
  const caller: Ids = { uid, gid, groups: [...new Set([gid, ...supplementaryGroups()])].filter((one) => one === gid || one !== input.socketGroup) };
  const jobIds = owner === undefined || owner.uid === 0 ? caller : idsOf(owner.uid, owner.gid);
  const mounts = parseMountinfo(readFileSync('/proc/self/mountinfo', 'utf8'));
  const staged = request.stage.map((one) => one.root);
  const covered = (path: string): boolean => staged.some((root) => within(path, root));
  const hidden = [...new Set([...request.hidden, request.stateDirectory])];
  const isHidden = (path: string): boolean => hidden.some((one) => within(path, one));

  const granted = [...permissions.fileRead.allow.flatMap(grantedPaths), ...(covered(job.workspace) ? [] : [job.workspace])]
    .filter((path) => path !== '/' && !IMAGE_PLACES.some((one) => within(path, one)) && !covered(path) && !isHidden(path))
    .flatMap((path) => shown(path) ?? []);
  const outermost = granted.filter((one) => !granted.some((other) => other.path !== one.path && other.directory && within(one.path, other.path)));
  const once = outermost.filter((one, index) => outermost.findIndex((other) => other.path === one.path) === index);
  // Volumes are directories: a file of the home comes along as a copy.
  const homeFiles = gatherHomeFiles(request, isHidden);
  const carried = input.apart ? once.filter((one) => !one.directory && within(one.path, job.home)) : [];
  const unique = once.filter((one) => !carried.includes(one));

  const masks = new Map<string, Mask>();
  for (const root of [...staged, ...unique.filter((one) => one.directory).map((one) => one.path)]) {
    const mask = maskOf(root, hidden);
    if (mask !== undefined) masks.set(root, mask);
  }
  const here = (kind: string): string => readlinkSync(`/proc/self/ns/${kind}`);
  return {
    arch,
    asRoot,
    job: jobIds,
    hostPid: outsideNumber(),
    namespaces: { mnt: here('mnt'), pid: here('pid'), net: here('net') },
    engine,
    apart: input.apart,
    image,
    bridge: input.bridge,
    machine: machineFacts(engine, mounts),
    mounts,
    shim: input.shim,
    owner: input.owner,
    stateToken: stateToken(request.stateDirectory),
    granted: unique,
    direct: permissions.fileWrite.direct.flatMap(({ pattern }) => shown(pattern) ?? []),
    caches: [
      ...(permissions.fileRead.caches ?? []).map(({ path, profile }) => ({ path, source: input.cacheSource(profile, path) })),
      ...statePlaces(job, request.stateDirectory),
    ],
    writeDenied: permissions.fileWrite.deny
      .filter((rule) => rule.literal && covered(rule.pattern) && !isHidden(rule.pattern))
      .flatMap((rule) => {
        const facts = lstatSync(rule.pattern, { throwIfNoEntry: false });
        return facts?.isDirectory() === true || facts?.isFile() === true ? [{ path: rule.pattern, directory: facts.isDirectory() }] : [];
      }),
    ...homeFiles,
    homeCopies: [...carried.map(({ path }) => ({ path, source: path, mode: statSync(path).mode & 0o777 })), ...homeFiles.homeCopies],
    masks,
    hiddenPresent: request.hidden.filter((path) => lstatSync(path, { throwIfNoEntry: false }) !== undefined),
    agentSockets: agentSockets(uid, environment),
    tcpPort: input.tcpPort,
  };
}

/** Higher than every number that the container has at the gate; a low number of ours could be one of its own. */
function outsideNumber(): number {
  return Math.max(process.pid, ...readdirSync('/proc/self/task').map(Number));
}

/** The group that may use a local engine's socket. */
export function groupOf(socket: string): number | undefined {
  const facts = statSync(socket, { throwIfNoEntry: false });
  return facts === undefined || (facts.mode & 0o020) === 0 ? undefined : facts.gid;
}

/** Who this process is, for the labels. */
export function ownOwner(): OwnerMark {
  const stat = readFileSync('/proc/self/stat', 'utf8');
  const started = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? '0';
  return { pid: process.pid, started, boot: bootId(), namespace: pidNamespace() };
}

export function bootId(): string {
  return readFileSync(join('/proc/sys/kernel/random', 'boot_id'), 'utf8').trim();
}

/** Process numbers mean something only in here. */
export function pidNamespace(): string {
  return /\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? '0';
}

/** A name of the state directory's own, made when it is first asked for: an engine may serve many machines, with such a directory at the same path. */
export function stateToken(stateDirectory: string): string {
  const path = join(stateDirectory, 'engine-token');
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
  }
  const token = randomBytes(16).toString('hex');
  const own = `${path}.${token}`;
  writeFileSync(own, token, { mode: 0o600, flag: 'wx' });
  try {
    linkSync(own, path);
    return token;
  } catch (error) {
    // Another process was first.
    if (errnoOf(error) !== 'EEXIST') throw error;
    return readFileSync(path, 'utf8');
  } finally {
    rmSync(own, { force: true });
  }
}
