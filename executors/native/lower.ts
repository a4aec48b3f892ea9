import { createHash } from 'node:crypto';
import { dirname, join } from 'node:path';
import { perDimension } from '../../src/core/dimension.ts';
import type { EffectivePermissions } from '../../src/core/job.ts';
import type { JsonValue } from '../../src/core/json.ts';
import type { ControlId } from '../../src/core/plan.ts';
import type { Expectation, ReceiptPhase, ReceiptRequirement } from '../../src/core/receipt.ts';
import { requireReceipts, type ExpectedReceipt } from '../../src/evidence/index.ts';
import type { LaunchRequest } from '../../src/executor/executor.ts';
import { deniedTarget, formatListener, OVERLAY_V4, overlayFiles, planOverlay, type OverlayPlan } from '../shim/overlay-plan.ts';
import { CLONE, PROBE, RIGHT, type ExecPointers, type InnerSetting, type OuterOperation, type ProbeSetting } from '../shim/protocol.ts';
import { isSeccompArch, SECCOMP_PROBES, SYSCALLS } from '../shim/seccomp/index.ts';
import { lowerPrograms, type ProgramLimit } from '../shim/programs.ts';
import type { HostFacts } from './facts.host.ts';
import { formatMount } from './mountinfo.ts';
import { AGENT_CLIENT, placesOf, planRoot, UNLISTED, type RootPlan } from './root-plan.ts';

/** Values that are random or made for one launch. */
export interface LaunchNames {
  /** Names of probe files and of the abstract socket; hard to guess. */
  readonly nonce: string;
  /** cgroup.procs files to join, and whether one of them limits processes. */
  readonly cgroupProcs: readonly string[];
  readonly terminal: { readonly rows: number; readonly columns: number } | undefined;
  readonly execAt: ExecPointers;
}

/** What is installed and what has to be read back. Data only: a test may change `install` and leave `expect` as it is. */
export interface NativeLowering {
  readonly install: {
    /** Files that outer's pid is written to, by the host, before outer is told to start anything. */
    readonly cgroupProcs: readonly string[];
    readonly operations: readonly OuterOperation[];
    readonly settings: readonly InnerSetting[];
    /** Ports that this process takes on the host's loopback. */
    readonly published: EffectivePermissions['network']['publish'];
    /** Undefined: nobody watches the size of the stage. */
    readonly stageLimitBytes: number | undefined;
  };
  readonly requirements: readonly ReceiptRequirement[];
  /** Probes whose port is known when outer listens. */
  readonly loopbackProbe: { readonly id: string; readonly kind: number } | undefined;
  /** Files whose arrival in the upper layer proves that writes are staged: layer path and path on the host. */
  readonly landings: readonly { readonly id: string; readonly upper: string; readonly host: string }[];
  readonly homeUpper: string;
}

/** At most this many hidden paths get a probe of their own; the mount table covers the rest. */
export const MOST_HIDDEN_PROBES = 64;
/** Documentation addresses (RFC 5737, RFC 3849): routed nowhere, so a connection begins only where there is a route. */
export const NOWHERE_V4 = '192.0.2.1';
export const RLIMIT = { cpu: 0, fsize: 1, core: 4, nproc: 6, nofile: 7 } as const;
const O_RDONLY = 0;
const O_WRONLY = 1;
const O_RDWR = 2;
const O_PATH = 0o10000000;
/** sun_path of unix(7). */
export const LONGEST_SOCKET_PATH = 107;
export const NO_FILE = ['ENOENT', 'ENOTDIR', 'EACCES'] as const;
const CAPABILITIES_OF_ROOT_SHIM = ['CAP_SETUID', 'CAP_SETGID', 'CAP_SETPCAP', 'CAP_CHOWN', 'CAP_KILL', 'CAP_DAC_OVERRIDE'];

/** Digest of an environment block as execve(2) gets it. */
export function digestEnvironment(block: Uint8Array): JsonValue {
  return { sha256: createHash('sha256').update(block).digest('hex'), variables: block.filter((byte) => byte === 0).length };
}

/** Probes to make and receipts to expect, collected while a plan is lowered. */
export class Lowering {
  readonly probes: ProbeSetting[] = [];
  readonly expected: ExpectedReceipt[] = [];

