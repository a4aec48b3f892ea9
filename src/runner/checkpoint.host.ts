import { mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { StagedRoot } from '../core/change.ts';
import { ProofrunError } from '../core/errors.ts';
import { newCheckpointId, type RunId } from '../core/ids.ts';
import { dropStage } from '../stage/stage-directory.host.ts';
import { currentOwner, type StoredCheckpoint, type StoredRun } from '../store/index.ts';
import { altered, findAlterations, keptRoot, readManifest, writeManifest } from './checkpoint-files.host.ts';
import type { CheckpointPoint } from './points.ts';
import { diskError } from './run-directory.host.ts';
import type { RunnerParts } from './runner.ts';
import { takeOver } from './stage-base.host.ts';
import type { OverlayMarkers } from './stage-record.ts';
import { readStageRecord } from './staged-run.host.ts';
import { refuseUnusable, type StartingPoint } from './starting-point.host.ts';
import { checkpointDirectory, runPaths } from './state-directory.ts';

export type CheckpointParts = Pick<RunnerParts, 'stateDirectory' | 'store' | 'shim' | 'clock' | 'at'>;

/** What a checkpoint is made of. */
export interface CheckpointSource {
  readonly runId: RunId;
  readonly workspace: string;
  readonly name: string | null;
  readonly kind: 'stopped' | 'live';
  readonly markers: OverlayMarkers;
  readonly hidden: readonly string[];
  readonly roots: readonly StagedRoot[];
  /** Throws when what was read is not what was meant: asked after the layers were taken over. */
  readonly holds: () => Promise<void> | void;
}

/**
 * Keeps the staged files of a run that is over, as links: content isn't copied, and the checkpoint outlives the run's own stage. Not process
 * memory, not what lies outside the workspace. ERR_RUN_STATE, ERR_STAGE_FULL, ERR_DISK_FULL; then nothing of it is left.
 */
export async function createCheckpoint(parts: CheckpointParts, run: StoredRun, name: string | null): Promise<StoredCheckpoint> {
  refuseUnusable(run);
  const record = readStageRecord(runPaths(parts.stateDirectory, run.id).stage);
  if (record === undefined) {
    throw new ProofrunError('ERR_STAGE_LAYER', { message: `${run.id}: the directory of its stage is gone`, hint: `job drop ${run.id}` });
  }
  return await keepCheckpoint(parts, {
    runId: run.id,
    workspace: run.workspace,
    name,
    kind: 'stopped',
    markers: record.markers,
    hidden: record.hidden.map(({ path }) => path),
    roots: record.roots,
    holds: () => {
      refuseUnusable(parts.store.findRun(run.id, run.workspace));
    },
  });
}

/** Row, layers, manifest, row: a process that dies in between leaves what settleCheckpoints removes. */
export async function keepCheckpoint(parts: CheckpointParts, source: CheckpointSource): Promise<StoredCheckpoint> {
  const { store, shim } = parts;
  const at = async (point: CheckpointPoint): Promise<void> => {
    await parts.at?.(point);
  };
  const id = newCheckpointId(parts.clock());
  const directory = checkpointDirectory(parts.stateDirectory, id);
  const { runId, workspace, name, kind, markers, hidden } = source;
  store.beginCheckpoint({ id, runId, workspace, name, source: kind, owner: currentOwner() });
  try {
    await at('checkpoint-recorded');
    makeDirectory(directory);
    const roots: StagedRoot[] = [];
    for (const [index, root] of source.roots.entries()) {
      const place = join(directory, `root-${index}`);
      mkdirSync(place, { mode: 0o700 });
      const taken = await takeOver(shim, root, { hidden, lineage: { parent: runId } }, place, { copy: kind === 'live', sync: true });
      roots.push(keptRoot(root.root, taken));
    }
    await source.holds();
    await at('checkpoint-layers');
    const written = await writeManifest(shim, directory, { id, runId, workspace, source: kind }, { markers, hidden, roots });
    await at('checkpoint-written');
    const whole = store.finishCheckpoint(id, written);
    await at('checkpoint-whole');
    return whole;
  } catch (error) {
    await dropStage({ shim, directory });
    store.forgetCheckpoint(id);
    throw diskError(error, directory);
  }
}

function makeDirectory(directory: string): void {
  mkdirSync(dirname(directory), { recursive: true, mode: 0o700 });
  mkdirSync(directory, { mode: 0o700 });
}

/** Removes it for good. Forks and later checkpoints have what they need of their own. Repeating it after a crash finishes. */
export async function deleteCheckpoint(parts: CheckpointParts, checkpoint: StoredCheckpoint): Promise<void> {
  parts.store.beginCheckpointRemoval(checkpoint.id, currentOwner());
  await parts.at?.('checkpoint-going');
  await dropStage({ shim: parts.shim, directory: checkpointDirectory(parts.stateDirectory, checkpoint.id) });
  await parts.at?.('checkpoint-gone');
  parts.store.forgetCheckpoint(checkpoint.id);
}

/** Removes what processes that died left half made or half removed. */
export async function settleCheckpoints(parts: Pick<CheckpointParts, 'stateDirectory' | 'store' | 'shim'>): Promise<void> {
  for (const { id } of parts.store.abandonedCheckpoints()) {
    await dropStage({ shim: parts.shim, directory: checkpointDirectory(parts.stateDirectory, id) });
    parts.store.forgetCheckpoint(id);
  }
}

/** Every difference from what it held when it was made; empty: none. */
export async function verifyCheckpoint(parts: Pick<CheckpointParts, 'stateDirectory' | 'shim'>, checkpoint: StoredCheckpoint): Promise<readonly string[]> {
  return await findAlterations(parts.shim, checkpointDirectory(parts.stateDirectory, checkpoint.id), checkpoint);
}

/** `job fork`. The checkpoint is verified first: ERR_CHECKPOINT_ALTERED. */
export async function startFromCheckpoint(
  parts: Pick<CheckpointParts, 'stateDirectory' | 'shim' | 'store'>,
  checkpoint: StoredCheckpoint,
): Promise<StartingPoint> {
  const faults = await verifyCheckpoint(parts, checkpoint);
  if (faults.length > 0) throw altered(checkpoint, faults);
  const { markers, hidden, roots } = readManifest(checkpointDirectory(parts.stateDirectory, checkpoint.id), checkpoint);
  return {
    lineage: { kind: 'fork', parent: checkpoint.runId, checkpoint: checkpoint.id },
    name: checkpoint.id,
    markers,
    roots,
    hidden,
    holds: () => {
      parts.store.findCheckpoint(checkpoint.id, checkpoint.workspace);
    },
  };
}
