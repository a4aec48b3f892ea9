import { join } from 'node:path';
import { perDimension } from '../../src/core/dimension.ts';
import type { JsonValue } from '../../src/core/json.ts';
import type { ReceiptRequirement } from '../../src/core/receipt.ts';
import { requireReceipts } from '../../src/evidence/index.ts';
import type { LaunchRequest } from '../../src/executor/executor.ts';
import { digestEnvironment, Lowering, LONGEST_SOCKET_PATH, MOST_HIDDEN_PROBES, NO_FILE, NOWHERE_V4, probeHostPath, RLIMIT } from '../native/lower.ts';
import { lowerPrograms } from '../shim/programs.ts';
import { PROBE, RIGHT, type ExecPointers, type InnerSetting } from '../shim/protocol.ts';
import { isSeccompArch, SECCOMP_PROBES } from '../shim/seccomp/index.ts';
import { MASKED, READ_ONLY } from './container-mounts.ts';
import type { DockerFacts } from './facts.host.ts';
import { labelsOf } from './labels.ts';
import { planVolumes } from './apart/volume-plan.ts';
import { planMounts, CONTROL_IN_CONTAINER, SHIM_IN_CONTAINER, type MountPlan } from './mount-plan.ts';

/** Values that are random or made for one launch. */
export interface DockerNames {
  readonly nonce: string;
  readonly terminal: { readonly rows: number; readonly columns: number } | undefined;
  readonly execAt: ExecPointers;
  /** An OCI runtime that the engine knows; undefined: its default. */
  readonly runtime: string | undefined;
  /** How the shim reaches the host: a bound socket, or the container's own input and output. */
  readonly channel: 'socket' | 'attach';
}

/** Body of POST /containers/create, as far as it is used here. Names are the API's. */
export interface ContainerBody {
  readonly Image: string;
  readonly Entrypoint: readonly string[];
  readonly Cmd: readonly string[];
  readonly User: string;
  readonly WorkingDir: string;
  /** A name without `=` takes the image's variable away. */
  readonly Env: readonly string[];
  readonly Tty: false;
  readonly OpenStdin: boolean;
  readonly StdinOnce: boolean;
  readonly AttachStdin: boolean;
  readonly AttachStdout: boolean;
  readonly AttachStderr: boolean;
  readonly NetworkDisabled: boolean;
  readonly Labels: Readonly<Record<string, string>>;
  readonly Healthcheck: { readonly Test: readonly ['NONE'] };
  readonly HostConfig: Readonly<Record<string, unknown>> & { readonly Mounts: readonly MountBody[]; readonly Tmpfs: Readonly<Record<string, string>> };
}

export type MountBody =
  | {
      readonly Type: 'bind';
      readonly Source: string;
      readonly Target: string;
      readonly ReadOnly: boolean;
      readonly BindOptions: { readonly Propagation: 'rprivate' };
    }
  | {
      readonly Type: 'volume';
      /** Absent: one without a name, which goes with its container. */
      readonly Source?: string;
      readonly Target: string;
      readonly ReadOnly: boolean;
      readonly VolumeOptions: {
        readonly NoCopy: true;
        readonly Labels: Readonly<Record<string, string>>;
        readonly DriverConfig: { readonly Name: 'local'; readonly Options: Readonly<Record<string, string>> };
      };
    };

/** What is installed and what has to be read back. Data only: a test may change `install` and leave the rest as it is. */
export interface DockerLowering {
  readonly install: { readonly body: ContainerBody; readonly settings: readonly InnerSetting[] };
  readonly requirements: readonly ReceiptRequirement[];
  readonly landings: readonly { readonly id: string; readonly upper: string; readonly host: string }[];
  readonly mounts: MountPlan;
}