  fact(control: ControlId, id: string, expect: Expectation, phase: ReceiptPhase = 'gate'): void {
    this.expected.push({ control, id, phase, expect });
  }

  equals(control: ControlId, id: string, value: JsonValue, phase: ReceiptPhase = 'gate'): void {
    this.fact(control, id, { kind: 'equals', value }, phase);
  }

  probe(control: ControlId, id: string, kind: number, subject: string, args: readonly number[], errnos: readonly string[]): void {
    this.probes.push({ id, kind, subject, args });
    this.fact(control, id, { kind: 'refused', errnos });
  }
}

/** A device that bubblewrap binds: devtmpfs on a machine of its own, a tmpfs in a container, a bind of its own in some of those. */
function deviceLine(facts: HostFacts, path: string): string {
  const holders = facts.mounts.filter(({ mountPoint }) => mountPoint === path || mountPoint === '/dev');
  const holder = holders.findLast(({ mountPoint }) => mountPoint === path) ?? holders.at(-1);
  return formatMount(path, holder?.fsType ?? 'devtmpfs', ['rw', 'nosuid', ...(holder?.options.includes('noexec') === true ? ['noexec'] : [])]);
}

/** The mounts that bubblewrap adds to the root. */
function bubblewrapMounts(facts: HostFacts): readonly string[] {
  const nodes = ['full', 'null', 'random', 'tty', 'urandom', 'zero'].map((name) => deviceLine(facts, `/dev/${name}`));
  // A bind keeps the flag of the mount that it comes from.
  const hostNoexec = facts.mounts.findLast((mount) => mount.mountPoint === '/proc')?.options.includes('noexec') === true ? ['noexec'] : [];
  return [
    formatMount('/', 'tmpfs', ['ro', 'nosuid', 'nodev']),
    formatMount('/proc', 'proc', ['rw', 'nosuid', 'nodev', 'noexec']),
    ...facts.closedProc.map((name) => formatMount(`/proc/${name}`, 'proc', ['ro', 'nosuid', 'nodev', ...hostNoexec])),
    ...facts.closedByBubblewrap.map((name) => formatMount(`/proc/${name}`, 'proc', ['ro', 'nosuid', 'nodev', 'noexec'])),
    formatMount('/dev', 'tmpfs', ['ro', 'nosuid', 'nodev']),
    formatMount('/dev/pts', 'devpts', ['rw', 'nosuid', 'noexec']),
    formatMount('/dev/shm', 'tmpfs', ['rw', 'nosuid', 'nodev', ...(facts.programs === undefined ? [] : ['noexec'])]),
    ...nodes,
  ];
}

/** Everything else that is mounted for writing and belongs to the sandbox alone. */
const OWN_WRITABLE = ['/dev/pts', '/dev/shm', '/proc', ...['full', 'null', 'random', 'tty', 'urandom', 'zero'].map((name) => `/dev/${name}`)];

function bubblewrapArgv(request: LaunchRequest, facts: HostFacts, base: string): readonly string[] {
  const shm = request.plan.job.permissions.resources.limits.tmpSizeBytes;
  const user = facts.asRoot ? [] : ['--unshare-user', '--uid', String(facts.caller.uid), '--gid', String(facts.caller.gid)];
  const capabilities = facts.asRoot ? CAPABILITIES_OF_ROOT_SHIM : ['CAP_SETPCAP'];
  return [
    facts.bubblewrap,
    ...user,
    ...['--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try', '--die-with-parent', '--as-pid-1'],
    ...['--bind', placesOf(base).root, '/', '--proc', '/proc'],
    ...facts.closedProc.flatMap((name) => ['--ro-bind', `/proc/${name}`, `/proc/${name}`]),
    ...['--dev', '/dev'],
    // bubblewrap's own tmpfs would be one that programs can be executed from.
    ...(facts.programs === undefined
      ? [...(shm === undefined ? [] : ['--size', String(shm)]), '--tmpfs', '/dev/shm']
      : ['--bind', placesOf(base).shm, '/dev/shm']),
    ...['--remount-ro', '/dev', '--remount-ro', '/'],
    ...['--cap-drop', 'ALL', ...capabilities.flatMap((name) => ['--cap-add', name])],
    ...['--chdir', '/', '--', '/proc/self/fd/10', 'inner'],
  ];
}

