import { lstatSync, readdirSync, readlinkSync, type Stats } from 'node:fs';
import { join } from 'node:path';
import { errnoOf } from '../../src/core/errors.ts';
import type { MountLine } from './mountinfo.ts';

/** A piece of the host that the sandbox shows read-only. */
export type Projection =
  /** A directory without mounts below it: one read-only overlay. */
  | { readonly kind: 'tree'; readonly path: string; readonly bind: boolean }
  /** A directory with mounts below it: made anew, its entries projected one by one. */
  | { readonly kind: 'directory'; readonly path: string }
  | { readonly kind: 'file'; readonly path: string }
  | { readonly kind: 'symlink'; readonly path: string; readonly target: string };

export interface Projected {
  readonly entries: readonly Projection[];
  /** Places that can't be shown, with the reason; for the record. */
  readonly skipped: readonly { readonly path: string; readonly reason: string }[];
}

/** Filesystems of the kernel: they describe the host, not files of its user. */
const KERNEL_TYPES = new Set([
  ...['proc', 'sysfs', 'devtmpfs', 'devpts', 'cgroup', 'cgroup2', 'securityfs', 'debugfs', 'tracefs', 'mqueue', 'hugetlbfs', 'pstore', 'bpf', 'configfs'],
  ...['efivarfs', 'binfmt_misc', 'autofs', 'rpc_pipefs', 'selinuxfs', 'fusectl', 'nsfs'],
]);
/** Filesystems that overlayfs refuses as a lower layer (names without case, or that are looked up anew each time). */
const NOT_OVERLAID = new Set(['vfat', 'msdos', 'exfat', 'ntfs', 'ntfs3', 'fuseblk', 'cifs', 'smb3', '9p', 'virtiofs', 'vboxsf', 'afs', 'ceph']);

function below(path: string): string {
  return path === '/' ? '/' : `${path}/`;
}

/** The mount that a path lies on: the one with the longest mount point above it; of several on one point the last. */
export function mountOf(path: string, mounts: readonly MountLine[]): MountLine | undefined {
  let found: MountLine | undefined;
  for (const mount of mounts) {
    if (mount.mountPoint !== path && !path.startsWith(below(mount.mountPoint))) continue;
    if (found === undefined || mount.mountPoint.length >= found.mountPoint.length) found = mount;
  }
  return found;
}

/** Mounts strictly below a directory. */
export function mountsBelow(path: string, mounts: readonly MountLine[]): readonly MountLine[] {
  return mounts.filter((mount) => mount.mountPoint !== path && mount.mountPoint.startsWith(below(path)));
}

/**
 * How to show `path` and all below it read-only. An overlay can't have mounts below its lower directory (for an ordinary user
 * the kernel answers EINVAL), so a directory with mounts is split. Costs one lstat, and a readdir for each split directory.
 */
export function projectTree(path: string, mounts: readonly MountLine[], leaveOut: (path: string) => boolean = () => false): Projected {
  const entries: Projection[] = [];
  const skipped: { path: string; reason: string }[] = [];
  const visit = (at: string): void => {
    if (leaveOut(at)) return;
    let facts: Stats;
    try {
      facts = lstatSync(at);
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') skipped.push({ path: at, reason: errnoOf(error) ?? 'lstat failed' });
      return;
    }
    if (facts.isSymbolicLink()) {
      entries.push({ kind: 'symlink', path: at, target: readlinkSync(at) });
      return;
    }
    const mount = mountOf(at, mounts);
    if (mount !== undefined && KERNEL_TYPES.has(mount.fsType)) {
      skipped.push({ path: at, reason: `a ${mount.fsType} filesystem` });
      return;
    }
    if (facts.isFile()) {
      entries.push({ kind: 'file', path: at });
      return;
    }
    if (!facts.isDirectory()) {
      skipped.push({ path: at, reason: 'a device, socket or FIFO' });
      return;
    }
    if (mountsBelow(at, mounts).length === 0) {
      entries.push({ kind: 'tree', path: at, bind: mount !== undefined && NOT_OVERLAID.has(mount.fsType) });
      return;
    }
    let names: readonly string[];
    try {
      names = readdirSync(at);
    } catch (error) {
      skipped.push({ path: at, reason: errnoOf(error) ?? 'readdir failed' });
      return;
    }
    entries.push({ kind: 'directory', path: at });
    for (const name of names) visit(join(at, name));
  };
  visit(path);
  return { entries, skipped };
}
