/** Texts of /proc/<pid>/cgroup, mountinfo and the files of a control group: cgroups(7), Documentation/admin-guide/cgroup-v{1,2}. */

/** One line of /proc/<pid>/cgroup. */
export interface CgroupMembership {
  /** Empty for the unified (v2) hierarchy. */
  readonly controllers: readonly string[];
  /** Path in its hierarchy, as the reader's cgroup namespace shows it. */
  readonly path: string;
}

/** Lines without two colons are skipped; a path may hold colons of its own. */
export function parseMembership(text: string): readonly CgroupMembership[] {
  const memberships: CgroupMembership[] = [];
  for (const line of text.split('\n')) {
    const match = /^\d+:([^:]*):(\/.*)$/.exec(line);
    if (match === null) continue;
    const [, names = '', path = ''] = match;
    memberships.push({ controllers: names === '' ? [] : names.split(','), path: path.replace(/ \(deleted\)$/, '') });
  }
  return memberships;
}

/** A mounted hierarchy. */
export interface CgroupMount {
  readonly version: 1 | 2;
  /** v1: controllers and named hierarchies of the mount. v2: empty; the directories say it. */
  readonly controllers: readonly string[];
  /** The part of the hierarchy that is mounted. */
  readonly hierarchyRoot: string;
  readonly mountPoint: string;
  readonly readOnly: boolean;
}

/** Octal escapes of mountinfo: space, tab, newline, backslash. */
function unescapeMount(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}

/** The cgroup lines of a mountinfo text, in its order; other lines and torn ones are skipped. */
export function parseCgroupMounts(mountinfo: string): readonly CgroupMount[] {
  const mounts: CgroupMount[] = [];
  for (const line of mountinfo.split('\n')) {
    const [before, after] = line.split(' - ', 2);
    if (before === undefined || after === undefined) continue;
    const [, , , hierarchyRoot, mountPoint, options] = before.split(' ');
    const [type, , superOptions] = after.split(' ');
    if (hierarchyRoot === undefined || mountPoint === undefined || options === undefined || superOptions === undefined) continue;
    if (type !== 'cgroup' && type !== 'cgroup2') continue;
    const readOnly = options.split(',').includes('ro') || superOptions.split(',').includes('ro');
    mounts.push({
      version: type === 'cgroup' ? 1 : 2,
      controllers: type === 'cgroup' ? superOptions.split(',').filter((option) => option !== 'rw' && option !== 'ro') : [],
      hierarchyRoot: unescapeMount(hierarchyRoot),
      mountPoint: unescapeMount(mountPoint),
      readOnly,
    });
  }
  return mounts;
}

/** Where a cgroup lies below a mount; undefined when the mount doesn't show it (another namespace's, or a part elsewhere). */
export function directoryBelow(mount: CgroupMount, path: string): string | undefined {
  if (path.split('/').includes('..') || mount.hierarchyRoot.split('/').includes('..')) return undefined;
  if (mount.hierarchyRoot === '/') return path === '/' ? mount.mountPoint : mount.mountPoint + path;
  if (path === mount.hierarchyRoot) return mount.mountPoint;
  return path.startsWith(`${mount.hierarchyRoot}/`) ? mount.mountPoint + path.slice(mount.hierarchyRoot.length) : undefined;
}

/** Page counters of v1 show "no limit" as the largest multiple of the page size below 2^63. */
const V1_UNLIMITED = 2n ** 62n;

/** A limit or counter: a number, or null for `max`, -1 and the v1 form of "no limit". Undefined for anything else. */
export function parseLimit(text: string): number | null | undefined {
  const trimmed = text.trim();
  if (trimmed === 'max' || trimmed === '-1') return null;
  if (!/^\d{1,20}$/.test(trimmed)) return undefined;
  return BigInt(trimmed) >= V1_UNLIMITED ? null : Number(trimmed);
}

/** `cpu.max`: quota and period in microseconds. */
export function parseCpuMax(text: string): { readonly quotaUs: number | null; readonly periodUs: number } | undefined {
  const match = /^(max|\d+) (\d+)\s*$/.exec(text);
  if (match === null) return undefined;
  return { quotaUs: match[1] === 'max' ? null : Number(match[1]), periodUs: Number(match[2]) };
}

/** `name number` lines: memory.events, memory.oom_control, cpu.stat, cgroup.events, pids.events. Other lines are skipped. */
export function parseFlatKeyed(text: string): ReadonlyMap<string, number> {
  const values = new Map<string, number>();
  for (const [, name = '', value] of text.matchAll(/^(\S+) (\d+)$/gm)) values.set(name, Number(value));
  return values;
}

/** cgroup.procs: process ids; 0 stands for a process that the reader's pid namespace doesn't show. */
export function parseMembers(text: string): readonly number[] {
  return text
    .split('\n')
    .filter((line) => /^\d+$/.test(line))
    .map(Number);
}

/** cgroup.controllers and cgroup.subtree_control. */
export function parseControllers(text: string): readonly string[] {
  return text.trim() === '' ? [] : text.trim().split(/\s+/);
}
