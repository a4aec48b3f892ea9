import { existsSync, readdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { errnoOf } from '../core/errors.ts';
import { parseRunId, type RunId } from '../core/ids.ts';
import { currentOwner, livenessOf, type Store } from '../store/index.ts';
import { removeTree } from './run-directory.host.ts';

const CLAIMED = /^(run-[0-9A-Z]{26})\.(\d{1,10})\.(\d{1,20})$/;

/** Name of a run's directory before the store knows the run: it says which process makes it. */
export function claimedName(id: RunId): string {
  const owner = currentOwner();
  return `${id}.${owner.pid}.${owner.startTicks}`;
}

/** Settles what a process left that died between a directory and its record: the directory gets its name, or goes. */
export function settleClaimed(stateDirectory: string, store: Pick<Store, 'readRun'>): void {
  const runs = join(stateDirectory, 'runs');
  const self = currentOwner();
  for (const name of namesIn(runs)) {
    const match = CLAIMED.exec(name);
    const id = match?.[1] === undefined ? undefined : parseRunId(match[1]);
    if (match === null || id === undefined) continue;
    const pid = Number(match[2]);
    if (livenessOf({ ...self, pid, startTicks: Number(match[3]) }) === 'alive') continue;
    if (store.readRun(id) !== undefined && !existsSync(join(runs, id))) renameSync(join(runs, name), join(runs, id));
    else removeTree(join(runs, name));
  }
}

function namesIn(directory: string): readonly string[] {
  try {
    return readdirSync(directory);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
}
