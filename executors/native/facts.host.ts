import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync, realpathSync, statSync, type Dirent } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { arch } from 'node:process';
import { ProofrunError } from '../../src/core/errors.ts';
import type { EffectiveJob, PathRule } from '../../src/core/job.ts';
import type { LaunchRequest } from '../../src/executor/executor.ts';
import { placeName } from '../../src/executor/kept-places.ts';
import { compileMatcher, literalBase } from '../../src/policy/path-rule.ts';
import { gatherHomeFiles, statePlaces, type HomeFiles } from './home-files.host.ts';
import { parseMountinfo, type MountLine } from './mountinfo.ts';
import { listPrograms, type ListedPrograms } from './programs.host.ts';
import { toolchainPaths } from './toolchains.host.ts';
import { NO_SHADOW, shadowOf, type Shadow } from './shadow.host.ts';
import { mountsBelow, projectTree, type Projected, type Projection } from './projection.host.ts';

/** Who the command runs as. */
export interface Ids {
  readonly uid: number;
  readonly gid: number;
  readonly groups: readonly number[];
}

/** Entries of a mask layer: directories to copy the attributes of, and names to hide. Paths are relative to the masked directory. */
export interface Mask {
  readonly directories: readonly string[];
  readonly whiteouts: readonly string[];
  /** What is repeated with the job's own ids, because the kernel refuses changes to what another id owns (EOVERFLOW). */
  readonly shadow: Shadow;
}

/** Everything about the host that the lowering needs, read once for a launch. Plain data. */
export interface HostFacts extends HomeFiles {
  readonly arch: string;
  readonly caller: Ids;
  readonly job: Ids;
  /** The caller is uid 0: no user namespace is needed. */
  readonly asRoot: boolean;
  /** A process of the caller's that the job must not reach by its number: no number that the sandbox gives to a process of its own at the gate. */
  readonly hostPid: number;
  readonly namespaces: { readonly mnt: string; readonly pid: string; readonly net: string };
  /** Filters that this process already has (it may run inside a container). */
  readonly inheritedFilters: number;
  readonly bubblewrap: string;
  readonly shim: string;
  readonly mounts: readonly MountLine[];
  /** Parts of /proc that we bind read-only, and those that bubblewrap binds. */
  readonly closedProc: readonly string[];
  readonly closedByBubblewrap: readonly string[];
  readonly projected: Projected;
  /** Directory of the private home's parents that exist on the host: for modes only. */
  readonly masks: ReadonlyMap<string, Mask>;
  /** Masks above the result of an earlier run: what of it must be hidden, by the directory that it is laid over. */
  readonly covers: ReadonlyMap<string, Mask>;
  /** Files of the stage that belong to others and that the job can't change: too large or too many to repeat. */
  readonly notWritable: readonly string[];
  /** Hidden literal paths that exist now. */
  readonly hiddenPresent: readonly string[];
  /** Host paths that exist and are outside the projection; to probe. */
  readonly outside: readonly string[];
  /** Sockets of agents and daemons that exist on the host. */
  readonly agentSockets: readonly string[];
  /** Where /etc/resolv.conf leads, when it is a link out of the projection. */
  readonly resolverFile: string | undefined;
  readonly directShares: readonly { readonly path: string; readonly directory: boolean }[];
  /** Caches of profiles and the state of agents: where they are mounted, and our directory that holds them. */
  readonly caches: readonly { readonly path: string; readonly source: string }[];
  /** This kernel speaks IPv6. */
  readonly ipv6: boolean;
  /** What the machine is called: programs look their own name up. */
  readonly hostName: string;
  /** Undefined: the job may start any program, or none. */
  readonly programs: ListedPrograms | undefined;
  /** Literal write denials that exist inside a staged root. */
  readonly writeDenied: readonly { readonly path: string; readonly directory: boolean }[];
}

