import { lstatSync } from 'node:fs';
import { release } from 'node:os';
import type { ControlId, ExecutorCapabilities } from '../../src/core/plan.ts';
import { locateShim } from '../shim/locate.host.ts';
import type { Connection, Engine } from './connect.host.ts';
import { parseEngineInfo, type EngineInfo } from './engine-facts.ts';
import type { Obstacle } from './obstacle.ts';
import { runtimesOf } from './runtimes.ts';

/** Controls that are installed and read back on an engine of this machine. */
const CONTROLS: readonly ControlId[] = [
  ...(['mount_namespace', 'projected_root', 'hidden_paths', 'staged_workspace', 'read_only_host', 'private_home', 'kernel_files'] as const),
  ...(['network_namespace', 'network_public', 'host_sockets'] as const),
  ...(['pid_namespace', 'shim_is_init', 'no_new_privs', 'capabilities', 'user_drop', 'seccomp', 'descriptors', 'no_program', 'tree_killed'] as const),
  ...(['environment', 'agent_sockets', 'session_keyring', 'rlimits', 'wall_time', 'tmp_size'] as const),
];

/** An engine as it was found, asked once for a process. */
export interface ProbedEngine {
  readonly engine: Engine;
  readonly info: EngineInfo;
  /** The engine has its usual network, which leads out. */
  readonly bridge: boolean;
  /** It doesn't see this machine's files. */
  readonly apart: boolean;
}

/** Reads what a connected engine said of itself. `workspace`: known already, whether it sees this machine's files. */
export function readEngine({ engine, info, networks }: Extract<Connection, { readonly engine: unknown }>, workspace?: 'seen' | 'sent'): ProbedEngine {
  const parsed = parseEngineInfo(info);
  const apart = workspace === undefined ? isApart(engine, parsed) : workspace === 'sent';
  return { engine, info: parsed, bridge: networks.includes('bridge'), apart };
}

/**
 * An engine behind a network, in a virtual machine with a kernel of its own (Docker Desktop), or with its data where we see nothing: then we are in
 * a container ourselves. Taken for apart by mistake, it costs time; the other way round the engine would mount what isn't there.
 */
function isApart({ chosen }: Engine, { operatingSystem, kernel, dataRoot }: EngineInfo): boolean {
  if (chosen.endpoint.kind !== 'unix' || operatingSystem === 'Docker Desktop' || kernel !== release()) return true;
  try {
    return lstatSync(dataRoot, { throwIfNoEntry: false }) === undefined;
  } catch {
    return false; // there, and closed to this user
  }
}

/** What an engine that can be used lacks for this executor. Undefined: nothing. */
export function obstacleOf({ info }: ProbedEngine): Obstacle | undefined {
  if (info.operatingSystem === '' && info.kernel === '') return { reason: 'the engine does not describe its machine', remedy: 'docker info' };
  try {
    locateShim();
  } catch (error) {
    return { reason: error instanceof Error ? error.message : String(error), remedy: 'npm run build' };
  }
  return undefined;
}

export function capabilitiesOf(version: string, probed: ProbedEngine, defaultImage: string | undefined): ExecutorCapabilities {
  const { limits, runtimes } = probed.info;
  const controls = [
    ...CONTROLS,
    ...(limits.processes ? (['process_limit'] as const) : []),
    ...(limits.memory ? (['memory_limit'] as const) : []),
    ...(limits.cpus ? (['cpu_limit'] as const) : []),
  ];
  return {
    ...base(version),
    available: true,
    controls: runtimesOf([probed.info.defaultRuntime], controls)[0]?.controls ?? controls,
    runtimes: runtimesOf(
      runtimes.filter((name) => !name.startsWith('io.containerd.')),
      controls,
    ),
    network: { public: probed.bridge, deny: true, selective: false },
    subprocess: { contained: true, listed: false, none: true },
    limits: { ...limits, processesBy: "of the whole tree, the shim included, by the engine's pids limit" },
    images: true,
    ...(defaultImage === undefined ? {} : { defaultImage }),
  };
}

export function unavailable(version: string, obstacle: Obstacle): ExecutorCapabilities {
  return { ...base(version), available: false, reason: obstacle.reason, remedy: obstacle.remedy, images: true };
}

function base(version: string): ExecutorCapabilities {
  return {
    executor: 'docker',
    available: false,
    version,
    user: process.geteuid?.() === 0 ? 'root' : 'user',
    controls: [],
    network: { public: false, deny: false, selective: false },
    subprocess: { contained: false, listed: false, none: false },
    limits: { memory: false, cpus: false, processes: false, swap: false },
    cooperative: [],
  };
}
