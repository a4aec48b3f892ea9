#!/usr/bin/env node
// The control runtime with real fsync, against the bare cost of its commits in the same run.
//   node bench/runtime.mjs [--steps 300] [--list 100000] [--open 1000]
import { build } from 'esbuild';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const ROOT = resolve(import.meta.dirname, '..');
const option = (name, otherwise) => {
  const at = process.argv.indexOf(`--${name}`);
  return at === -1 ? otherwise : Number(process.argv[at + 1]);
};
const folder = join(ROOT, 'build', `bench-runtime-${process.pid}`);
mkdirSync(folder, { recursive: true });
try {
  const program = join(folder, 'runtime.mjs');
  await build({
    entryPoints: [join(ROOT, 'bench/runtime-arms.ts')],
    outfile: program,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    packages: 'external',
    logLevel: 'error',
  });
  const { measure } = await import(pathToFileURL(program).href);
  const state = mkdtempSync(join(folder, 'state-'));
  for (const line of await measure({ state, steps: option('steps', 300), list: option('list', 100_000), open: option('open', 1000) })) console.log(line);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