function lowerFiles(lowering: Lowering, request: LaunchRequest, facts: HostFacts, root: RootPlan, names: LaunchNames): NativeLowering['landings'] {
  const { job } = request.plan;
  const table = [...root.table, ...bubblewrapMounts(facts)].sort();
  lowering.fact('mount_namespace', 'ns.mnt', { kind: 'differs', from: facts.namespaces.mnt });
  lowering.equals('mount_namespace', 'mount.table', table);
  lowering.equals('mount_namespace', 'mount.propagation', []);
  lowering.equals('mount_namespace', 'end.mount.table', table, 'end');
  lowering.equals('read_only_host', 'mount.writable', [...new Set([...root.writable, ...OWN_WRITABLE])].sort());

  const canary = join(request.scratch, `outside-${names.nonce}`);
  lowering.probe('projected_root', 'probe.read.outside', PROBE.open, canary, [O_RDONLY], NO_FILE);
  for (const path of facts.outside.slice(0, 16)) lowering.probe('projected_root', `probe.read.outside:${path}`, PROBE.open, path, [O_RDONLY], ['ENOENT']);
  lowering.probe('hidden_paths', 'probe.hidden.state', PROBE.open, request.stateDirectory, [O_RDONLY], ['ENOENT']);
  for (const path of facts.hiddenPresent.slice(0, MOST_HIDDEN_PROBES)) {
    lowering.probe('hidden_paths', `probe.hidden:${path}`, PROBE.open, path, [O_RDONLY], NO_FILE);
  }
  const writeProbe = `.proofrun-probe-${names.nonce}`;
  lowering.probe('read_only_host', 'probe.write.root', PROBE.create, `/${writeProbe}`, [], ['EROFS']);
  lowering.probe('read_only_host', 'probe.write.etc', PROBE.create, `/etc/${writeProbe}`, [], ['EROFS']);
  lowering.probe('read_only_host', 'probe.write.usr', PROBE.create, `/usr/${writeProbe}`, [], ['EROFS']);
  for (const [index, view] of (request.views ?? []).entries()) {
    lowering.probe('read_only_host', `probe.write.view:${index}`, PROBE.create, join(view.root, writeProbe), [], ['EROFS', 'EACCES']);
  }
  // For an ordinary user the files' own mode refuses first (EACCES), as it does for uid 0 without capabilities outside its files.
  const closed = ['EROFS', 'EACCES', 'EPERM', 'ENOENT'];
  lowering.probe('kernel_files', 'probe.kernel.core_pattern', PROBE.open, '/proc/sys/kernel/core_pattern', [O_WRONLY], closed);
  lowering.probe('kernel_files', 'probe.kernel.sysrq', PROBE.open, '/proc/sysrq-trigger', [O_WRONLY], closed);
  lowering.probe('kernel_files', 'probe.kernel.sysctl', PROBE.open, '/proc/sys/vm/overcommit_memory', [O_WRONLY], closed);

  const landings: { id: string; upper: string; host: string }[] = [];
  lowering.equals(
    'staged_workspace',
    'mount.stage',
    root.uppers.filter((one) => request.stage.some((staged) => staged.root === one.mount_point)),
  );
  for (const [index, staged] of request.stage.entries()) {
    const suffix = index === 0 ? '' : `:${index}`;
    lowering.probes.push({ id: `probe.stage.create${suffix}`, kind: PROBE.stage, subject: join(staged.root, writeProbe), args: [] });
    lowering.equals('staged_workspace', `probe.stage.create${suffix}`, 'ok');
    lowering.equals('staged_workspace', `stage.landed${suffix}`, 'in our layer only');
    landings.push({ id: `stage.landed${suffix}`, upper: join(staged.upper, writeProbe), host: join(staged.root, writeProbe) });
  }
  lowering.probes.push({ id: 'probe.home.create', kind: PROBE.stage, subject: join(job.home, writeProbe), args: [] });
  lowering.equals('private_home', 'probe.home.create', 'ok');
  lowering.equals('private_home', 'home.landed', 'in our layer only');
  landings.push({ id: 'home.landed', upper: join(root.homeUpper, writeProbe), host: join(job.home, writeProbe) });
  return landings;
}

