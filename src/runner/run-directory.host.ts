import { chmodSync, lstatSync, mkdirSync, readdirSync, rmdirSync, unlinkSync } from 'node:fs';
import { errnoOf, messageOf, ProofrunError } from '../core/errors.ts';
import { dropStage } from '../stage/stage-directory.host.ts';
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

/** Removes a file of ours; an absent one is no error. */
export function removeFile(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
  }
}

/**
 * Removes a directory of ours with everything in it, also what a job made unreadable (an overlay's work directory has mode 0000). Never
 * follows a link. What can't be removed is left and returned, absolute; an absent directory is no error.
 */
export function removeTree(path: string): readonly string[] {
  const removal: Removal = { room: Infinity, left: [] };
  remove(Buffer.from(path), removal);
  return removal.left;
}

/** Beyond this many entries a program of our own takes less time than this one, and holds nobody up. */
const FEW_ENTRIES = 200;

/**
 * As removeTree, for what may be large or deeper than any path can be: a job's private home. What is small is removed here.
 */
export async function discardTree(shim: string, path: string): Promise<readonly string[]> {
  const removal: Removal = { room: FEW_ENTRIES, left: [] };
  remove(Buffer.from(path), removal);
  if (lstatSync(path, { throwIfNoEntry: false }) === undefined) return [];
  try {
    await dropStage({ shim, directory: path });
    return [];
  } catch (error) {
    return [`${path} (${messageOf(error)})`];
  }
}

interface Removal {
  /** How many entries may still be looked at. */
  room: number;
  readonly left: string[];
}

/** An empty directory of somebody else's (a mount by root leaves one) goes with the right on its parent alone. */
function emptied(path: Buffer): boolean {
  try {
    rmdirSync(path);
    return true;
  } catch {
    return false;
  }
}

/** Paths are bytes: a name that isn't UTF-8 is a name. */
function remove(path: Buffer, removal: Removal): void {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (stat === undefined || (removal.room -= 1) < 0) return;
  try {
    if (!stat.isDirectory()) {
      unlinkSync(path);
      return;
    }
    if (stat.uid !== process.geteuid?.() && emptied(path)) return;
    if ((stat.mode & 0o700) !== 0o700) chmodSync(path, 0o700);
    for (const name of readdirSync(path, { encoding: 'buffer' })) remove(Buffer.concat([path, SLASH, name]), removal);
    rmdirSync(path);
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') removal.left.push(path.toString());
  }
}
