import type { Readable } from 'node:stream';
import { pack } from 'tar-stream';

/** The static busybox of a base image and the paths under which its applets are found (`busybox --list-full`). */
export interface BusyboxFiles {
  readonly program: Buffer;
  readonly applets: readonly string[];
}

const DIRECTORIES: readonly (readonly [string, number])[] = [
  ['bin', 0o755],
  ['dev', 0o755],
  ['etc', 0o755],
  ['home', 0o755],
  ['proc', 0o555],
  ['root', 0o700],
  ['run', 0o755],
  ['sbin', 0o755],
  ['sys', 0o555],
  ['tmp', 0o1777],
  ['usr', 0o755],
  ['usr/bin', 0o755],
  ['usr/sbin', 0o755],
  ['var', 0o755],
  ['var/tmp', 0o1777],
];

const FILES: readonly (readonly [string, string])[] = [
  ['etc/group', 'root:x:0:\nnogroup:x:65534:\n'],
  ['etc/hosts', '127.0.0.1 localhost\n::1 localhost\n'],
  ['etc/nsswitch.conf', 'passwd: files\ngroup: files\nhosts: files dns\n'],
  ['etc/passwd', 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n'],
];

/** A path that an applet may have: nothing of it leaves the directories above. */
const APPLET = /^(?:bin|sbin|usr\/bin|usr\/sbin)\/[A-Za-z0-9_.[+-]+$/;

/** Paths of the links, in order; without busybox itself. */
export function appletPaths(listed: readonly string[]): readonly string[] {
  const plain = listed.map((path) => path.replace(/^\//, '')).filter((path) => APPLET.test(path) && path !== 'bin/busybox');
  return [...new Set(plain)].sort();
}

/**
 * A small root filesystem as a tar stream: busybox, a link for each applet, empty mount points, the few files that programs look for.
 * The same input gives the same bytes: every time is 0, every owner root.
 */
export function baseRootfs({ program, applets }: BusyboxFiles): Readable {
  const tar = pack();
  const same = { uid: 0, gid: 0, mtime: new Date(0) };
  for (const [name, mode] of DIRECTORIES) tar.entry({ ...same, name, mode, type: 'directory' });
  for (const [name, text] of FILES) tar.entry({ ...same, name, mode: 0o644 }, text);
  tar.entry({ ...same, name: 'bin/busybox', mode: 0o755 }, program);
  for (const name of appletPaths(applets)) tar.entry({ ...same, name, mode: 0o777, type: 'symlink', linkname: '/bin/busybox' });
  tar.finalize();
  return tar as unknown as Readable;
}
