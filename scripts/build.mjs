#!/usr/bin/env node
// Bundles the command and the library into dist/.
//   node scripts/build.mjs            dist/job.js, dist/index.js, chunks, data
//   node scripts/build.mjs --types    declarations too, into dist/types
//   node scripts/build.mjs --clean    from an empty dist/
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const DIST = join(ROOT, 'dist');
const CHUNKS = join(DIST, 'chunks');
/** A command that started before this build may still load a chunk of the one before it. */
const CHUNK_KEPT_MS = 3_600_000;

/**
 * better-sqlite3 is bundled but for its compiled part, which is required by its place in the package: its own search
 * (the package `bindings`, a dozen paths) costs a third of the time of opening the store.
 */
const sqliteBinding = {
  name: 'sqlite-binding',
  setup(plugin) {
    const file = 'better-sqlite3/build/Release/better_sqlite3.node';
    plugin.onResolve({ filter: /^bindings$/ }, () => ({ path: 'bindings', namespace: 'sqlite-binding' }));
    plugin.onResolve({ filter: /\.node$/ }, () => ({ path: file, external: true }));
    plugin.onLoad({ filter: /.*/, namespace: 'sqlite-binding' }, () => ({ contents: `module.exports = () => require('${file}');` }));
  },
};

/** Bundles. Rejects with esbuild's own messages. */
export async function build({ types = false, clean = false } = {}) {
  const esbuild = await import('esbuild');
  if (clean) {
    rmSync(DIST, { recursive: true, force: true });
  }
  mkdirSync(CHUNKS, { recursive: true });
  const result = await esbuild.build({
    absWorkingDir: ROOT,
    entryPoints: { job: 'src/cli/job.ts', index: 'src/index.ts' },
    outdir: 'dist',
    chunkNames: 'chunks/[name]-[hash]',
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    packages: 'bundle',
    plugins: [sqliteBinding],
    minifySyntax: true,
    minifyWhitespace: true,
    legalComments: 'none',
    write: false,
    metafile: true,
    logLevel: 'warning',
  });
  // Chunks first: an entry never names a file that isn't there yet.
  const outputs = result.outputFiles.toSorted((a, b) => Number(isEntry(a.path)) - Number(isEntry(b.path)));
  for (const output of outputs) {
    const command = output.path === join(DIST, 'job.js');
    put(output.path, `${command ? '#!/usr/bin/env node\n' : ''}${withRequire(output.text)}`, command ? 0o755 : 0o644);
  }
  removeOldChunks(new Set(outputs.map((output) => output.path)));
  put(join(DIST, 'THIRD-PARTY-LICENSES.txt'), licences(Object.keys(result.metafile.inputs)), 0o644);
  put(join(DIST, 'presets.json'), await presets(esbuild), 0o644);
  if (types) {
    declarations();
  }
  return result.metafile;
}

/** policies/ as one JSON file, compiled by the very code that would read it: a run without files of its own parses no YAML. */
async function presets(esbuild) {
  const folder = join(ROOT, 'build');
  const compiler = join(folder, `presets-${process.pid}.mjs`);
  mkdirSync(folder, { recursive: true });
  await esbuild.build({
    absWorkingDir: ROOT,
    entryPoints: ['src/policy/load.host.ts'],
    outfile: compiler,
    bundle: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    packages: 'external',
    logLevel: 'warning',
  });
  try {
    const { formatPresets } = await import(pathToFileURL(compiler).href);
    return await formatPresets(join(ROOT, 'policies'));
  } finally {
    rmSync(compiler, { force: true });
  }
}

function isEntry(path) {
  return dirname(path) === DIST;
}

/** Bundled CommonJS packages call require() for Node's own modules; an ES module has none. */
function withRequire(text) {
  return text.includes('var __require=')
    ? `import{createRequire as __createRequire}from"node:module";const require=__createRequire(import.meta.url);${text}`
    : text;
}

function put(path, text, mode) {
  if (existsSync(path) && readFileSync(path, 'utf8') === text) {
    return;
  }
  const partial = `${path}.${process.pid}`;
  writeFileSync(partial, text);
  chmodSync(partial, mode);
  renameSync(partial, path);
}

function removeOldChunks(kept) {
  for (const name of readdirSync(CHUNKS)) {
    const path = join(CHUNKS, name);
    if (!kept.has(path) && Date.now() - statSync(path).mtimeMs > CHUNK_KEPT_MS) {
      rmSync(path);
    }
  }
}

/** The licence texts of everything that was bundled, as their terms ask. */
function licences(inputs) {
  const packages = new Set(inputs.map((input) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input)?.[1]).filter((name) => name !== undefined));
  const parts = [...packages].sort().map((name) => {
    const folder = join(ROOT, 'node_modules', name);
    const { version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    return `${name} ${version} (${license})\n\n${file === undefined ? '' : readFileSync(join(folder, file), 'utf8').trim()}\n`;
  });
  return `dist/ contains code of these packages.\n\n${parts.join(`\n${'-'.repeat(80)}\n\n`)}`;
}

function declarations() {
  const out = join(DIST, 'types');
  rmSync(out, { recursive: true, force: true });
  const tsc = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');
  const run = spawnSync(process.execPath, [tsc, '-p', join(ROOT, 'tsconfig.types.json')], { cwd: ROOT, stdio: 'inherit' });
  if (run.status !== 0) {
    throw new Error('tsc could not write the declarations');
  }
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const flags = new Set(process.argv.slice(2));
  const metafile = await build({ types: flags.has('--types'), clean: flags.has('--clean') }).catch((error) => {
    console.error(error instanceof Error ? error.message : error);
    process.exit(1);
  });
  if (flags.has('--sizes')) {
    for (const [path, output] of Object.entries(metafile.outputs).toSorted((a, b) => b[1].bytes - a[1].bytes)) {
      console.log(`${String(output.bytes).padStart(9)}  ${relative(ROOT, path)}  ${basename(output.entryPoint ?? '')}`);
    }
  }
}