/** How a connection ends that the host's process, or the kernel, refuses. */
const REFUSED_TCP = ['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ENODATA', 'EACCES'] as const;
const AF_VSOCK = 40;

/** What both kinds of own network owe: nothing but lo, and the host's sockets out of reach. */
function lowerOwnNetwork(lowering: Lowering, request: LaunchRequest, facts: HostFacts, names: LaunchNames): void {
  lowering.fact('network_namespace', 'ns.net', { kind: 'differs', from: facts.namespaces.net });
  lowering.equals('network_namespace', 'net.interfaces', ['lo']);
  lowering.equals('network_namespace', 'net.routes', []);
  lowering.probe('host_sockets', 'probe.net.host_abstract', PROBE.unix, `@proofrun-${names.nonce}`, [], ['ECONNREFUSED']);
  probeHostPath(lowering, join(request.scratch, 'probe.sock'));
}

/** A socket of the host that has a path must not be there, or not answer. One whose path no address can hold is looked for only. */
export function probeHostPath(lowering: Lowering, path: string): void {
  if (path.length <= LONGEST_SOCKET_PATH) lowering.probe('host_sockets', 'probe.net.host_path', PROBE.unix, path, [], ['ENOENT', 'ECONNREFUSED', 'EACCES']);
  else lowering.probe('host_sockets', 'probe.net.host_path', PROBE.open, path, [O_PATH], ['ENOENT']);
}

function lowerOverlay(lowering: Lowering, request: LaunchRequest, facts: HostFacts, names: LaunchNames, overlay: OverlayPlan): void {
  const { network } = request.plan.job.permissions;
  const { listeners } = overlay;
  lowering.equals('overlay_network', 'net.addresses', overlay.addresses);
  lowering.equals('overlay_network', 'net.local', overlay.local);
  const expected = listeners.map(formatListener).sort();
  lowering.equals('overlay_network', 'net.listeners', expected);
  lowering.equals('overlay_network', 'end.net.listeners', expected, 'end');
  const { secrets, environment } = request.plan.job.permissions.credentials;
  const injected = new Set(secrets.flatMap((secret) => (secret.inject === undefined ? [] : [secret.name])));
  if (injected.size > 0) {
    lowering.equals(
      'secret_injection',
      'environment.placeholders',
      [...injected].sort().map((name) => `${name}=${environment[name] ?? ''}`),
    );
    lowering.equals('secret_injection', 'net.listeners', expected);
    lowering.equals('secret_injection', 'end.net.listeners', expected, 'end');
  }
  lowering.equals('overlay_network', 'resolver.file', overlayFiles(facts.hostName).get('/etc/resolv.conf') ?? '');
  // RFC 6761: a name below .invalid exists nowhere, so no rule can want it.
  lowering.probe('overlay_network', 'probe.net.name', PROBE.name, `${OVERLAY_V4} ${names.nonce}.invalid`, [], ['ENOENT']);
  const answer = (control: ControlId, id: string, of: 'v4' | 'v6' | 'metadata'): void => {
    const { address, port } = deniedTarget(network, of, listeners);
    lowering.probe(control, id, PROBE.answer, address, [port], REFUSED_TCP);
  };
  answer('network_namespace', 'probe.net.tcp4', 'v4');
  if (facts.ipv6) answer('overlay_network', 'probe.net.tcp6', 'v6');
  answer('overlay_network', 'probe.net.metadata', 'metadata');
  lowering.probe('network_namespace', 'probe.net.udp4', PROBE.udp, NOWHERE_V4, [443], ['ECONNREFUSED']);
  lowering.probe('network_namespace', 'probe.net.dns', PROBE.udp, NOWHERE_V4, [53], ['ECONNREFUSED']);
  lowering.probe('overlay_network', 'probe.net.dns_tcp', PROBE.answer, NOWHERE_V4, [53], REFUSED_TCP);
  const socket = isSeccompArch(facts.arch) ? SYSCALLS[facts.arch]['socket'] : undefined;
  if (socket !== undefined) {
    lowering.probe('overlay_network', 'probe.net.vsock', PROBE.syscall, '', [socket, AF_VSOCK, 1, 0], ['EAFNOSUPPORT', 'EPERM', 'EACCES']);
  }
  if (network.publish.length > 0) {
    const published = network.publish.map(({ hostPort }) => formatListener({ kind: 'tcp', address: '127.0.0.1', port: hostPort })).sort();
    lowering.equals('published_ports', 'net.published', published);
    lowering.equals('published_ports', 'end.net.published', published, 'end');
  }
}

