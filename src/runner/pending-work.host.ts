import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { errnoOf } from '../core/errors.ts';
import { hasClaimed } from './claimed-directory.host.ts';
import type { RunnerParts } from './runner.ts';

/**
 * Whether a process that died left something to settle: a run, an apply, a checkpoint, a directory. Cheap, and asked by each command before it does its
 * own work.
 */
export function hasPendingWork(parts: Pick<RunnerParts, 'stateDirectory' | 'store'>): boolean {
  return (
    parts.store.reconcilable().length > 0 ||
    parts.store.abandonedCheckpoints().length > 0 ||
    hasClaimed(parts.stateDirectory) ||
    hasLedgers(parts.stateDirectory)
  );
}

/** Ledgers of applies that are going on, or were left half way (src/stage/ledger.host.ts). */
export function hasLedgers(stateDirectory: string): boolean {
  try {
    return readdirSync(join(stateDirectory, 'apply')).some((name) => name.endsWith('.json'));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false;
    throw error;
  }
}
