import { existsSync, lstatSync, readdirSync, realpathSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

/** Directories beside a bin directory that a toolchain consists of. Anything else there (configuration, credentials) is left out. */
const TOOLCHAIN_PARTS = [
  'bin',
  'lib',
  'lib64',
  'libexec',
  'share',
  'include',
  'shims',
  'versions',
  'toolchains',
  'plugins',
  'candidates',
  'completions',
  'etc',
  'ssl',
  'pkg',
  'src',
];
/** Toolchain homes that a launcher on PATH leads to, by the name of its directory. */
const LAUNCHER_HOMES: Readonly<Record<string, readonly string[]>> = { '.cargo': ['.rustup/toolchains', '.rustup/settings.toml', '.rustup/update-hashes'] };
const BIN_NAMES = new Set(['bin', 'shims', 'sbin', 'condabin']);
const within = (path: string, root: string): boolean => path === root || root === '/' || path.startsWith(`${root}/`);

/** What PATH reaches outside the system directories: the directories of programs, and the parts of their toolchains beside them. */
export function toolchainPaths(system: readonly string[], pathVariable: string, workspace: string, home: string): readonly string[] {
  const found = new Set<string>();
  const add = (path: string): void => {
    if (existsSync(path)) found.add(path);
  };
  for (const entry of pathVariable.split(':')) {
    if (!entry.startsWith('/') || system.some((root) => within(entry, root)) || within(entry, workspace)) continue;
    if (!existsSync(entry) || entry === home || entry === '/') continue;
    let real: string;
    try {
      real = realpathSync(entry);
    } catch {
      continue;
    }
    for (const directory of new Set([entry, real])) {
      const parent = dirname(directory);
      if (!BIN_NAMES.has(basename(directory)) || parent === home || parent === '/' || parent === dirname(home)) {
        add(directory);
        continue;
      }
      for (const part of TOOLCHAIN_PARTS) {
        // ~/.local/share and the like hold the data of other programs.
        if (basename(parent) === '.local' && part !== 'bin' && part !== 'lib') continue;
        add(join(parent, part));
      }
      for (const extra of LAUNCHER_HOMES[basename(parent)] ?? []) add(join(dirname(parent), extra));
    }
    // Programs that are links into a toolchain elsewhere.
    for (const name of safeReaddir(entry)) {
      const link = join(entry, name);
      try {
        if (!lstatSync(link).isSymbolicLink()) continue;
        const target = realpathSync(link);
        if (system.some((root) => within(target, root)) || within(target, workspace) || [...found].some((root) => within(target, root))) continue;
        const directory = dirname(target);
        const parent = dirname(directory);
        if (BIN_NAMES.has(basename(directory)) && parent !== home && parent !== '/') for (const part of TOOLCHAIN_PARTS) add(join(parent, part));
        else add(target);
      } catch {
        // A dangling link is no program.
      }
    }
  }
  return [...found];
}

function safeReaddir(path: string): readonly string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}
