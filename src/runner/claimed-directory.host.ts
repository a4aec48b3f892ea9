import { existsSync, mkdirSync, readdirSync, renameSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { errnoOf } from '../core/errors.ts';
import { parseRunId, type RunId } from '../core/ids.ts';
import { currentOwner, livenessOf, type Store } from '../store/index.ts';
import { removeTree } from './run-directory.host.ts';
import { runPaths } from './state-directory.ts';

const CLAIMED = /^(run-[0-9A-Z]{26})\.(\d{1,10})\.(\d{1,20})$/;

function claims(stateDirectory: string): string {
  return join(stateDirectory, 'claimed');
}

/** A run's directory before the store knows the run; its name says which process makes it. Absolute. */
export function claimedDirectory(stateDirectory: string, id: RunId): string {
  const owner = currentOwner();
  return join(claims(stateDirectory), `${id}.${owner.pid}.${owner.startTicks}`);
}

/** False in the usual case, for the price of one look. */
export function hasClaimed(stateDirectory: string): boolean {
  return namesIn(claims(stateDirectory)).length > 0;
}

/** Settles what a process left that died between a directory and its record: the directory gets its name, or goes. */
export function settleClaimed(stateDirectory: string, store: Pick<Store, 'readRun'>): void {
  const self = currentOwner();
  for (const name of namesIn(claims(stateDirectory))) {
    const match = CLAIMED.exec(name);
    const id = match?.[1] === undefined ? undefined : parseRunId(match[1]);
    if (match === null || id === undefined) continue;
    const pid = Number(match[2]);
    if (livenessOf({ ...self, pid, startTicks: Number(match[3]) }) === 'alive') continue;
    const { directory } = runPaths(stateDirectory, id);
    if (store.readRun(id) !== undefined && !existsSync(directory)) publishClaimed(join(claims(stateDirectory), name), directory);
    else removeTree(join(claims(stateDirectory), name));
  }
}

/** Gives the directory its lasting name. */
export function publishClaimed(claimed: string, directory: string): void {
  mkdirSync(dirname(directory), { recursive: true, mode: 0o700 });
  renameSync(claimed, directory);
}

function namesIn(directory: string): readonly string[] {
  try {
    return readdirSync(directory);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
}
