import { join, relative, resolve } from 'node:path';

/** A path of a file, `~` and relative ones made absolute. */
export function fromFile(directory: string, path: string, home: string): string {
  return path === '~' || path.startsWith('~/') ? join(home, path.slice(1)) : resolve(directory, path);
}

/** A path as it is named to a person: relative to where they stand when it lies below, else whole. */
export function shownPath(path: string, currentDirectory: string): string {
  const shown = relative(currentDirectory, path);
  return shown === '' || shown.startsWith('..') ? path : shown;
}
