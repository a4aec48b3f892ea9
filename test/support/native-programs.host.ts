import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll } from 'vitest';

const CLONE = resolve(import.meta.dirname, '../..');

let folder: string | undefined;
const made: string[] = [];
afterAll(() => {
  for (const path of made.splice(0)) rmSync(path, { recursive: true, force: true });
  folder = undefined;
});

/** A directory that everybody may read and only the tests' own user may write; removed after the file's tests. */
export function publicDirectory(): string {
  if (folder === undefined) {
    // Not TMPDIR: every directory above has to be open to the ordinary user.
    folder = mkdtempSync('/tmp/proofrun-programs-');
    chmodSync(folder, 0o755);
    made.push(folder);
  }
  return folder;
}

/** Compiles C with warnings as errors. Returns the program's path; everybody may run it. Throws with the compiler's words. */
export function compileC(name: string, sources: readonly string[], flags: readonly string[] = [], cwd = CLONE): string {
  const output = join(publicDirectory(), name);
  const run = spawnSync('cc', ['-std=gnu11', '-Wall', '-Wextra', '-Werror', '-O1', ...flags, '-o', output, ...sources], { cwd, encoding: 'utf8' });
  if (run.status !== 0) throw new Error(`cc could not compile ${name}: ${run.error === undefined ? run.stderr : String(run.error)}`);
  chmodSync(output, 0o755);
  return output;
}

/** The same for a source that is given as text. */
export function compileText(name: string, text: string, flags: readonly string[] = []): string {
  const output = join(publicDirectory(), name);
  const run = spawnSync('cc', ['-std=gnu11', '-Wall', '-Wextra', '-Werror', '-O1', ...flags, '-o', output, '-x', 'c', '-'], { input: text, encoding: 'utf8' });
  if (run.status !== 0) throw new Error(`cc could not compile ${name}: ${run.error === undefined ? run.stderr : String(run.error)}`);
  chmodSync(output, 0o755);
  return output;
}
