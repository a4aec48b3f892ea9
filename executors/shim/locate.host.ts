import { accessSync, constants, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ProofrunError } from '../../src/core/errors.ts';

/**
 * Absolute path of the shim for this machine: `prebuilt/linux-<arch>/proofrun-shim` of the package that this code belongs to.
 *
 * `given` is a path that a caller of the library chose (tests: a build that leaves a control out, or one with sanitizers).
 * No environment variable takes part: what a shell, an `.env` file or a job's parent sets must not be able to swap the
 * program that installs the sandbox.
 *
 * Throws ERR_SHIM_MISSING, naming the command that builds it.
 */
export function locateShim(given?: string): string {
  if (given !== undefined) {
    return executable(given, `the shim given by the caller, ${given}, is not an executable file`);
  }
  const root = packageRoot();
  return executable(shimPath(root, process.arch), `no shim for linux-${process.arch} in ${root}`);
}

/** Where a package rooted at `root` keeps the shim for a CPU (`process.arch`). */
export function shimPath(root: string, arch: string): string {
  return join(root, 'prebuilt', `linux-${arch}`, 'proofrun-shim');
}

/**
 * The directory of Proofrun's package.json: three levels up from this file in the sources, one or two from a bundle in dist/.
 * A package.json with another name is never taken for it.
 */
export function packageRoot(): string {
  for (let directory = dirname(fileURLToPath(import.meta.url)), up = 0; up < 4; directory = dirname(directory), up += 1) {
    if (isOurs(join(directory, 'package.json'))) {
      return directory;
    }
  }
  throw new ProofrunError('ERR_SHIM_MISSING', { message: 'the package.json of proofrun is not above its own code', hint: 'install the package again' });
}

function isOurs(file: string): boolean {
  try {
    return /"name":\s*"proofrun"/.test(readFileSync(file, 'utf8'));
  } catch {
    return false;
  }
}

function executable(path: string, message: string): string {
  try {
    accessSync(path, constants.X_OK);
    return path;
  } catch (cause) {
    throw new ProofrunError('ERR_SHIM_MISSING', { message, hint: `node ${join(packageRoot(), 'scripts', 'build-shim.mjs')}`, cause });
  }
}
