import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { onTestFinished } from 'vitest';

/** Unpacks a tree that is kept as one text (`== path` starts a file, `== path/` is a directory) into a directory that goes with the test. */
export function unpackTree(file: string): string {
  const root = mkdtempSync(join(tmpdir(), 'proofrun-tree-'));
  onTestFinished(() => rmSync(root, { recursive: true, force: true }));
  for (const part of readFileSync(file, 'utf8').split(/^== /m).slice(1)) {
    const [path = '', ...lines] = part.split('\n');
    if (path.endsWith('/')) {
      mkdirSync(join(root, path), { recursive: true });
      continue;
    }
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), lines.join('\n'));
  }
  return root;
}
