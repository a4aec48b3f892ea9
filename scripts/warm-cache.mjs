#!/usr/bin/env node
// Makes the code cache of dist/job.js for the Node that runs this: what V8 compiles in the course of a `job run`, saved next to the
// program. Runs after a build and when the package is installed. Without it, or with another Node, a start takes a little longer.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Script } from 'node:vm';

const SELF = fileURLToPath(import.meta.url);
const DIST = join(dirname(dirname(SELF)), 'dist');
const LIMIT_MS = 30_000;

/** The program that dist/job.js loads, and the cache that it looks for. */
function files() {
  const name = /chunks\/(job-[0-9a-f]{12}\.cjs)/.exec(readFileSync(join(DIST, 'job.js'), 'utf8'))?.[1];
  const program = join(DIST, 'chunks', name);
  return { program, cache: `${program}.${process.versions.v8}-${process.arch}.cache` };
}

/** Does nothing when the cache is there. A run that is refused on this machine still leaves a cache of what it compiled. */
export function warmCache() {
  const { cache } = files();
  if (existsSync(cache)) {
    return;
  }
  const scratch = mkdtempSync(join(tmpdir(), 'proofrun-warm-'));
  try {
    const workspace = join(scratch, 'workspace');
    mkdirSync(workspace);
    const env = { PATH: process.env.PATH, HOME: scratch, XDG_STATE_HOME: join(scratch, 'state'), XDG_CONFIG_HOME: join(scratch, 'config') };
    spawnSync(process.execPath, [SELF, '--run'], { cwd: workspace, env, stdio: 'ignore', timeout: LIMIT_MS });
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** In a process of its own: runs the program as dist/job.js does, and saves what was compiled when it ends. */
function runAndSave() {
  const { program, cache } = files();
  const script = new Script(readFileSync(program, 'latin1'), { filename: program });
  process.argv = [process.execPath, join(DIST, 'job.js'), 'run', '--safe', '--', 'true'];
  process.on('exit', () => {
    const partial = `${cache}.${process.pid}`;
    writeFileSync(partial, script.createCachedData());
    renameSync(partial, cache);
  });
  const module = { exports: {} };
  script.runInThisContext()(module.exports, createRequire(program), module, program, pathToFileURL(program).href);
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  if (process.argv.includes('--run')) {
    runAndSave();
  } else {
    warmCache();
  }
}
