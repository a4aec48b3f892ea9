import { chmodSync, lstatSync, mkdirSync, readdirSync, rmdirSync, rmSync, unlinkSync } from 'node:fs';
import { errnoOf, messageOf, ProofrunError } from '../core/errors.ts';
import type { RunPaths } from './state-directory.ts';

const SLASH = Buffer.from('/');

/** Makes the run's directory and its scratch where they are missing, 0700 whatever the umask. ERR_DISK_FULL. */
export function makeRunDirectory(paths: RunPaths): void {
  try {
    mkdirSync(paths.directory, { recursive: true, mode: 0o700 });
    mkdirSync(paths.scratch, { recursive: true, mode: 0o700 });
    // mkdir(2) only ever takes bits away; a umask of 0277 would take ours.
    chmodSync(paths.directory, 0o700);
    chmodSync(paths.scratch, 0o700);
  } catch (error) {
    throw diskError(error, paths.directory);
  }
}

/** What a full disk means; any other error passes. */
export function diskError(error: unknown, path: string): unknown {
  const errno = errnoOf(error);
  if (errno !== 'ENOSPC' && errno !== 'EDQUOT') return error;
  return new ProofrunError('ERR_DISK_FULL', { message: `${path}: ${messageOf(error)}`, hint: 'job prune', cause: error });
}

/**
 * Removes a directory of ours with everything in it, also what a job made unreadable (an overlay's work directory has mode 0000). Never follows a link. What can't be removed is left
 * and returned, absolute; an absent directory is no error.
 */
export function removeTree(path: string): readonly string[] {
  try {
    rmSync(path, { recursive: true, force: true });
    return [];
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
  }
  const left: string[] = [];
  removeStubborn(Buffer.from(path), left);
  return left;
}

/** Paths are bytes: a name that isn't UTF-8 is a name. */
function removeStubborn(path: Buffer, left: string[]): void {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return;
  try {
    if (!stat.isDirectory()) {
      unlinkSync(path);
      return;
    }
    chmodSync(path, 0o700);
    for (const name of readdirSync(path, { encoding: 'buffer' })) removeStubborn(Buffer.concat([path, SLASH, name]), left);
    rmdirSync(path);
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') left.push(path.toString());
  }
}
