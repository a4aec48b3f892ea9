#!/usr/bin/env node
// npm run demo: set-up, build, then the story of examples/hostile-package.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ROOT, handOver, prepare } from './setup.mjs';

await prepare();
const run = spawnSync(process.execPath, [join(ROOT, 'examples', 'hostile-package', 'story.mjs'), ...process.argv.slice(2)], {
  stdio: ['ignore', 'inherit', 'inherit'],
});
handOver();
process.exit(run.status ?? 1);