function lowerFiles(lowering: Lowering, request: LaunchRequest, facts: DockerFacts, mounts: MountPlan, nonce: string): DockerLowering['landings'] {
  const { job } = request.plan;
  lowering.fact('mount_namespace', 'ns.mnt', { kind: 'differs', from: facts.namespaces.mnt });
  lowering.equals('mount_namespace', 'mount.table', mounts.table);
  lowering.equals('mount_namespace', 'mount.propagation', mounts.receiving);
  lowering.equals('mount_namespace', 'end.mount.table', mounts.table, 'end');
  lowering.equals('mount_namespace', 'engine.mounts', mounts.engineMounts);
  lowering.equals('read_only_host', 'mount.writable', mounts.writable);
  lowering.equals('read_only_host', 'engine.readonly_rootfs', true);
  lowering.equals('projected_root', 'engine.image', facts.image.id);

  lowering.probe('projected_root', 'probe.read.outside', PROBE.open, join(request.scratch, `outside-${nonce}`), [0], NO_FILE);
  lowering.probe('hidden_paths', 'probe.hidden.state', PROBE.open, request.stateDirectory, [0], ['ENOENT']);
  for (const path of facts.hiddenPresent.slice(0, MOST_HIDDEN_PROBES)) {
    // A path of that name in the image is the image's own; what of the host could be seen there is stated by the table.
    if (!mounts.shows(path)) continue;
    lowering.probe('hidden_paths', `probe.hidden:${path}`, PROBE.open, path, [0], NO_FILE);
  }
  const writeProbe = `.proofrun-probe-${nonce}`;
  const closedRoot = ['EROFS', 'ENOENT'];
  lowering.probe('read_only_host', 'probe.write.root', PROBE.create, `/${writeProbe}`, [], ['EROFS']);
  lowering.probe('read_only_host', 'probe.write.etc', PROBE.create, `/etc/${writeProbe}`, [], closedRoot);
  lowering.probe('read_only_host', 'probe.write.usr', PROBE.create, `/usr/${writeProbe}`, [], closedRoot);
  const closed = ['EROFS', 'EACCES', 'EPERM', 'ENOENT'];
  lowering.probe('kernel_files', 'probe.kernel.core_pattern', PROBE.open, '/proc/sys/kernel/core_pattern', [1], closed);
  lowering.probe('kernel_files', 'probe.kernel.sysrq', PROBE.open, '/proc/sysrq-trigger', [1], closed);
  lowering.probe('kernel_files', 'probe.kernel.sysctl', PROBE.open, '/proc/sys/vm/overcommit_memory', [1], closed);
  lowering.equals('kernel_files', 'engine.masked_paths', [...MASKED].sort());
  lowering.equals('kernel_files', 'engine.readonly_paths', [...READ_ONLY].sort());

  const landings: { id: string; upper: string; host: string }[] = [];
  lowering.equals(
    'staged_workspace',
    'mount.stage',
    mounts.uppers.filter((one) => request.stage.some((staged) => staged.root === one.mount_point)),
  );
  if (mounts.volumes !== undefined) lowering.equals('staged_workspace', 'end.stage.returned', 'whole', 'end');
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
  landings.push({ id: 'home.landed', upper: join(mounts.homeUpper, writeProbe), host: join(job.home, writeProbe) });
  return landings;
}

/** The mode of the container's network. An engine without a bridge has no network to give. */
export function networkMode(request: LaunchRequest, facts: DockerFacts): 'none' | 'bridge' {
  return request.plan.job.permissions.network.kind === 'public' && facts.bridge ? 'bridge' : 'none';
}

function lowerNetwork(lowering: Lowering, request: LaunchRequest, facts: DockerFacts, nonce: string): void {
  if (request.plan.job.permissions.network.kind === 'public') {
    // An open network of the engine's is one of the container's own, with a way out.
    lowering.fact('network_public', 'ns.net.shared', { kind: 'differs', from: facts.namespaces.net });
    return;
  }
  lowering.fact('network_namespace', 'ns.net', { kind: 'differs', from: facts.namespaces.net });
  lowering.equals('network_namespace', 'engine.network_mode', 'none');
  lowering.equals('network_namespace', 'net.interfaces', ['lo']);
  lowering.equals('network_namespace', 'net.routes', []);
  const unreachable = ['ENETUNREACH', 'EHOSTUNREACH', 'ENETDOWN'];
  lowering.probe('network_namespace', 'probe.net.tcp4', PROBE.tcp, NOWHERE_V4, [80], unreachable);
  lowering.probe('network_namespace', 'probe.net.udp4', PROBE.udp, NOWHERE_V4, [443], unreachable);
  lowering.probe('network_namespace', 'probe.net.dns', PROBE.udp, NOWHERE_V4, [53], unreachable);
  lowering.probe('network_namespace', 'probe.net.tcp6', PROBE.tcp, '2001:db8::1', [80], [...unreachable, 'EADDRNOTAVAIL', 'EAFNOSUPPORT']);
  // Nobody listens there for these probes: that the network is the container's own is what counts.
  if (facts.apart) lowering.equals('host_sockets', 'engine.network_mode', 'none');
  lowering.probe('host_sockets', 'probe.net.host_abstract', PROBE.unix, `@proofrun-${nonce}`, [], ['ECONNREFUSED']);
  probeHostPath(lowering, join(request.scratch, 'probe.sock'));
  if (facts.tcpPort !== undefined) lowering.probe('host_sockets', 'probe.net.host_loopback', PROBE.tcp, '127.0.0.1', [facts.tcpPort], ['ECONNREFUSED']);
}

