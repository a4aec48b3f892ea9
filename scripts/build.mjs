#!/usr/bin/env node
// Bundles the command and the library into dist/.
//   node scripts/build.mjs            dist/job.js (the command), dist/index.mjs (the library), chunks, data
//   node scripts/build.mjs --types    declarations too, into dist/types
//   node scripts/build.mjs --clean    from an empty dist/
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { bundleCommand, dockerodeParts, sqliteBinding } from './bundle-command.mjs';
import { warmCache } from './warm-cache.mjs';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const DIST = join(ROOT, 'dist');
const CHUNKS = join(DIST, 'chunks');
/** A command that started before this build may still load a chunk of the one before it. */
const CHUNK_KEPT_MS = 3_600_000;

/** Bundles. Rejects with esbuild's own messages. Returns the sizes: path below dist/ -> bytes. */
export async function build({ types = false, clean = false } = {}) {
  const esbuild = await import('esbuild');
  if (clean) {
    rmSync(DIST, { recursive: true, force: true });
  }
  mkdirSync(CHUNKS, { recursive: true });
  const shared = {
    absWorkingDir: ROOT,
    platform: 'node',
    target: 'node20',
    minifySyntax: true,
    minifyWhitespace: true,
    legalComments: 'none',
    logLevel: 'warning',
  };
  const modules = await bundleLibrary(esbuild, shared);
  const command = await bundleCommand(esbuild, shared);
  const files = [
    { path: 'package.json', text: '{ "type": "commonjs" }\n', mode: 0o644 },
    { path: 'presets.json', text: await presets(esbuild), mode: 0o644 },
    { path: 'THIRD-PARTY-LICENSES.txt', text: licences([...modules.inputs, ...command.inputs]), mode: 0o644 },
    ...modules.files,
    ...command.files,
  ];
  for (const { path, text, mode } of files) {
    put(join(DIST, path), text, mode);
  }
  removeOldChunks(new Set(files.map(({ path }) => join(DIST, path))));
  warmCache();
  if (types) {
    declarations();
  }
  return new Map(files.map(({ path, text }) => [path, text.length]));
}

/** The library: ES modules, split where the sources import on demand. Chunks first: an entry never names a file that isn't there yet. */
async function bundleLibrary(esbuild, shared) {
  const result = await esbuild.build({
    ...shared,
    entryPoints: { index: 'src/index.ts' },
    outdir: 'dist',
    outExtension: { '.js': '.mjs' },
    chunkNames: 'chunks/[name]-[hash]',
    bundle: true,
    splitting: true,
    format: 'esm',
    plugins: [sqliteBinding, dockerodeParts],
    write: false,
    metafile: true,
  });
  const files = result.outputFiles.map(({ path, text }) => ({ path: relative(DIST, path), text: withRequire(text), mode: 0o644 }));
  return { files: files.toSorted((a, b) => Number(!a.path.includes('/')) - Number(!b.path.includes('/'))), inputs: Object.keys(result.metafile.inputs) };
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
    const current = kept.has(path) || kept.has(path.replace(/\.[^/]*\.cache$/, ''));
    if (!current && Date.now() - statSync(path).mtimeMs > CHUNK_KEPT_MS) {
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
  mkdirSync(out, { recursive: true });
  const tsc = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');
  const run = spawnSync(process.execPath, [tsc, '-p', join(ROOT, 'tsconfig.types.json')], { cwd: ROOT, stdio: 'inherit' });
  if (run.status !== 0) {
    throw new Error('tsc could not write the declarations');
  }
  put(join(out, 'package.json'), '{ "type": "module" }\n', 0o644);
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const flags = new Set(process.argv.slice(2));
  const sizes = await build({ types: flags.has('--types'), clean: flags.has('--clean') }).catch((error) => {
    console.error(error instanceof Error ? error.message : error);
    process.exit(1);
  });
  if (flags.has('--sizes')) {
    for (const [path, bytes] of [...sizes].sort((a, b) => b[1] - a[1])) {
      console.log(`${String(bytes).padStart(9)}  ${path}`);
    }
  }
}
