import { executableMounts, tmpSize, type MountValues } from '../../native/mount-values.ts';
import { formatMount, parseMountinfo, type MountLine } from '../../native/mountinfo.ts';
import { MASKED, READ_ONLY } from '../container-mounts.ts';
import { ENGINE_FILES } from '../mount-plan.ts';

/** The root: its filesystem is the storage driver's of a machine that isn't looked at. */
export function rootLine(readOnly: boolean): string {
  return `/ root ${access(readOnly)}`;
}

export function volumeLine(target: string, name: string, readOnly: boolean): string {
  return `${target} volume ${name} ${access(readOnly)}`;
}

/** A file that the engine itself mounts into every container. */
export function engineFileLine(path: string): string {
  return `${path} engine ro`;
}

const access = (readOnly: boolean): string => (readOnly ? 'ro' : 'rw');
const KERNEL = ['nosuid', 'nodev', 'noexec'];

/** Mounts that close a path, or show a hierarchy of control groups read-only: which of them there are is the machine's choice. */
const OPTIONAL: ReadonlySet<string> = new Set([
  ...MASKED.flatMap((path) => [formatMount(path, 'tmpfs', ['ro']), formatMount(path, 'tmpfs', ['rw', 'nosuid'])]),
  ...READ_ONLY.map((path) => formatMount(path, 'proc', ['ro', ...KERNEL])),
]);

function isOptional(line: MountLine): boolean {
  const text = formatMount(line.mountPoint, line.fsType, line.options);
  if (OPTIONAL.has(text)) return true;
  const name = /^\/sys\/fs\/cgroup\/([a-z0-9_,=]+)$/.exec(line.mountPoint)?.[1];
  return name !== undefined && text === formatMount(line.mountPoint, 'cgroup', ['ro', ...KERNEL]);
}

/**
 * The name of the volume that a mount shows, by the directory that the kernel names as its root: `.../volumes/NAME/_data` of the engine's own
 * local driver. Undefined: another thing.
 */
function volumeOf(line: MountLine): string | undefined {
  return /\/volumes\/([A-Za-z0-9][A-Za-z0-9_.-]*)\/_data$/.exec(line.root)?.[1];
}

function format(line: MountLine): string {
  const readOnly = line.options.includes('ro');
  if (line.mountPoint === '/') return rootLine(readOnly);
  const name = volumeOf(line);
  if (name !== undefined) return volumeLine(line.mountPoint, name, readOnly);
  const file = ENGINE_FILES.find((path) => path === line.mountPoint);
  if (file !== undefined && readOnly && new RegExp(`/containers/[0-9a-f]{64}/${file.slice('/etc/'.length).replace('.', '\\.')}$`).test(line.root)) {
    return engineFileLine(file);
  }
  return formatMount(line.mountPoint, line.fsType, line.options);
}

/** Every mount but the optional ones, each as the plan states it, sorted. */
export function summariseVolumes(lines: readonly MountLine[]): readonly string[] {
  return lines
    .filter((line) => !isOptional(line))
    .map(format)
    .sort();
}

/** What the receipts say of the mount table of a container on an engine that doesn't see this machine's files. */
export function readVolumeMounts(text: string, staged: readonly string[]): MountValues {
  const lines = parseMountinfo(text);
  const required = lines.filter((line) => !isOptional(line));
  return {
    table: summariseVolumes(lines),
    // Whether a mount receives what its engine's machine mounts is that machine's choice; none may send.
    propagation: text
      .split('\n')
      .map((line) => (line.split(' - ')[0] ?? '').split(' '))
      .filter((fields) => fields.slice(6).some((field) => field.startsWith('shared:')))
      .map((fields) => fields[4] ?? '')
      .sort(),
    writable: [...new Set(required.filter((line) => line.options.includes('rw')).map((line) => line.mountPoint))].sort(),
    executable: executableMounts(required),
    stage: required
      .filter((line) => staged.includes(line.mountPoint))
      .map((line) => ({ mount_point: line.mountPoint, upper: volumeOf(line) ?? null }))
      .sort((a, b) => (a.mount_point < b.mount_point ? -1 : 1)),
    tmp_size: tmpSize(lines),
  };
}
