/** One line of /proc/<pid>/mountinfo (proc_pid_mountinfo(5)). */
export interface MountLine {
  readonly id: number;
  readonly parent: number;
  /** Root of the mount within its filesystem. */
  readonly root: string;
  readonly mountPoint: string;
  readonly options: readonly string[];
  /** True when the mount shares or receives propagation. */
  readonly propagates: boolean;
  readonly fsType: string;
  readonly source: string;
  readonly superOptions: readonly string[];
}

/** Undoes the octal escapes of mountinfo: space, tab, newline, backslash. */
function unescape(text: string): string {
  return text.includes('\\') ? text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8))) : text;
}

/** Parses mountinfo. Lines that don't have its form are left out: a table that lacks a line can't equal the plan. */
export function parseMountinfo(text: string): readonly MountLine[] {
  const lines: MountLine[] = [];
  for (const line of text.split('\n')) {
    const dash = line.indexOf(' - ');
    if (dash < 0) continue;
    const [id, parent, , root, mountPoint, options, ...tags] = line.slice(0, dash).split(' ');
    const [fsType, source, superOptions] = line.slice(dash + 3).split(' ');
    if (root === undefined || mountPoint === undefined || options === undefined || fsType === undefined) continue;
    lines.push({
      id: Number(id),
      parent: Number(parent),
      root: unescape(root),
      mountPoint: unescape(mountPoint),
      options: options.split(','),
      propagates: tags.some((tag) => tag.startsWith('shared:') || tag.startsWith('master:')),
      fsType,
      source: unescape(source ?? ''),
      superOptions: unescape(superOptions ?? '').split(','),
    });
  }
  return lines;
}

/** A mount as the plan states it and as the receipt reads it: `path type ro|rw flags`, flags being the protective ones that are set. */
export function formatMount(mountPoint: string, fsType: string, options: readonly string[]): string {
  const access = options.includes('ro') ? 'ro' : 'rw';
  const flags = ['nosuid', 'nodev', 'noexec'].filter((flag) => options.includes(flag));
  return [mountPoint, fsType, access, ...flags].join(' ');
}

/** Every mount as formatMount gives it, sorted. */
export function summariseTable(lines: readonly MountLine[]): readonly string[] {
  return lines.map((line) => formatMount(line.mountPoint, line.fsType, line.options)).sort();
}

/** Layers of overlay mounts that have an upper directory: mount point and upper (null when it went in as a descriptor). */
export function summariseUppers(lines: readonly MountLine[]): readonly { readonly mount_point: string; readonly upper: string | null }[] {
  return lines
    .filter((line) => line.fsType === 'overlay')
    .flatMap((line) => {
      const upper = line.superOptions.find((option) => option.startsWith('upperdir='))?.slice('upperdir='.length);
      return upper === undefined ? [] : [{ mount_point: line.mountPoint, upper: upper.startsWith('/proc/self/fd/') ? null : upper }];
    })
    .sort((a, b) => (a.mount_point < b.mount_point ? -1 : 1));
}

/** Size limit in bytes of a tmpfs from its super options (`size=1048576k`), or null. */
export function tmpfsBytes(line: MountLine): number | null {
  const match = line.superOptions.map((option) => /^size=([0-9]+)([kmg]?)$/.exec(option)).find((found) => found !== null);
  if (match === undefined) return null;
  const scale = { '': 1, k: 1024, m: 1048576, g: 1073741824 }[match[2] ?? ''];
  return scale === undefined ? null : Number(match[1]) * scale;
}