/** Parts of /proc that act on the whole machine and that bubblewrap leaves open for root, whose access(2) check it trusts. */
const CLOSED_PROC = ['sys', 'fs'];
/** Parts that bubblewrap closes itself where the caller could write them: for root. */
const CLOSED_BY_BUBBLEWRAP = ['sysrq-trigger', 'irq', 'bus'];

/** System directories that a projected root holds, where they exist. */
const SYSTEM_ROOTS = ['/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32', '/etc', '/opt', '/nix'];
/** Files of the system that hold secrets or describe other users' rights; hidden in every mode that projects the root. */
const SYSTEM_SECRETS = [
  '/etc/shadow',
  '/etc/shadow-',
  '/etc/gshadow',
  '/etc/gshadow-',
  '/etc/sudoers',
  '/etc/sudoers.d',
  '/etc/ssl/private',
  '/etc/security/opasswd',
];
/** Made by the sandbox itself. */
const OWN_PLACES = new Set(['/proc', '/sys', '/dev', '/tmp']);
/** Processes of the sandbox at the gate: its init and the command's. */
const MOST_AT_GATE = 2;

function readText(path: string): string {
  return readFileSync(path, 'utf8');
}

/** The owner's ids as a login would have them; for a uid without an account those of the workspace's directory. */
export function idsOf(uid: number, directoryGid: number): Ids {
  let gid = directoryGid;
  let groups = [gid];
  try {
    const account = readText('/etc/passwd')
      .split('\n')
      .map((line) => line.split(':'))
      .find((fields) => fields[2] === String(uid));
    const name = account?.[0];
    if (name !== undefined) {
      gid = Number(account?.[3]);
      const member = readText('/etc/group')
        .split('\n')
        .map((line) => line.split(':'))
        .filter((fields) => (fields[3] ?? '').split(',').includes(name))
        .map((fields) => Number(fields[2]));
      groups = [...new Set([gid, ...member])];
    }
  } catch {
    // No such files: the primary group alone.
  }
  return { uid, gid, groups: groups.slice(0, 64) };
}

const within = (path: string, root: string): boolean => path === root || root === '/' || path.startsWith(`${root}/`);

/** The mask of one directory: which of the hidden paths lie in it. A missing parent is hidden in their place. `seenAt`: where its content is looked at. */
export function maskOf(root: string, hidden: readonly string[], shadow: Shadow = NO_SHADOW, seenAt = root): Mask | undefined {
  const directories = new Set<string>();
  const whiteouts = new Set<string>();
  for (const path of hidden) {
    if (!path.startsWith(`${root}/`)) continue;
    const parts = path.slice(root.length + 1).split('/');
    let at = '';
    for (const [index, part] of parts.entries()) {
      at = at === '' ? part : `${at}/${part}`;
      if (index === parts.length - 1) {
        whiteouts.add(at);
        break;
      }
      const facts = lstatSync(join(seenAt, at), { throwIfNoEntry: false });
      if (facts === undefined) {
        whiteouts.add(at);
        break;
      }
      if (!facts.isDirectory()) break;
      directories.add(at);
    }
  }
  for (const name of whiteouts) for (const other of directories) if (within(other, name)) directories.delete(other);
  if (whiteouts.size === 0 && shadow.directories.length === 0) return undefined;
  for (const { path } of shadow.directories) addAncestors(path, directories);
  return {
    shadow,
    directories: [...directories].sort(),
    whiteouts: [...whiteouts].filter((name) => ![...whiteouts].some((other) => other !== name && within(name, other))).sort(),
  };
}

/** Whether the layer `base`, laid over `root`, has an entry at a path of the root. */
function isThere(path: string, root: string, base: string): boolean {
  return path.startsWith(`${root}/`) && lstatSync(`${base}${path.slice(root.length)}`, { throwIfNoEntry: false }) !== undefined;
}

/** The directories that lead to a path, and the path itself. */
function addAncestors(path: string, into: Set<string>): void {
  const parts = path.split('/');
  for (let count = 1; count <= parts.length; count++) into.add(parts.slice(0, count).join('/'));
}

