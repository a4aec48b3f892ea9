import { AGENT_SOCKET } from './agent-link.host.ts';
import { execFile, spawnSync } from 'node:child_process';
import { readFileSync, statSync } from 'node:fs';
import { promisify } from 'node:util';
import type { ControlId, ExecutorCapabilities } from '../../src/core/plan.ts';
import { locateShim } from '../shim/locate.host.ts';
import { OVERLAY_V4, PROXY_PORT } from '../shim/overlay-plan.ts';
import type { CgroupSupport } from './cgroup.ts';

/** Absolute paths where distributions and administrators put it; PATH is never searched. */
const BUBBLEWRAP_PATHS = ['/usr/bin/bwrap', '/usr/local/bin/bwrap', '/bin/bwrap'];

/** From this version of Landlock on a rule can leave renames across directories alone (Linux 5.19). */
const LANDLOCK_WITH_REFER = 2;

/** 0: this kernel has none, or it is switched off. */
function landlockVersion(): number {
  return Number(spawnSync(locateShim(), ['landlock'], { encoding: 'utf8', env: {} }).stdout.trim() || '0');
}

/** The controls that this executor installs and reads back, whatever the user. Limits of the tree depend on control groups. */
const CONTROLS: readonly ControlId[] = [
  ...(['mount_namespace', 'projected_root', 'hidden_paths', 'staged_workspace', 'read_only_host', 'private_home', 'kernel_files'] as const),
  ...(['network_namespace', 'network_public', 'overlay_network', 'published_ports', 'host_sockets'] as const),
  ...([
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
  ] as const),
  ...(['environment', 'agent_sockets', 'session_keyring', 'secret_injection', 'rlimits', 'wall_time', 'tmp_size', 'stage_size'] as const),
];

interface Obstacle {
  readonly reason: string;
  readonly remedy: string;
}

function readOr(path: string, otherwise: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return otherwise;
  }
}

/** The audited program, if it is where an administrator put it and nobody else can change it. */
export function findBubblewrap(): string | undefined {
  return BUBBLEWRAP_PATHS.find((path) => {
    try {
      const facts = statSync(path);
      return facts.isFile() && facts.uid === 0 && (facts.mode & 0o022) === 0;
    } catch {
      return false;
    }
  });
}

/** What the kernel's own settings say. Undefined: nothing there forbids it. */
function obstacleOf(asRoot: boolean): Obstacle | undefined {
  if (process.platform !== 'linux') return { reason: `namespaces need Linux; this is ${process.platform}`, remedy: 'use a Linux machine' };
  if (findBubblewrap() === undefined) {
    return { reason: `no bubblewrap that root owns at ${BUBBLEWRAP_PATHS.join(', ')}`, remedy: 'apt-get install bubblewrap' };
  }
  if (!/\boverlay\b/.test(readOr('/proc/filesystems', 'overlay'))) return { reason: 'this kernel has no overlayfs loaded', remedy: 'modprobe overlay' };
  if (asRoot) return undefined;
  if (readOr('/proc/sys/user/max_user_namespaces', '1') === '0') {
    return { reason: 'user namespaces are off (user.max_user_namespaces = 0)', remedy: 'sysctl -w user.max_user_namespaces=10000' };
  }
  if (readOr('/proc/sys/kernel/unprivileged_userns_clone', '1') === '0') {
    return {
      reason: 'user namespaces are off for ordinary users (kernel.unprivileged_userns_clone = 0)',
      remedy: 'sysctl -w kernel.unprivileged_userns_clone=1',
    };
  }
  return undefined;
}

/** Some rights show only when one tries: AppArmor's restriction, the filter of a surrounding container. */
function mustTry(): boolean {
  return readOr('/proc/sys/kernel/apparmor_restrict_unprivileged_userns', '0') === '1' || !/^Seccomp:\s*0$/m.test(readOr('/proc/self/status', 'Seccomp: 0'));
}

const run = promisify(execFile);

async function tryNamespaces(bubblewrap: string, asRoot: boolean): Promise<Obstacle | undefined> {
  const user = asRoot ? [] : ['--unshare-user'];
  try {
    await run(bubblewrap, [...user, '--unshare-pid', '--unshare-net', '--ro-bind', '/', '/', '--proc', '/proc', '/bin/true'], { env: {}, timeout: 10_000 });
    return undefined;
  } catch (error) {
    const said = typeof error === 'object' && error !== null && 'stderr' in error ? String(error.stderr).trim().split('\n').at(-1) : String(error);
    if (readOr('/proc/sys/kernel/apparmor_restrict_unprivileged_userns', '0') === '1') {
      return {
        reason: `AppArmor restricts user namespaces of ordinary users: ${said ?? ''}`,
        remedy: 'sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for bwrap that allows userns',
      };
    }
    return {
      reason: `namespaces are forbidden here, as in a container with the engine's default filter: ${said ?? ''}`,
      remedy:
        'start the container with --security-opt seccomp=in-container.seccomp.json --security-opt systempaths=unconfined (as root also --cap-add SYS_ADMIN --cap-add NET_ADMIN); the file is in policies/ of the package',
    };
  }
}

/** Looks at the machine: cheap reads, and one trial where only a trial tells. */
export async function probeNative(version: string, support: () => CgroupSupport): Promise<ExecutorCapabilities> {
  const asRoot = process.geteuid?.() === 0;
  let obstacle = obstacleOf(asRoot);
  const bubblewrap = findBubblewrap();
  if (obstacle === undefined) {
    try {
      locateShim();
    } catch (error) {
      obstacle = { reason: error instanceof Error ? error.message : String(error), remedy: 'npm run build' };
    }
  }
  if (obstacle === undefined && bubblewrap !== undefined && mustTry()) obstacle = await tryNamespaces(bubblewrap, asRoot);
  const cgroups = obstacle === undefined ? support() : undefined;
  const usable = (controller: 'memory' | 'pids' | 'cpu'): boolean => cgroups?.controllers[controller].usable === true;
  // As an ordinary user RLIMIT_NPROC counts in the job's own user namespace; uid 0 is not limited by it.
  const processes = asRoot ? usable('pids') : obstacle === undefined;
  return {
    executor: 'native',
    available: obstacle === undefined,
    ...(obstacle ?? {}),
    version,
    user: asRoot ? 'root' : 'user',
    agentSocket: AGENT_SOCKET,
    controls: [
      ...CONTROLS,
      ...(processes ? (['process_limit'] as const) : []),
      ...(usable('memory') ? (['memory_limit'] as const) : []),
      ...(usable('cpu') ? (['cpu_limit'] as const) : []),
    ],
    network: { public: true, deny: true, selective: true, proxy: `http://${OVERLAY_V4}:${String(PROXY_PORT)}` },
    subprocess: {
      contained: true,
      none: true,
      // Asked when a job lists programs: it takes a process.
      get listed() {
        return obstacle === undefined && landlockVersion() >= LANDLOCK_WITH_REFER;
      },
    },
    limits: {
      memory: usable('memory'),
      cpus: usable('cpu'),
      processes,
      swap: cgroups?.swap === true,
      processesBy: asRoot ? 'of the whole tree by the pids controller' : "by RLIMIT_NPROC in the job's user namespace",
    },
    cooperative: [],
  };
}
