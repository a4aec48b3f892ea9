import { lstatSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { SessionClosing } from '../../src/executor/executor.ts';

/** Entries of the account; the rest are in the totals. */
const MOST_NAMED = 5;

/** Counts what lies in a private home's upper layer: regular files and their bytes, by top directory. Never follows links. null: it can't be read. */
export function countDiscarded(upper: string): SessionClosing['discarded'] {
  const tops = new Map<string, number>();
  let files = 0;
  let bytes = 0;
  const visit = (directory: string, top: string | undefined): void => {
    for (const entry of readdirSync(directory, { withFileTypes: true })) {
      const path = join(directory, entry.name);
      const name = top ?? entry.name;
      if (entry.isDirectory()) visit(path, name);
      else if (entry.isFile()) {
        files++;
        bytes += lstatSync(path).size;
        tops.set(name, (tops.get(name) ?? 0) + 1);
      }
    }
  };
  try {
    visit(upper, undefined);
  } catch {
    return null;
  }
  const top = [...tops]
    .sort((a, b) => b[1] - a[1])
    .slice(0, MOST_NAMED)
    .map(([name, count]) => ({ path: `~/${name}`, files: count }));
  return { files, bytes, top };
}
