import { join, relative, resolve } from 'node:path';

/** A path of a file, `~` and relative ones made absolute. */
export function fromFile(directory: string, path: string, home: string): string {
  return path === '~' || path.startsWith('~/') ? join(home, path.slice(1)) : resolve(directory, path);
}

/** A source of a secret; the path of a `file:` made absolute. */
export function absoluteSource(from: string, base: { readonly directory: string; readonly home: string }): string {
  return from.startsWith('file:') ? `file:${fromFile(base.directory, from.slice(5), base.home)}` : from;
}

/** A path as it is named to a person: relative to where they stand when it lies below, else whole. */
export function shownPath(path: string, currentDirectory: string): string {
  const shown = relative(currentDirectory, path);
  return shown === '' || shown.startsWith('..') ? path : shown;
}
