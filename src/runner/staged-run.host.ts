import { join } from 'node:path';
import type { AppliedPath } from '../core/change.ts';
import { errnoOf, messageOf, ProofrunError } from '../core/errors.ts';
import type { JsonValue } from '../core/json.ts';
import type { ReadStageInput } from '../stage/index.ts';
import { readRegularFile } from '../store/durable-file.host.ts';
import type { Store, StoredRun } from '../store/index.ts';
import { stageInput } from './read-stage.host.ts';
import type { RunnerParts } from './runner.ts';
import { parseStageRecord, STAGE_RECORD, type StageRecord } from './stage-record.ts';
import { runPaths } from './state-directory.ts';

const MAX_RECORD_BYTES = 64 * 1024 * 1024;

/** Undefined when no stage was prepared, or it was dropped. ERR_STAGE_LAYER for a damaged record. */
export function readStageRecord(stageDirectory: string): StageRecord | undefined {
  const file = join(stageDirectory, STAGE_RECORD);
  let bytes: Buffer;
  try {
    bytes = readRegularFile(file, MAX_RECORD_BYTES);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw new ProofrunError('ERR_STAGE_LAYER', { message: `${file}: ${messageOf(error)}`, cause: error });
  }
  return parseStageRecord(bytes, stageDirectory);
}

/**
 * The stage of a run that is over, for status, diff and apply. ERR_RUN_STATE, with the next command, when the run is still going, left nothing in
 * the stage, or its stage was applied or dropped.
 */
export async function openStage(parts: Pick<RunnerParts, 'stateDirectory' | 'store' | 'shim' | 'executesOnHost'>, run: StoredRun): Promise<ReadStageInput> {
  if (run.lease !== null) throw stateError(run, `it is ${run.state}`, `job wait ${run.id}`);
  if (run.stageState !== 'staged' && run.stageState !== 'partly_applied') {
    throw stateError(run, run.stageState === 'none' ? 'it has no staged changes' : `its stage was ${run.stageState} already`, `job status ${run.id}`);
  }
  const record = readStageRecord(runPaths(parts.stateDirectory, run.id).stage);
  if (record === undefined) {
    throw new ProofrunError('ERR_STAGE_LAYER', { message: `${run.id}: the directory of its stage is gone`, hint: `job drop ${run.id}` });
  }
  return await stageInput(parts, { ...record, workspace: run.workspace }, appliedPathsOf(parts.store, run));
}

/** Everything that earlier applies of a run touched, in their order: the latest word on a path counts. */
export function appliedPathsOf(store: Pick<Store, 'applies' | 'appliedPaths'>, run: Pick<StoredRun, 'id'>): readonly AppliedPath[] {
  return store
    .applies(run.id)
    .filter((apply) => apply.state !== 'open')
    .flatMap((apply) => store.appliedPaths(apply.id))
    .flatMap(({ root, path, encoding, kind, after }): readonly AppliedPath[] =>
      isTouch(kind) ? [{ root, path, encoding, state: kind, ...parseIdentity(after) }] : [],
    );
}

function isTouch(kind: string): kind is AppliedPath['state'] {
  return kind === 'present' || kind === 'absent' || kind === 'restored';
}

function parseIdentity(after: JsonValue): Pick<AppliedPath, 'dev' | 'ino' | 'ctime'> {
  const facts = typeof after === 'object' && after !== null && !Array.isArray(after) ? (after as Readonly<Record<string, JsonValue>>) : {};
  const { dev, ino, ctime } = facts;
  const [seconds, nanoseconds] = Array.isArray(ctime) ? (ctime as readonly JsonValue[]) : [];
  return {
    dev: typeof dev === 'string' ? dev : '0',
    ino: typeof ino === 'string' ? ino : '0',
    ...(typeof seconds === 'number' && typeof nanoseconds === 'number' ? { ctime: [seconds, nanoseconds] as const } : {}),
  };
}

function stateError(run: StoredRun, fact: string, hint: string): ProofrunError {
  return new ProofrunError('ERR_RUN_STATE', { message: `${run.id}: ${fact}`, hint });
}
