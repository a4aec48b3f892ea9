#!/usr/bin/env node
// Writes docs/reference/*.md from the tables and schemas that the program itself uses.
//   node scripts/gen-docs.mjs            writes what is out of step
//   node scripts/gen-docs.mjs --check    writes nothing; exits with 1 and names each page that is out of step
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from 'esbuild';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const REFERENCE = join(ROOT, 'docs', 'reference');

/** The pages by file name. The generator is TypeScript, which Node 20 doesn't run: it is bundled first. */
export async function pages() {
  const bundle = join(ROOT, 'build', `gen-docs.${process.pid}.mjs`);
  mkdirSync(dirname(bundle), { recursive: true });
  await build({
    entryPoints: [join(ROOT, 'scripts', 'gen-docs.ts')],
    outfile: bundle,
    bundle: true,
    platform: 'node',
    format: 'esm',
    packages: 'external',
    logLevel: 'error',
  });
  try {
    const { makePages } = await import(pathToFileURL(bundle).href);
    return await makePages(ROOT);
  } finally {
    rmSync(bundle, { force: true });
  }
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const check = process.argv.includes('--check');
  const stale = [];
  mkdirSync(REFERENCE, { recursive: true });
  for (const [name, text] of await pages()) {
    const path = join(REFERENCE, name);
    if (existsSync(path) && readFileSync(path, 'utf8') === text) {
      continue;
    }
    stale.push(`docs/reference/${name}`);
    if (!check) {
      writeFileSync(path, text);
    }
  }
  for (const name of stale) {
    console.log(check ? `out of step: ${name}; run node scripts/gen-docs.mjs` : `wrote ${name}`);
  }
  process.exit(check && stale.length > 0 ? 1 : 0);
}
