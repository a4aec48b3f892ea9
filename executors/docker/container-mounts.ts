import { formatMount } from '../native/mountinfo.ts';

/** What of the engine's machine decides which mounts a container has besides those that are asked for. */
export interface MachineFacts {
  readonly cgroupVersion: 1 | 2;
  /** Last names of the version 1 hierarchies' mount points; none with version 2. */
  readonly hierarchies: readonly string[];
  /** Type of the filesystem that the storage driver gives a container as its root. */
  readonly rootType: string;
  /** Of MASKED and READ_ONLY: those that are there, and whether each is a directory. */
  readonly masked: readonly { readonly path: string; readonly directory: boolean }[];
  readonly readOnly: readonly string[];
}

/** Paths below /proc and /sys that act on or tell of the whole machine. The engine's defaults, stated, so that inspect can be compared. */
export const MASKED = [
  '/proc/acpi',
  '/proc/asound',
  '/proc/interrupts',
  '/proc/kcore',
  '/proc/keys',
  '/proc/latency_stats',
  '/proc/sched_debug',
  '/proc/scsi',
  '/proc/timer_list',
  '/proc/timer_stats',
  '/sys/devices/virtual/powercap',
  '/sys/firmware',
] as const;
export const READ_ONLY = ['/proc/bus', '/proc/fs', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger'] as const;

/** Every mount that runc makes by itself in a container with a read-only root, as formatMount lines. */
export function runtimeMounts(machine: MachineFacts): readonly string[] {
  const kernel = ['nosuid', 'nodev', 'noexec'];
  const cgroups =
    machine.cgroupVersion === 2
      ? [formatMount('/sys/fs/cgroup', 'cgroup2', ['ro', ...kernel])]
      : [
          formatMount('/sys/fs/cgroup', 'tmpfs', ['rw', ...kernel]),
          ...machine.hierarchies.map((name) => formatMount(`/sys/fs/cgroup/${name}`, 'cgroup', ['ro', ...kernel])),
        ];
  return [
    formatMount('/', machine.rootType, ['ro']),
    formatMount('/proc', 'proc', ['rw', ...kernel]),
    formatMount('/dev', 'tmpfs', ['rw', 'nosuid']),
    formatMount('/dev/pts', 'devpts', ['rw', 'nosuid', 'noexec']),
    formatMount('/dev/mqueue', 'mqueue', ['rw', ...kernel]),
    formatMount('/dev/shm', 'tmpfs', ['rw', ...kernel]),
    formatMount('/sys', 'sysfs', ['ro', ...kernel]),
    ...cgroups,
    // A directory is covered by an empty tmpfs, a file by the container's own /dev/null.
    ...machine.masked.map(({ path, directory }) => (directory ? formatMount(path, 'tmpfs', ['ro']) : formatMount(path, 'tmpfs', ['rw', 'nosuid']))),
    ...machine.readOnly.map((path) => formatMount(path, path.startsWith('/sys') ? 'sysfs' : 'proc', ['ro', ...kernel])),
  ];
}

/** Of those, what the job may write: all private to the container. */
export function runtimeWritable(machine: MachineFacts): readonly string[] {
  return [
    ...['/proc', '/dev', '/dev/pts', '/dev/mqueue', '/dev/shm'],
    ...(machine.cgroupVersion === 2 ? [] : ['/sys/fs/cgroup']),
    ...machine.masked.filter(({ directory }) => !directory).map(({ path }) => path),
  ];
}