/** More than this is no list of grants any more. */
const MOST_GLOB_ENTRIES = 50_000;

/** What a read grant names now: itself, or the outermost matches of a glob. Links are not followed. Throws ERR_LAUNCH when the glob spans too much. */
export function grantedPaths(rule: PathRule): readonly string[] {
  if (rule.literal) return existsSync(rule.pattern) ? [rule.pattern] : [];
  const matches = compileMatcher(rule);
  const found: string[] = [];
  let seen = 0;
  const visit = (directory: string): void => {
    for (const entry of safeEntries(directory)) {
      if (++seen > MOST_GLOB_ENTRIES) {
        throw new ProofrunError('ERR_LAUNCH', {
          message: `the read grant ${rule.pattern} spans more than ${MOST_GLOB_ENTRIES} entries`,
          hint: 'name the directories that the job needs: --allow-read PATH',
        });
      }
      const path = join(directory, entry.name);
      if (matches(path)) found.push(path);
      else if (entry.isDirectory()) visit(path);
    }
  };
  visit(literalBase(rule));
  return found;
}

function safeEntries(path: string): readonly Dirent[] {
  try {
    return readdirSync(path, { withFileTypes: true });
  } catch {
    return [];
  }
}

/** Drops paths that another one of the list covers. */
function outermost(paths: readonly string[]): readonly string[] {
  const sorted = [...new Set(paths)].sort((a, b) => a.length - b.length);
  const kept: string[] = [];
  for (const path of sorted) if (!kept.some((root) => within(path, root))) kept.push(path);
  return kept;
}

const DAEMON_SOCKETS = [
  ...['/run/docker.sock', '/var/run/docker.sock', '/run/containerd/containerd.sock', '/run/podman/podman.sock', '/run/dbus/system_bus_socket'],
  ...['/run/systemd/private', '/run/systemd/journal/stdout', '/run/systemd/journal/dev-log', '/run/snapd.socket', '/tmp/.X11-unix/X0'],
];