function lowerNetwork(lowering: Lowering, request: LaunchRequest, facts: HostFacts, names: LaunchNames): NativeLowering['loopbackProbe'] {
  const { network } = request.plan.job.permissions;
  if (network.kind === 'public') {
    lowering.equals('network_public', 'ns.net.shared', facts.namespaces.net);
    return undefined;
  }
  lowerOwnNetwork(lowering, request, facts, names);
  const id = 'probe.net.host_loopback';
  if (network.kind === 'selective') {
    lowerOverlay(lowering, request, facts, names, planOverlay(network, facts.ipv6));
    // The port is the kernel's choice, and may be one on which we listen.
    lowering.fact('host_sockets', id, { kind: 'refused', errnos: REFUSED_TCP });
    return { id, kind: PROBE.answer };
  }
  const unreachable = ['ENETUNREACH', 'EHOSTUNREACH', 'ENETDOWN'];
  lowering.probe('network_namespace', 'probe.net.tcp4', PROBE.tcp, NOWHERE_V4, [80], unreachable);
  lowering.probe('network_namespace', 'probe.net.udp4', PROBE.udp, NOWHERE_V4, [443], unreachable);
  lowering.probe('network_namespace', 'probe.net.dns', PROBE.udp, NOWHERE_V4, [53], unreachable);
  lowering.probe('network_namespace', 'probe.net.tcp6', PROBE.tcp, '2001:db8::1', [80], [...unreachable, 'EADDRNOTAVAIL', 'EAFNOSUPPORT']);
  lowering.fact('host_sockets', id, { kind: 'refused', errnos: ['ECONNREFUSED'] });
  return { id, kind: PROBE.tcp };
}

function lowerProcesses(lowering: Lowering, request: LaunchRequest, facts: HostFacts, terminal: boolean): void {
  const { uid, gid, groups } = facts.job;
  const unmapped = 65534; // /proc/sys/kernel/overflowgid: groups outside the single-id map
  const inside = facts.asRoot ? groups : facts.caller.groups.map((one) => (one === gid ? one : unmapped));
  lowering.fact('pid_namespace', 'ns.pid', { kind: 'differs', from: facts.namespaces.pid });
  lowering.equals('pid_namespace', 'proc.pids', [1, 2]);
  lowering.probe('pid_namespace', 'probe.kill.host', PROBE.kill, '', [facts.hostPid], ['ESRCH']);
  lowering.equals('pid_namespace', 'end.processes', 0, 'end');
  lowering.equals('shim_is_init', 'init.pid', 1);
  lowering.equals('shim_is_init', 'init.dumpable', 0);
  lowering.equals('shim_is_init', 'init.capabilities', 'none');
  lowering.probe('shim_is_init', 'probe.init.memory', PROBE.open, '/proc/1/mem', [O_RDWR], ['EACCES', 'EPERM']);
  lowering.equals('no_new_privs', 'status.no_new_privs', 1);
  lowering.equals('no_new_privs', 'outside.no_new_privs', 1);
  lowering.equals('capabilities', 'status.capabilities', 'none');
  lowering.equals('capabilities', 'outside.capabilities', 'none');
  lowering.equals('user_drop', 'status.ids', { uid, gid });
  lowering.equals('user_drop', 'outside.ids', { uid, gid });
  lowering.equals(
    'user_drop',
    'status.groups',
    [...inside].sort((a, b) => a - b),
  );
  lowering.equals('seccomp', 'status.seccomp', 2);
  lowering.equals('seccomp', 'outside.seccomp', 2);
  lowering.equals('seccomp', 'status.seccomp_filters', facts.inheritedFilters + 1);
  for (const probe of SECCOMP_PROBES) {
    const nr = isSeccompArch(facts.arch) ? probe.nr[facts.arch] : undefined;
    if (nr === undefined) continue;
    // Six arguments of ours: the number and the first five of the call.
    lowering.probe('seccomp', `probe.${probe.id}`, PROBE.syscall, '', [nr, ...probe.args.slice(0, 5)], probe.errnos);
    if (probe.id === 'seccomp.keyctl') lowering.fact('session_keyring', 'probe.seccomp.keyctl', { kind: 'refused', errnos: probe.errnos });
  }
  lowering.equals(
    'descriptors',
    'fds',
    [0, 1, 2].map((fd) => `${fd}:${terminal ? 'terminal' : 'pipe'}`),
  );
  lowering.equals('tree_killed', 'end.processes', 0, 'end');
  lowering.equals('tree_killed', 'end.init_gone', 'gone', 'end');
  lowering.fact('session_keyring', 'keyring.session', { kind: 'differs', from: 'inherited' });
  const socket = join(request.scratch, 'probe.sock');
  if (socket.length <= LONGEST_SOCKET_PATH) {
    lowering.probe('agent_sockets', 'probe.socket.agents', PROBE.unix, socket, [], ['ENOENT', 'ECONNREFUSED', 'EACCES']);
  } else lowering.probe('agent_sockets', 'probe.socket.agents', PROBE.open, socket, [O_PATH], ['ENOENT']);
  for (const path of facts.agentSockets) {
    if (path.length > LONGEST_SOCKET_PATH) continue;
    lowering.probe('agent_sockets', `probe.socket.agents:${path}`, PROBE.unix, path, [], ['ENOENT', 'ENOTDIR', 'ECONNREFUSED', 'EACCES']);
  }
}

