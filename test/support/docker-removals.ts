import type { DockerLowering, MountBody } from '../../executors/docker/lower.ts';
import { RIGHT, type InnerSetting } from '../../executors/shim/protocol.ts';
import type { Dimension } from '../../src/core/dimension.ts';
import type { ControlId } from '../../src/core/plan.ts';
import { anyProgram } from './any-program.ts';
import type { NativeJob } from './native-job.ts';

export type DockerInstall = DockerLowering['install'];

export interface DockerPlaces {
  readonly workspace: string;
  readonly home: string;
  readonly scratch: string;
}

/** One way to leave a control's mechanism out of a container, and what has to be noticed. */
export interface DockerRemoval {
  readonly control: ControlId;
  readonly how: string;
  readonly alter: (install: DockerInstall, places: DockerPlaces) => DockerInstall;
  /** Dimensions that are no longer enforced; every other one that was asked for still is. */
  readonly lost: readonly Dimension[];
  /** The workspace belongs to the ordinary user: the command runs as that one. */
  readonly ownedByUser?: true;
  /** Which programs the job may start; default: any, contained. */
  readonly programs?: NativeJob['programs'];
}

const FILES: readonly Dimension[] = ['file_read', 'file_write'];

function host(install: DockerInstall, change: Readonly<Record<string, unknown>>): DockerInstall {
  return { ...install, body: { ...install.body, HostConfig: { ...install.body.HostConfig, ...change } } };
}

function mounts(install: DockerInstall, change: (list: readonly MountBody[]) => readonly MountBody[]): DockerInstall {
  return host(install, { Mounts: change(install.body.HostConfig.Mounts) });
}

function bind(path: string, readOnly = true, target = path): MountBody {
  return { Type: 'bind', Source: path, Target: target, ReadOnly: readOnly, BindOptions: { Propagation: 'rprivate' } };
}

function settings<K extends InnerSetting['set']>(
  install: DockerInstall,
  kind: K,
  change: (one: Extract<InnerSetting, { readonly set: K }>) => InnerSetting | undefined,
): DockerInstall {
  return {
    ...install,
    settings: install.settings.flatMap((one) => (one.set === kind ? (change(one as Extract<InnerSetting, { readonly set: K }>) ?? []) : [one])),
  };
}

const drop = (): undefined => undefined;
const rights = (install: DockerInstall, bit: number): DockerInstall => settings(install, 'rights', (one) => ({ ...one, bits: one.bits & ~bit }));

