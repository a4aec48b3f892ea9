#!/usr/bin/env node
// npm test: set-up, build, every test. Words after `--` go to vitest (a file, -t NAME, --project unit).
import { spawnSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, handOver, prepare } from './setup.mjs';
import { readSummary } from './test-summary.mjs';

await prepare({ tests: true });
rmSync(join(ROOT, 'build', 'test-results.json'), { force: true });
const vitest = join(ROOT, 'node_modules', 'vitest', 'vitest.mjs');
const run = spawnSync(process.execPath, [vitest, 'run', ...process.argv.slice(2)], { cwd: ROOT, stdio: ['ignore', 'inherit', 'inherit'] });
const summary = readSummary();
console.log(summary.line);
handOver();
process.exit(run.status === 0 && summary.failed === 0 && summary.passed > 0 ? 0 : 1);
