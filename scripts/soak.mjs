#!/usr/bin/env node
// npm run soak [-- SECONDS]: two, four and eight processes contend for one store and are killed, for a minute in all.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from './setup.mjs';

const seconds = process.argv[2] ?? '60';
const run = spawnSync(process.execPath, [join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run', '--project', 'fault', 'test/fault/control-contention.test.ts'], {
  cwd: ROOT,
  stdio: 'inherit',
  env: { ...process.env, PROOFRUN_SOAK_SECONDS: seconds },
});
process.exit(run.status ?? 1);
