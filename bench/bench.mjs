// Measures side by side, in one run on this machine. `npm run bench`, or `npm run bench -- --rounds 10 --jobs 20 --files 2000`.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { arch, cpus, loadavg, release, tmpdir, totalmem } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { startOnDocker } from './docker.mjs';
import { libraryLaunch } from './library.mjs';
import { table } from './measure.mjs';
import { applyOf, stagedWork } from './stage.mjs';
import { startInTree, startOfTrue } from './start.mjs';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '30' },
    jobs: { type: 'string', default: '100' },
    files: { type: 'string', default: '20000' },
    // Numbers of changed files; the long form adds 100000.
    changes: { type: 'string', default: '10,1000,10000' },
    only: { type: 'string', default: 'start,stage' },
  },
});
const rounds = Number(values.rounds);
const wanted = new Set(values.only.split(','));

const { createProofrun } = await import('../dist/index.mjs');
const scratch = mkdtempSync(join(tmpdir(), 'proofrun-bench-'));
try {
  const workspace = join(scratch, 'workspace');
  mkdirSync(workspace);
  const env = { PATH: process.env.PATH, HOME: join(scratch, 'home'), LANG: 'C.UTF-8', XDG_STATE_HOME: join(scratch, 'state') };
  mkdirSync(env.HOME);
  const job = [process.execPath, join(ROOT, 'dist', 'job.js')];

  const machine = describeMachine();
  console.log(
    `${machine.processor}, ${machine.processors} processors, ${machine.memory_gib} GiB, Linux ${machine.kernel}, Node ${machine.node}, ${machine.bubblewrap}, load ${machine.load}\n`,
  );
  const results = {};
  if (wanted.has('start')) {
    const start = await startOfTrue({ job, workspace, env, rounds });
    console.log(table(`Start of \`true\` (${rounds} rounds, in turn)`, start));
    const docker = await startOnDocker({ job, workspace, env: { ...env, ...engine() }, rounds: Math.ceil(rounds / 2) });
    if (docker === undefined) console.log('No engine with the image proofrun-base answers (DOCKER_HOST): `docker run` is not compared.\n');
    else console.log(table(`Start of \`true\` in a container (${Math.ceil(rounds / 2)} rounds, in turn)`, docker));
    const library = await libraryLaunch({ createProofrun, scratch, workspace, env, jobs: Number(values.jobs) });
    console.log(table(`Launch from one process (${values.jobs} each, in turn)`, library));
    const tree = await startInTree({ job, scratch, env, rounds: Math.ceil(rounds / 2), files: Number(values.files) });
    console.log(table('Start by the size of the workspace', tree));
    Object.assign(results, { start, ...(docker === undefined ? {} : { docker }), library, tree });
  }
  if (wanted.has('stage')) {
    results.apply = {};
    for (const files of values.changes.split(',').map(Number)) {
      const list = applyOf({ job, scratch, env, files, rounds: Math.max(1, Math.min(5, Math.ceil(rounds / 6))) });
      console.log(table(`Changes of ${files.toLocaleString('en')} files`, list));
      results.apply[files] = list;
    }
    results.work = stagedWork({ job, scratch, env, files: 10_000, rounds: Math.max(3, Math.ceil(rounds / 3)) });
    for (const [what, list] of results.work) console.log(table(`Work in a workspace of 10,000 files: ${what}`, list));
  }
  save({ machine, ...results });
} finally {
  rmSync(scratch, { recursive: true, force: true });
}

function engine() {
  return process.env.DOCKER_HOST === undefined ? {} : { DOCKER_HOST: process.env.DOCKER_HOST };
}

function describeMachine() {
  return {
    processor: cpus()[0]?.model.trim() ?? 'unknown',
    processors: cpus().length,
    memory_gib: Math.round(totalmem() / 2 ** 30),
    kernel: release(),
    arch: arch(),
    node: process.versions.node,
    bubblewrap: execFileSync('bwrap', ['--version'], { encoding: 'utf8' }).trim(),
    load: loadavg()[0].toFixed(1),
  };
}

function save(results) {
  const folder = join(ROOT, 'bench', 'results');
  mkdirSync(folder, { recursive: true });
  const at = new Date().toISOString();
  const file = join(folder, `${at.replaceAll(/[:.]/g, '-')}.json`);
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  writeFileSync(file, `${JSON.stringify({ version, at, ...results }, null, 2)}\n`);
  console.log(`written: ${file}`);
}