/** Of every Linux: PROC_PID_INIT_INO of include/linux/proc_ns.h. */
const FIRST_PID_NAMESPACE = 'pid:[4026531836]';

function lowerProcesses(lowering: Lowering, request: LaunchRequest, facts: DockerFacts, names: DockerNames): void {
  const terminal = names.terminal !== undefined;
  const { uid, gid, groups } = facts.job;
  lowering.fact('pid_namespace', 'ns.pid', { kind: 'differs', from: facts.apart ? FIRST_PID_NAMESPACE : facts.namespaces.pid });
  lowering.equals('pid_namespace', 'proc.pids', [1, 'command']);
  lowering.equals('pid_namespace', 'engine.namespaces', { pid: '', ipc: 'private', uts: '', cgroup: 'private' });
  lowering.probe('pid_namespace', 'probe.kill.host', PROBE.kill, '', [facts.hostPid], ['ESRCH']);
  lowering.equals('pid_namespace', 'end.processes', 0, 'end');
  lowering.equals('shim_is_init', 'init.pid', 1);
  lowering.equals('shim_is_init', 'init.dumpable', 0);
  lowering.equals('shim_is_init', 'init.capabilities', 'none');
  lowering.equals('shim_is_init', 'engine.process', { path: SHIM_IN_CONTAINER, args: entryOf(names).slice(1), user: `${uid}:${gid}`, init: false });
  lowering.equals('shim_is_init', 'engine.healthcheck', 'none');
  lowering.probe('shim_is_init', 'probe.init.memory', PROBE.open, '/proc/1/mem', [2], ['EACCES', 'EPERM']);
  // The hand-over socket lies there still, and nobody listens any more.
  if (names.channel === 'socket') lowering.probe('shim_is_init', 'probe.control.closed', PROBE.unix, CONTROL_IN_CONTAINER, [], ['ECONNREFUSED']);
  if (names.runtime !== undefined) lowering.equals('shim_is_init', 'engine.runtime', names.runtime);
  lowering.equals('no_new_privs', 'status.no_new_privs', 1);
  if (!facts.apart) lowering.equals('no_new_privs', 'outside.no_new_privs', 1);
  lowering.equals('capabilities', 'status.capabilities', 'none');
  if (!facts.apart) lowering.equals('capabilities', 'outside.capabilities', 'none');
  lowering.equals('capabilities', 'engine.privileges', { privileged: false, cap_add: [], cap_drop: ['ALL'], devices: [] });
  lowering.equals('user_drop', 'status.ids', { uid, gid });
  if (!facts.apart) lowering.equals('user_drop', 'outside.ids', { uid, gid });
  lowering.equals(
    'user_drop',
    'status.groups',
    [...new Set([gid, ...groups])].sort((a, b) => a - b),
  );
  lowering.equals('seccomp', 'status.seccomp', 2);
  if (!facts.apart) lowering.equals('seccomp', 'outside.seccomp', 2);
  // The engine's own, and ours on it; the engine may run under others.
  lowering.fact('seccomp', 'status.seccomp_filters', { kind: 'at_least', value: 2 });
  lowering.equals('seccomp', 'engine.security', ['no-new-privileges']);
  for (const probe of SECCOMP_PROBES) {
    const nr = isSeccompArch(facts.arch) ? probe.nr[facts.arch] : undefined;
    if (nr === undefined) continue;
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
  } else lowering.probe('agent_sockets', 'probe.socket.agents', PROBE.open, socket, [0o10000000], ['ENOENT']);
  for (const path of facts.agentSockets) {
    if (path.length > LONGEST_SOCKET_PATH) continue;
    lowering.probe('agent_sockets', `probe.socket.agents:${path}`, PROBE.unix, path, [], ['ENOENT', 'ENOTDIR', 'ECONNREFUSED', 'EACCES']);
  }
}