export const DOCKER_REMOVALS: readonly DockerRemoval[] = [
  {
    control: 'mount_namespace',
    how: 'another directory of the host is mounted',
    alter: (install) => mounts(install, (list) => [...list, bind('/usr/share/doc', true, '/extra')]),
    lost: FILES,
  },
  {
    control: 'projected_root',
    how: 'the run directory is mounted',
    alter: (install, { scratch }) => mounts(install, (list) => [...list, bind(scratch)]),
    lost: [...FILES, 'network', 'credentials'],
  },
  {
    control: 'hidden_paths',
    how: 'the mask layer is left out',
    alter: (install, { workspace }) =>
      mounts(install, (list) =>
        list.map((one) => {
          if (one.Type !== 'volume' || one.Target !== workspace) return one;
          const { Options } = one.VolumeOptions.DriverConfig;
          const o = (Options['o'] ?? '').replace(/lowerdir=[^:,]*:/, 'lowerdir=');
          return { ...one, VolumeOptions: { ...one.VolumeOptions, DriverConfig: { Name: 'local', Options: { ...Options, o } } } };
        }),
      ),
    lost: FILES,
  },
  {
    control: 'staged_workspace',
    how: 'the workspace is bound as it is',
    alter: (install, { workspace }) => mounts(install, (list) => list.map((one) => (one.Target === workspace ? bind(workspace, false) : one))),
    lost: FILES,
  },
  {
    control: 'private_home',
    how: 'the real home is bound',
    alter: (install, { home }) => mounts(install, (list) => list.map((one) => (one.Target === home ? bind(home, false) : one))),
    lost: FILES,
  },
  { control: 'read_only_host', how: 'the root can be written', alter: (install) => host(install, { ReadonlyRootfs: false }), lost: FILES },
  { control: 'kernel_files', how: 'no path is read-only', alter: (install) => host(install, { ReadonlyPaths: [] }), lost: FILES },
  { control: 'kernel_files', how: 'no path is masked', alter: (install) => host(install, { MaskedPaths: [] }), lost: FILES },
  { control: 'network_namespace', how: "the host's network", alter: (install) => host(install, { NetworkMode: 'host' }), lost: ['network'] },
  { control: 'pid_namespace', how: "the host's process ids", alter: (install) => host(install, { PidMode: 'host' }), lost: ['subprocess'] },
  {
    control: 'pid_namespace',
    how: "the host's IPC namespace",
    alter: (install) => host(install, { IpcMode: 'host' }),
    lost: [...FILES, 'subprocess', 'resources'],
  },
  { control: 'shim_is_init', how: "an init of the engine's", alter: (install) => host(install, { Init: true }), lost: [...FILES, 'subprocess'] },
  {
    control: 'shim_is_init',
    how: 'a health check',
    alter: (install) => ({ ...install, body: { ...install.body, Healthcheck: { Test: ['CMD', '/bin/true'] } as unknown as { Test: ['NONE'] } } }),
    lost: ['subprocess'],
  },
  {
    control: 'no_new_privs',
    how: 'neither the engine nor the shim sets it',
    alter: (install) => settings(rights(host(install, { SecurityOpt: [] }), RIGHT.noNewPrivs), 'seccomp', drop),
    lost: ['subprocess'],
  },
  {
    control: 'capabilities',
    how: 'nothing is dropped',
    alter: (install) => rights(host(install, { CapDrop: [] }), RIGHT.dropCapabilities),
    lost: ['subprocess'],
  },
  {
    control: 'capabilities',
    how: 'one is added',
    alter: (install) => rights(host(install, { CapAdd: ['NET_RAW'] }), RIGHT.dropCapabilities),
    lost: ['subprocess'],
  },
  {
    control: 'user_drop',
    how: "root's group",
    ownedByUser: true,
    alter: (install) => ({ ...install, body: { ...install.body, User: install.body.User.replace(/:.*/, ':0') } }),
    lost: ['subprocess'],
  },
  {
    control: 'seccomp',
    how: "the engine's filter is left out",
    alter: (install) => host(install, { SecurityOpt: ['no-new-privileges', 'seccomp=unconfined'] }),
    lost: ['subprocess'],
  },
  {
    control: 'no_program',
    how: 'the filter is that of other jobs',
    programs: 'none',
    alter: (install) => settings(install, 'seccomp', (one) => ({ ...one, program: anyProgram() })),
    lost: ['subprocess'],
  },
  { control: 'seccomp', how: 'ours is left out', alter: (install) => settings(install, 'seccomp', drop), lost: ['subprocess'] },
  {
    control: 'session_keyring',
    how: 'no filter keeps keyctl(2) away, and no keyring is made',
    alter: (install) => rights(settings(host(install, { SecurityOpt: ['no-new-privileges', 'seccomp=unconfined'] }), 'seccomp', drop), RIGHT.keyring),
    lost: ['subprocess', 'credentials'],
  },
  {
    control: 'environment',
    how: 'one variable more',
    alter: (install) => settings(install, 'env', (one) => ({ ...one, env: [...one.env, 'EXTRA=1'] })),
    lost: ['credentials'],
  },
  {
    control: 'agent_sockets',
    how: 'a socket of the host is bound',
    alter: (install, { scratch }) => mounts(install, (list) => [...list, bind(`${scratch}/probe.sock`)]),
    lost: [...FILES, 'network', 'credentials'],
  },
  { control: 'rlimits', how: 'the shim sets none', alter: (install) => settings(host(install, { Ulimits: [] }), 'rlimit', drop), lost: ['resources'] },
  { control: 'process_limit', how: "the engine's limit is left out", alter: (install) => host(install, { PidsLimit: undefined }), lost: ['resources'] },
  {
    control: 'memory_limit',
    how: "the engine's limit is left out",
    alter: (install) => host(install, { Memory: undefined, MemorySwap: undefined }),
    lost: ['resources'],
  },
  {
    control: 'cpu_limit',
    how: "the engine's limit is left out",
    alter: (install) => host(install, { CpuQuota: undefined, CpuPeriod: undefined }),
    lost: ['resources'],
  },
  { control: 'wall_time', how: 'no timer', alter: (install) => settings(install, 'wall', drop), lost: ['resources'] },
  {
    control: 'tmp_size',
    how: 'one place without a limit',
    alter: (install) => host(install, { Tmpfs: { ...install.body.HostConfig.Tmpfs, '/tmp': 'rw,exec,nosuid,nodev,mode=1777' } }),
    lost: ['resources'],
  },
];

/** Controls that can't be left out of a container, with what stands for them. */
export const NOT_LEFT_OUT: Readonly<Partial<Record<ControlId, string>>> = {
  host_sockets: 'goes with the network namespace',
  network_public: 'restricts nothing',
  descriptors: 'the shim makes all of them; its variants show it on the native executor',
  tree_killed: 'PID 1 of a container takes its tree along',
  listed_programs: 'not planned on this executor',
  secret_injection: 'not planned on this executor',
  overlay_network: 'not planned on this executor',
  published_ports: 'not planned on this executor',
  proxy_offered: 'not planned on this executor',
  stage_size: 'not planned on this executor',
};
