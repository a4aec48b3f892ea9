import { accessSync, constants, lstatSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/** Entries that a layer repeats with the job's own ids. Paths are relative to the staged root. */
export interface Shadow {
  readonly directories: readonly { readonly path: string; readonly mode: number }[];
  readonly files: readonly { readonly path: string; readonly mode: number }[];
  /** Absolute paths that stay as they are: the job can read them as before, and not change them. */
  readonly notWritable: readonly string[];
}

export const NO_SHADOW: Shadow = { directories: [], files: [], notWritable: [] };

/** Larger files aren't copied at a start. */
const LARGEST_FILE_BYTES = 1 << 20;
const MOST_FILES = 1000;
const MOST_BYTES = 32 << 20;

/**
 * In a user namespace with a single id, whatever belongs to another uid or gid can't be changed (EOVERFLOW in user_namespaces(7) terms: its ids aren't
 * mapped). Directories that the caller may write are repeated with the same mode and the job's own ids, and small files in them are copied.
 * Costs one readdir for each such directory and one lstat for each entry in it.
 */
export function shadowOf(root: string, foreign: readonly string[], uid: number, gid: number, isHidden: (path: string) => boolean): Shadow {
  const directories: { path: string; mode: number }[] = [];
  const files: { path: string; mode: number }[] = [];
  const notWritable: string[] = [];
  let bytes = 0;
  for (const directory of foreign) {
    if (isHidden(directory) || !mayWrite(directory)) continue;
    directories.push({ path: directory.slice(root.length + 1), mode: lstatSync(directory).mode & 0o1777 });
    for (const name of readdirSync(directory)) {
      const path = join(directory, name);
      if (isHidden(path)) continue;
      const facts = lstatSync(path, { throwIfNoEntry: false });
      if (facts === undefined || facts.isDirectory() || (facts.uid === uid && facts.gid === gid)) continue;
      const fits = facts.isFile() && facts.nlink === 1 && facts.size <= LARGEST_FILE_BYTES && files.length < MOST_FILES && bytes + facts.size <= MOST_BYTES;
      if (!fits || !mayRead(path)) {
        notWritable.push(path);
        continue;
      }
      bytes += facts.size;
      files.push({ path: path.slice(root.length + 1), mode: facts.mode & 0o777 });
    }
  }
  return { directories, files, notWritable };
}

function may(path: string, right: number): boolean {
  try {
    accessSync(path, right);
    return true;
  } catch {
    return false;
  }
}
const mayWrite = (path: string): boolean => may(path, constants.W_OK | constants.X_OK | constants.R_OK);
const mayRead = (path: string): boolean => may(path, constants.R_OK);