interface Limits {
  readonly settings: readonly InnerSetting[];
  readonly host: Readonly<Record<string, JsonValue>>;
}

/** The kernel's page; a memory limit is kept in pages. */
const PAGE = 4096;
/** cpu.cfs_period_us that the engine uses with NanoCpus. */
const CPU_PERIOD_US = 100_000;
/** The shim itself is in the container's group. */
const OWN_PROCESSES = 1;

function lowerLimits(lowering: Lowering, request: LaunchRequest): Limits {
  const { limits } = request.plan.job.permissions.resources;
  const settings: InnerSetting[] = [];
  const wanted: Record<string, string> = {};
  const host: Record<string, JsonValue> = {};
  const ulimits: { readonly Name: string; readonly Soft: number; readonly Hard: number }[] = [];
  const limit = (resource: number, name: string, value: number): void => {
    settings.push({ set: 'rlimit', resource, soft: BigInt(value), hard: BigInt(value) });
    ulimits.push({ Name: name, Soft: value, Hard: value });
    wanted[String(resource)] = `${value}:${value}`;
  };
  limit(RLIMIT.core, 'core', 0);
  if (limits.openFiles !== undefined) limit(RLIMIT.nofile, 'nofile', limits.openFiles);
  if (limits.fileSizeBytes !== undefined) limit(RLIMIT.fsize, 'fsize', limits.fileSizeBytes);
  if (limits.cpuTimeMs !== undefined) limit(RLIMIT.cpu, 'cpu', Math.ceil(limits.cpuTimeMs / 1000));
  lowering.equals('rlimits', 'rlimits', wanted);
  lowering.equals('rlimits', 'engine.ulimits', Object.fromEntries(ulimits.map(({ Name, Soft, Hard }) => [Name, `${Soft}:${Hard}`])));
  // The shim itself needs descriptors before it lowers its child's limit, so the engine's are for the record of inspect, and never lower than ours.
  host['Ulimits'] = ulimits.map((one) => ({ ...one }));
  if (limits.processes !== undefined) {
    host['PidsLimit'] = limits.processes + OWN_PROCESSES;
    lowering.equals('process_limit', 'limit.processes', limits.processes + OWN_PROCESSES);
    lowering.equals('process_limit', 'engine.pids_limit', limits.processes + OWN_PROCESSES);
  }
  if (limits.memoryBytes !== undefined) {
    const bytes = Math.floor(limits.memoryBytes / PAGE) * PAGE;
    const swap = Math.floor((limits.swapBytes ?? 0) / PAGE) * PAGE;
    host['Memory'] = bytes;
    host['MemorySwap'] = bytes + swap;
    lowering.equals('memory_limit', 'limit.memory', bytes);
    lowering.equals('memory_limit', 'engine.memory', { memory: bytes, with_swap: bytes + swap });
  }
  if (limits.cpus !== undefined) {
    const quotaUs = Math.max(1000, Math.round(limits.cpus * CPU_PERIOD_US));
    host['CpuPeriod'] = CPU_PERIOD_US;
    host['CpuQuota'] = quotaUs;
    lowering.equals('cpu_limit', 'limit.cpus', quotaUs / CPU_PERIOD_US);
    lowering.equals('cpu_limit', 'engine.cpu', { quota_us: quotaUs, period_us: CPU_PERIOD_US });
  }
  if (limits.wallTimeMs !== undefined) {
    settings.push({ set: 'wall', milliseconds: limits.wallTimeMs });
    lowering.fact('wall_time', 'wall.armed_ms', { kind: 'at_most', value: limits.wallTimeMs });
  }
  if (limits.tmpSizeBytes !== undefined) {
    lowering.fact('tmp_size', 'mount.tmp_size', { kind: 'at_most', value: Math.ceil(limits.tmpSizeBytes / 65536) * 65536 });
  }
  return { settings, host };
}

