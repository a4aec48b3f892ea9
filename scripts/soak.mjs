#!/usr/bin/env node
// npm run soak [-- SECONDS]: a process is killed at every moment of a run in turn; then two, four and eight processes contend for one store and are
// killed, for a minute in all.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from './setup.mjs';

const seconds = process.argv[2] ?? '60';
const run = spawnSync(
  process.execPath,
  [join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run', '--project', 'fault', 'test/fault/control-crash.test.ts', 'test/fault/control-contention.test.ts'],
  {
    cwd: ROOT,
    stdio: 'inherit',
    env: { ...process.env, PROOFRUN_SOAK_SECONDS: seconds },
  },
);
process.exit(run.status ?? 1);
