import { execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

/** A program and what it needs besides its libraries. */
const DATA: Readonly<Record<string, readonly string[]>> = {
  python3: [pythonLibrary()],
  git: ['/usr/lib/git-core', '/usr/share/git-core'],
};

function pythonLibrary(): string {
  try {
    return execFileSync('/usr/bin/python3', ['-c', 'import sysconfig; print(sysconfig.get_path("stdlib"))'], { encoding: 'utf8' }).trim();
  } catch {
    return '';
  }
}

/** Absolute path of a program, links resolved, those of the system first; undefined when it isn't installed. */
function programPath(name: string): string | undefined {
  for (const directory of ['/usr/bin', '/usr/local/bin', ...(process.env['PATH'] ?? '').split(':')]) {
    const path = join(directory, name);
    // No wrapper scripts: what they name isn't in the image.
    if (existsSync(path) && readFileSync(path).subarray(1, 4).toString() === 'ELF') return realpathSync(path);
  }
  return undefined;
}

/** Libraries that the dynamic linker names for programs, the linker itself included (ldd(1)). */
function librariesOf(programs: readonly string[]): readonly string[] {
  try {
    const text = execFileSync('ldd', [...programs], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    return [...text.matchAll(/(?:=> )?(\/[^\s]+) \(0x/g)].map(([, path = '']) => path);
  } catch {
    // A static program.
    return [];
  }
}

/**
 * Writes a tar archive of a root filesystem with busybox and the given programs of this machine (node, python3, git), their libraries and
 * their data, for images with more than a shell and no registry. Returns the names that could not be found.
 */
export function packMachineRootfs(archive: string, programs: readonly string[]): readonly string[] {
  const root = mkdtempSync(join(tmpdir(), 'proofrun-rootfs-'));
  const missing: string[] = [];
  const copy = (path: string, at = path): void => {
    mkdirSync(join(root, dirname(at)), { recursive: true });
    copyFileSync(realpathSync(path), join(root, at));
  };
  try {
    for (const directory of ['bin', 'usr/bin', 'etc', 'proc', 'sys', 'dev', 'root', 'tmp']) mkdirSync(join(root, directory), { recursive: true });
    copy('/bin/busybox');
    for (const applet of ['sh', 'ls', 'cat', 'echo', 'rm', 'mkdir', 'env', 'id', 'sleep']) symlinkSync('/bin/busybox', join(root, 'bin', applet));
    writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n');
    writeFileSync(join(root, 'etc/group'), 'root:x:0:\nnogroup:x:65534:\n');
    for (const name of programs) {
      const path = programPath(name);
      if (path === undefined) {
        missing.push(name);
        continue;
      }
      copy(path, `/usr/bin/${name}`);
      const data = (DATA[name] ?? []).filter((folder) => folder !== '' && existsSync(folder));
      for (const folder of data) {
        mkdirSync(join(root, dirname(folder)), { recursive: true });
        execFileSync('cp', ['-a', folder, join(root, dirname(folder))]);
        for (const unneeded of ['test', 'idlelib', 'config-3.11-x86_64-linux-gnu', '__pycache__']) {
          rmSync(join(root, folder, unneeded), { recursive: true, force: true });
        }
      }
      const extensions = data.map((folder) => join(folder, 'lib-dynload')).filter((folder) => existsSync(folder));
      const files = extensions.flatMap((folder) => readdirSync(folder).map((file) => join(folder, file)));
      for (const library of new Set(librariesOf([path, ...files]))) if (!existsSync(join(root, library))) copy(library);
    }
    execFileSync('tar', ['--numeric-owner', '--owner=0', '--group=0', '-C', root, '-cf', archive, '.']);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
  return missing;
}