/** What the container executes, whatever its image says. */
function entryOf({ channel }: DockerNames): readonly string[] {
  return [SHIM_IN_CONTAINER, 'entry', channel === 'socket' ? CONTROL_IN_CONTAINER : '-'];
}

/** Lowers a plan to the engine's container and the shim's settings, and to what has to be read back. Pure. */
export function lower(request: LaunchRequest, facts: DockerFacts, names: DockerNames): DockerLowering {
  const { job, dimensions } = request.plan;
  const { permissions } = job;
  const labels = labelsOf(request.scratch, facts.stateToken, facts.owner);
  const mounts = facts.apart ? planVolumes(request, facts, labels, names.nonce) : planMounts(request, facts, labels, names.channel);
  const lowering = new Lowering();
  const landings = lowerFiles(lowering, request, facts, mounts, names.nonce);
  lowerNetwork(lowering, request, facts, names.nonce);
  lowerProcesses(lowering, request, facts, names);
  const limits = lowerLimits(lowering, request);
  const programs = lowerPrograms(lowering, { kind: permissions.subprocess.kind === 'none' ? 'none' : 'any' }, facts.arch, names.execAt);
  const env = Object.entries(permissions.credentials.environment).map(([name, value]) => `${name}=${value}`);
  lowering.equals('environment', 'environment', digestEnvironment(Buffer.from(env.map((one) => `${one}\0`).join(''))));

  const { uid, gid, groups } = facts.job;
  const attached = names.channel === 'attach';
  const body: ContainerBody = {
    Image: facts.image.id,
    Entrypoint: entryOf(names),
    Cmd: [],
    User: `${uid}:${gid}`,
    WorkingDir: '/',
    // Nothing that the image says reaches the shim: what its C library reads from the environment (GLIBC_TUNABLES) is the image's choice else.
    Env: [...new Set(facts.image.variables)].sort(),
    Tty: false,
    // When we are gone the engine closes the input, and the shim ends the tree.
    OpenStdin: attached,
    StdinOnce: attached,
    AttachStdin: attached,
    AttachStdout: attached,
    AttachStderr: attached,
    NetworkDisabled: false,
    Labels: labels,
    Healthcheck: { Test: ['NONE'] },
    HostConfig: {
      AutoRemove: true,
      Mounts: mounts.bodies,
      Tmpfs: mounts.tmpfs,
      ReadonlyRootfs: true,
      NetworkMode: networkMode(request, facts),
      CapDrop: ['ALL'],
      CapAdd: [],
      Privileged: false,
      SecurityOpt: ['no-new-privileges'],
      MaskedPaths: [...MASKED],
      ReadonlyPaths: [...READ_ONLY],
      GroupAdd: [...new Set([gid, ...groups])].map(String),
      IpcMode: 'private',
      CgroupnsMode: 'private',
      Init: false,
      LogConfig: { Type: 'none', Config: {} },
      ShmSize: mounts.shmBytes,
      RestartPolicy: { Name: 'no' },
      OomKillDisable: false,
      ...(facts.engine.remapped ? { UsernsMode: 'host' } : {}),
      ...(names.runtime === undefined ? {} : { Runtime: names.runtime }),
      ...limits.host,
    },
  };
  const settings: InnerSetting[] = [
    { set: 'argv', argv: job.argv },
    { set: 'env', env },
    { set: 'cwd', path: job.cwd },
    { set: 'rights', bits: RIGHT.noNewPrivs | RIGHT.dropCapabilities | RIGHT.keyring | RIGHT.closeDescriptors | RIGHT.nonDumpable },
    ...limits.settings,
    ...programs,
    ...(names.terminal === undefined ? [] : [{ set: 'terminal', ...names.terminal } as const]),
    ...lowering.probes.map((probe): InnerSetting => ({ set: 'probe', probe })),
    { set: 'end' },
  ];
  return {
    install: { body, settings },
    requirements: requireReceipts(
      perDimension((dimension) => dimensions[dimension].controls),
      lowering.expected,
    ),
    landings,
    mounts,
  };
}