function lowerLimits(lowering: Lowering, request: LaunchRequest, facts: HostFacts, cgroupLimits: Readonly<Record<string, number>>): InnerSetting[] {
  const { limits } = request.plan.job.permissions.resources;
  const settings: InnerSetting[] = [];
  const wanted: Record<string, string> = {};
  const limit = (resource: number, value: number): void => {
    settings.push({ set: 'rlimit', resource, soft: BigInt(value), hard: BigInt(value) });
    wanted[String(resource)] = `${value}:${value}`;
  };
  limit(RLIMIT.core, 0);
  if (limits.openFiles !== undefined) limit(RLIMIT.nofile, limits.openFiles);
  if (limits.fileSizeBytes !== undefined) limit(RLIMIT.fsize, limits.fileSizeBytes);
  if (limits.cpuTimeMs !== undefined) limit(RLIMIT.cpu, Math.ceil(limits.cpuTimeMs / 1000));
  if (limits.processes !== undefined && !facts.asRoot) {
    limit(RLIMIT.nproc, limits.processes);
    lowering.equals('process_limit', 'limit.processes', limits.processes);
  }
  lowering.equals('rlimits', 'rlimits', wanted);
  if (facts.asRoot && cgroupLimits['process_limit'] !== undefined) lowering.equals('process_limit', 'limit.processes', cgroupLimits['process_limit']);
  if (cgroupLimits['memory_limit'] !== undefined) lowering.equals('memory_limit', 'limit.memory', cgroupLimits['memory_limit']);
  if (cgroupLimits['swap_limit'] !== undefined) lowering.equals('memory_limit', 'limit.swap', cgroupLimits['swap_limit']);
  if (cgroupLimits['cpu_limit'] !== undefined) lowering.equals('cpu_limit', 'limit.cpus', cgroupLimits['cpu_limit']);
  if (limits.wallTimeMs !== undefined) {
    settings.push({ set: 'wall', milliseconds: limits.wallTimeMs });
    lowering.fact('wall_time', 'wall.armed_ms', { kind: 'at_most', value: limits.wallTimeMs });
  }
  if (limits.tmpSizeBytes !== undefined) {
    lowering.fact('tmp_size', 'mount.tmp_size', { kind: 'at_most', value: Math.ceil(limits.tmpSizeBytes / 65536) * 65536 });
  }
  if (limits.stageSizeBytes !== undefined) {
    lowering.fact('stage_size', 'watch.stage_bytes', { kind: 'at_most', value: limits.stageSizeBytes });
    lowering.equals('stage_size', 'end.watch', 'watched to the end', 'end');
  }
  return settings;
}

