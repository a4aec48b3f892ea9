#!/usr/bin/env node
// Runs when the package is installed from a registry: where no prebuilt shim fits this machine, compiles it.
// In a clone it does nothing; scripts/setup.mjs builds there.
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildShim } from './build-shim.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const clone = existsSync(join(root, 'src', 'cli'));
const fits = existsSync(join(root, 'prebuilt', `linux-${process.arch}`, 'proofrun-shim'));

if (!clone && !fits && process.platform === 'linux') {
  const { failed } = buildShim({ native: true });
  if (failed.length > 0) {
    console.error(`proofrun: no prebuilt shim fits linux-${process.arch}, and it could not be compiled.\n${failed.join('\n')}`);
    process.exit(1);
  }
}
