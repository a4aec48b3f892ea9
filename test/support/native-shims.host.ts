import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { publicDirectory } from './native-programs.host.ts';
import type { ShimVariant } from './native-variants.ts';

const SOURCES = resolve(import.meta.dirname, '../../executors/shim');

let objects: string | undefined;

function cc(args: readonly string[], cwd: string): void {
  const run = spawnSync('cc', ['-std=gnu11', '-Wall', '-Wextra', '-Wno-unused-function', '-O0', ...args], { cwd, encoding: 'utf8' });
  if (run.status !== 0) throw new Error(`cc ${args.join(' ')}: ${run.error === undefined ? run.stderr : String(run.error)}`);
}

/** A copy of the sources, compiled once for a test file; a variant compiles its own unit again and links. */
function compiled(): string {
  if (objects !== undefined) return objects;
  const folder = join(publicDirectory(), 'shim');
  mkdirSync(folder);
  for (const name of readdirSync(SOURCES).filter((file) => /\.[ch]$/.test(file))) copyFileSync(join(SOURCES, name), join(folder, name));
  cc(['-c', ...readdirSync(folder).filter((name) => name.endsWith('.c'))], folder);
  objects = folder;
  return folder;
}

/** Builds a variant. Throws when an edit doesn't fit the source once: then the variant would be the product. */
export function buildVariant(variant: Pick<ShimVariant, 'how' | 'file' | 'edits'>): string {
  const folder = compiled();
  let source = readFileSync(join(folder, variant.file), 'utf8');
  for (const [from, to] of variant.edits) {
    if (source.split(from).length !== 2) throw new Error(`${variant.file} has this ${source.split(from).length - 1} times: ${from}`);
    source = source.replace(from, () => to);
  }
  const name = variant.how.replaceAll(/[^a-z0-9]+/gi, '-');
  writeFileSync(join(folder, `${name}.c`), source);
  cc(['-c', `${name}.c`], folder);
  const units = readdirSync(SOURCES)
    .filter((file) => file.endsWith('.c') && file !== variant.file)
    .map((file) => file.replace(/c$/, 'o'));
  const output = join(publicDirectory(), `shim-${name}`);
  cc(['-static', '-o', output, `${name}.o`, ...units], folder);
  chmodSync(output, 0o755);
  return output;
}
