#!/usr/bin/env node
// npm run bench: set-up, build, then bench/bench.mjs. Words after `--` are its options.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ROOT, handOver, prepare } from './setup.mjs';

await prepare();
const run = spawnSync(process.execPath, [join(ROOT, 'bench', 'bench.mjs'), ...process.argv.slice(2)], { stdio: ['ignore', 'inherit', 'inherit'] });
handOver();
process.exit(run.status ?? 1);
