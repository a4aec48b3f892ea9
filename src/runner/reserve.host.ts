import { closeSync, constants, lstatSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { errnoOf } from '../core/errors.ts';

/** Enough for the account of a run and the commits that close it. */
const RESERVE_BYTES = 512 * 1024;

function reservePath(stateDirectory: string): string {
  return join(stateDirectory, 'reserve');
}

/**
 * Keeps some room in the state directory, so that a job that fills the disk with its stage can still be accounted for. Makes it where it is
 * missing; on a disk that has no room for it there is none.
 */
export function keepReserve(stateDirectory: string): void {
  const path = reservePath(stateDirectory);
  if (lstatSync(path, { throwIfNoEntry: false }) !== undefined) return;
  try {
    const fd = openSync(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW, 0o600);
    try {
      // Not a hole: zeros that are written take room.
      const piece = Buffer.alloc(64 * 1024);
      for (let written = 0; written < RESERVE_BYTES;) written += writeSync(fd, piece, 0, Math.min(piece.length, RESERVE_BYTES - written));
    } finally {
      closeSync(fd);
    }
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
    if (errnoOf(error) !== 'EEXIST') rmSync(path, { force: true });
  }
}

/** Gives the room away. False when there was none. */
export function spendReserve(stateDirectory: string): boolean {
  const path = reservePath(stateDirectory);
  if (lstatSync(path, { throwIfNoEntry: false }) === undefined) return false;
  rmSync(path, { force: true });
  return true;
}