function programLimit(kind: EffectivePermissions['subprocess']['kind'], { programs }: HostFacts): ProgramLimit {
  return programs === undefined ? { kind: kind === 'none' ? 'none' : 'any' } : { kind: 'listed', ...programs, unlisted: UNLISTED };
}

/** After the root is built: the job's socket lies in its own /tmp. */
function agentOperation(agent: NonNullable<LaunchRequest['agent']>, facts: HostFacts, base: string): OuterOperation {
  const { uid, gid } = facts.job;
  return { op: 'agent', guest: `${placesOf(base).root}${dirname(agent.guestSocket)}`, host: agent.hostDirectory, client: AGENT_CLIENT, uid, gid };
}

/** Lowers a plan to what outer and inner do and to what has to be read back. Pure: names and facts come in as data. */
export function lower(request: LaunchRequest, facts: HostFacts, names: LaunchNames, cgroupLimits: Readonly<Record<string, number>> = {}): NativeLowering {
  const { job, dimensions } = request.plan;
  const { permissions } = job;
  const base = join(request.scratch, 'ns');
  const root = planRoot(request, facts, base);
  const lowering = new Lowering();
  const landings = lowerFiles(lowering, request, facts, root, names);
  const loopbackProbe = lowerNetwork(lowering, request, facts, names);
  lowerProcesses(lowering, request, facts, names.terminal !== undefined);
  const limits = lowerLimits(lowering, request, facts, cgroupLimits);
  const programs = lowerPrograms(lowering, programLimit(permissions.subprocess.kind, facts), facts.arch, names.execAt);
  const env = Object.entries(permissions.credentials.environment).map(([name, value]) => `${name}=${value}`);
  lowering.equals('environment', 'environment', digestEnvironment(Buffer.from(env.map((one) => `${one}\0`).join(''))));

  const ownNetwork = permissions.network.kind !== 'public';
  const overlay = permissions.network.kind === 'selective' ? planOverlay(permissions.network, facts.ipv6) : undefined;
  const namespaces = CLONE.newNs | (facts.asRoot ? 0 : CLONE.newUser) | (ownNetwork ? CLONE.newNet : 0);
  const operations: OuterOperation[] = [
    { op: 'listen', abstract: `proofrun-${names.nonce}`, path: join(request.scratch, 'probe.sock') },
    { op: 'unshare', flags: namespaces, map: !facts.asRoot, uid: facts.caller.uid, gid: facts.caller.gid },
    ...(ownNetwork ? [{ op: 'loopback' } as const] : []),
    ...(overlay?.operations ?? []),
    ...root.operations,
    ...(request.agent === undefined ? [] : [agentOperation(request.agent, facts, base)]),
    { op: 'start', terminal: names.terminal !== undefined, argv: bubblewrapArgv(request, facts, base) },
  ];
  const settings: InnerSetting[] = [
    { set: 'argv', argv: job.argv },
    { set: 'env', env },
    { set: 'cwd', path: job.cwd },
    { set: 'rights', bits: RIGHT.noNewPrivs | RIGHT.dropCapabilities | RIGHT.keyring | RIGHT.closeDescriptors | RIGHT.nonDumpable },
    ...(facts.asRoot ? [{ set: 'ids', ...facts.job } as const] : []),
    ...limits,
    ...programs,
    ...(names.terminal === undefined ? [] : [{ set: 'terminal', ...names.terminal } as const]),
    ...lowering.probes.map((probe): InnerSetting => ({ set: 'probe', probe })),
  ];
  return {
    install: {
      cgroupProcs: names.cgroupProcs,
      operations,
      settings,
      published: overlay === undefined ? [] : permissions.network.publish,
      stageLimitBytes: permissions.resources.limits.stageSizeBytes,
    },
    requirements: requireReceipts(
      perDimension((dimension) => dimensions[dimension].controls),
      lowering.expected,
    ),
    loopbackProbe,
    landings,
    homeUpper: root.homeUpper,
  };
}