export function agentSockets(uid: number, environment: NodeJS.ProcessEnv): readonly string[] {
  const runtime = environment['XDG_RUNTIME_DIR'] ?? `/run/user/${uid}`;
  const named = [environment['SSH_AUTH_SOCK'], environment['DOCKER_HOST']?.replace(/^unix:\/\//, ''), environment['GPG_AGENT_INFO']?.split(':')[0]];
  const candidates = [...DAEMON_SOCKETS, `${runtime}/bus`, `${runtime}/gnupg/S.gpg-agent`, `${runtime}/wayland-0`, `${runtime}/podman/podman.sock`, ...named];
  return [...new Set(candidates)].filter((path): path is string => {
    if (path?.startsWith('/') !== true) return false;
    try {
      return statSync(path).isSocket();
    } catch {
      return false;
    }
  });
}

/** The file that /etc/resolv.conf leads to when that is not in the projected system directories. */
function resolverFile(): string | undefined {
  try {
    if (!lstatSync('/etc/resolv.conf').isSymbolicLink()) return undefined;
    const target = realpathSync('/etc/resolv.conf');
    return SYSTEM_ROOTS.some((root) => within(target, root)) ? undefined : target;
  } catch {
    return undefined;
  }
}

/**
 * A number of this process that none of the sandbox's first processes has. As PID 1 of a container this process shares its own with the sandbox's init;
 * kill(2) takes a thread's number as well, and later threads have higher ones.
 */
function outsideNumber(): number {
  return Math.max(process.pid, ...(process.pid > MOST_AT_GATE ? [] : readdirSync('/proc/self/task').map(Number)));
}

function namespaceOf(kind: string): string {
  return readlinkSync(`/proc/self/ns/${kind}`);
}

/** What can be read before the stage is there. */
export interface HostSurvey {
  readonly mounts: readonly MountLine[];
  /** What PATH reaches outside the system directories; nothing where the whole root is shown. */
  readonly toolchains: readonly string[];
  readonly agentSockets: readonly string[];
}

export interface FactsInput {
  readonly request: LaunchRequest;
  readonly bubblewrap: string;
  readonly shim: string;
  readonly survey: HostSurvey;
}

/** Not process.getgroups(): Node adds the effective gid to it, whether the process has it as a supplementary group or not. */
export function supplementaryGroups(): readonly number[] {
  const line = /^Groups:([^\n]*)$/m.exec(readText('/proc/self/status'))?.[1] ?? '';
  return line.split(' ').flatMap((word) => (/^\d+$/.test(word.trim()) ? [Number(word)] : []));
}

/** Never throws but where /proc is missing. */
export function surveyHost(job: EffectiveJob, environment: NodeJS.ProcessEnv): HostSurvey {
  const { fileRead, credentials } = job.permissions;
  return {
    mounts: parseMountinfo(readText('/proc/self/mountinfo')),
    toolchains: fileRead.root === 'projected' ? toolchainPaths(SYSTEM_ROOTS, credentials.environment['PATH'] ?? '', job.workspace, job.home) : [],
    agentSockets: agentSockets(process.geteuid?.() ?? 0, environment),
  };
}

/** Reads the host once. Work per entry of a directory is done for `/`, for directories split at mounts and for PATH entries outside the system alone. */
export function gatherFacts({ request, bubblewrap, shim, survey }: FactsInput): HostFacts {
  const { job } = request.plan;
  const { permissions } = job;
  const uid = process.geteuid?.() ?? 0;
  const gid = process.getegid?.() ?? 0;
  const caller: Ids = { uid, gid, groups: supplementaryGroups() };
  const asRoot = uid === 0;
  const owner = asRoot ? lstatSync(job.workspace) : undefined;
  const jobIds = owner === undefined || owner.uid === 0 ? caller : idsOf(owner.uid, owner.gid);
  const { mounts } = survey;
  const isProjected = permissions.fileRead.root === 'projected';

  const hidden = [...new Set([...request.hidden, ...(isProjected ? SYSTEM_SECRETS : []), request.stateDirectory])];
  const isHidden = (path: string): boolean => hidden.some((one) => within(path, one));
  const views = request.views ?? [];
  const staged = [...request.stage, ...views].map((one) => one.root);
  const covered = (path: string): boolean => staged.some((root) => within(path, root));

  const roots = isProjected
    ? outermost([
        ...SYSTEM_ROOTS.filter((path) => existsSync(path)),
        ...survey.toolchains,
        ...permissions.fileRead.allow.flatMap(grantedPaths),
        ...(covered(job.workspace) ? [] : [job.workspace]),
      ])
    : readdirSync('/').map((name) => `/${name}`);
  const entries: Projection[] = [];
  const skipped: { readonly path: string; readonly reason: string }[] = [];
  const leaveOut = (path: string): boolean => isHidden(path) || OWN_PLACES.has(path) || (!isProjected && path === job.home);
  for (const root of roots) {
    if (isProjected && covered(root)) continue;
    const part = projectTree(root, mounts, leaveOut);
    entries.push(...part.entries);
    skipped.push(...part.skipped);
  }

  const programs =
    permissions.subprocess.kind === 'listed'
      ? listPrograms(job, {
          writable: [
            ...request.stage.map((one) => one.root),
            job.home,
            ...permissions.fileWrite.direct.map(({ pattern }) => pattern),
            ...[...(permissions.fileRead.caches ?? []), ...(permissions.fileRead.states ?? [])].map(({ path }) => path),
            ...['/tmp', '/var/tmp', '/dev'],
          ],
          readOnly: [...entries.filter((one) => one.kind === 'tree' || one.kind === 'file').map((one) => one.path), ...views.map((one) => one.root)],
        })
      : undefined;
  const masks = new Map<string, Mask>();
  const covers = new Map<string, Mask>();
  const notWritable: string[] = [];
  const maskRoots = [
    ...entries.filter((one) => one.kind === 'tree').map((one) => one.path),
    ...staged,
    ...(permissions.fileRead.home === 'real' ? [job.home] : []),
  ];
  for (const root of maskRoots) {
    const foreign = request.stage.find((one) => one.root === root)?.foreign ?? [];
    const shadow = asRoot ? NO_SHADOW : shadowOf(root, foreign, caller.uid, caller.gid, isHidden);
    notWritable.push(...shadow.notWritable);
    const result = [...request.stage, ...views].find((one) => one.root === root);
    const mask = maskOf(root, [...hidden, ...(programs?.hidden ?? []), ...(result?.earlier ?? []).flatMap((one) => one.hidden)], shadow);
    if (mask !== undefined) masks.set(root, mask);
    const { base } = result ?? {};
    const cover =
      base === undefined
        ? undefined
        : maskOf(
            root,
            hidden.filter((path) => isThere(path, root, base)),
            NO_SHADOW,
            base,
          );
    if (cover !== undefined) covers.set(root, cover);
  }

  const outside = isProjected
    ? readdirSync('/')
        .map((name) => `/${name}`)
        .filter((path) => !OWN_PLACES.has(path) && !['/run', '/var', '/home'].includes(path) && !within(job.home, path) && !within(job.workspace, path))
        .filter((path) => !entries.some((one) => within(one.path, path)))
    : [];

  return {
    arch,
    caller,
    job: jobIds,
    asRoot,
    hostPid: outsideNumber(),
    namespaces: { mnt: namespaceOf('mnt'), pid: namespaceOf('pid'), net: namespaceOf('net') },
    inheritedFilters: Number(/^Seccomp_filters:\s*([0-9]+)/m.exec(readText('/proc/self/status'))?.[1] ?? '0'),
    bubblewrap,
    shim,
    mounts,
    closedProc: CLOSED_PROC.filter((name) => existsSync(`/proc/${name}`)),
    closedByBubblewrap: asRoot ? CLOSED_BY_BUBBLEWRAP.filter((name) => existsSync(`/proc/${name}`)) : [],
    projected: { entries, skipped },
    masks,
    covers,
    notWritable,
    hiddenPresent: request.hidden.filter(
      (path) =>
        lstatSync(path, { throwIfNoEntry: false }) !== undefined ||
        [...request.stage, ...views].some(({ root, base }) => base !== undefined && isThere(path, root, base)),
    ),
    outside,
    agentSockets: survey.agentSockets,
    resolverFile: isProjected ? resolverFile() : undefined,
    ...gatherHomeFiles(request, isHidden),
    directShares: permissions.fileWrite.direct.flatMap(({ pattern }) => {
      const facts = statSync(pattern, { throwIfNoEntry: false });
      return facts === undefined ? [] : [{ path: pattern, directory: facts.isDirectory() }];
    }),
    caches: [
      ...(permissions.fileRead.caches ?? []).map(({ path, profile }) => ({ path, source: join(request.stateDirectory, 'caches', profile, placeName(path)) })),
      ...statePlaces(job, request.stateDirectory),
    ],
    ipv6: existsSync('/proc/net/if_inet6'),
    hostName: hostname(),
    programs,
    writeDenied: permissions.fileWrite.deny
      .filter((rule) => rule.literal && covered(rule.pattern) && !isHidden(rule.pattern))
      .flatMap((rule) => {
        const facts = lstatSync(rule.pattern, { throwIfNoEntry: false });
        return facts?.isDirectory() === true || facts?.isFile() === true ? [{ path: rule.pattern, directory: facts.isDirectory() }] : [];
      }),
  };
}

/** Mounts inside a staged root: overlayfs can't have them (for an ordinary user) or loses them. */
export function mountsInside(root: string, mounts: readonly MountLine[]): readonly string[] {
  return mountsBelow(root, mounts).map((mount) => mount.mountPoint);
}
