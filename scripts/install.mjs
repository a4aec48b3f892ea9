#!/usr/bin/env node
// Runs when the package is installed from a registry: where no prebuilt shim fits this machine, compiles it; then makes the code
// cache for this Node. In a clone it does nothing; scripts/setup.mjs builds there.
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const clone = existsSync(join(root, 'src', 'cli'));

if (!clone && process.platform === 'linux') {
  if (!existsSync(join(root, 'prebuilt', `linux-${process.arch}`, 'proofrun-shim'))) {
    await compileShim();
  }
  if (existsSync(join(root, 'dist', 'job.js'))) {
    const { warmCache } = await import('./warm-cache.mjs');
    warmCache();
  }
}

async function compileShim() {
  const { buildShim } = await import('./build-shim.mjs');
  const { failed } = buildShim({ native: true });
  if (failed.length > 0) {
    console.error(`proofrun: no prebuilt shim fits linux-${process.arch}, and it could not be compiled.\n${failed.join('\n')}`);
    process.exit(1);
  }
}
