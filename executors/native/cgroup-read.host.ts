import { readFileSync, readdirSync, statSync, type Stats } from 'node:fs';

/** Files of control groups come and go with their groups: what can't be read is `otherwise`. */
export function readOr(path: string, otherwise: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return otherwise;
  }
}

export function exists(path: string): boolean {
  return statOr(path) !== undefined;
}

/** Undefined when it is gone, or behind a directory that this user may not enter. */
export function statOr(path: string): Stats | undefined {
  try {
    return statSync(path);
  } catch {
    return undefined;
  }
}

/** Names; none when the directory is gone. */
export function subdirectories(path: string): readonly string[] {
  try {
    return readdirSync(path, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name);
  } catch {
    return [];
  }
}
