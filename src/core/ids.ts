import { randomBytes } from 'node:crypto';
import { ulid } from 'ulid';

declare const brand: unique symbol;
type Branded<T extends string> = string & { readonly [brand]: T };

/** `run-<ulid>`: one record of executing a job. */
export type RunId = Branded<'RunId'>;
/** `att-<ulid>`: one execution of a run by one executor. */
export type AttemptId = Branded<'AttemptId'>;
/** `cp-<ulid>`: a kept copy of what a run had staged. */
export type CheckpointId = Branded<'CheckpointId'>;
/** `op-<ulid>`: one thing processed (a process run, a connection). */
export type OperationId = Branded<'OperationId'>;
/** `evt-<ulid>`: one recorded fact about a run. */
export type EventId = Branded<'EventId'>;

/** `ctl-<ulid>`: one run of the control runtime. */
export type ControlRunId = Branded<'ControlRunId'>;
/** `apr-<ulid>`: one question to a person. */
export type ApprovalId = Branded<'ApprovalId'>;

const ULID = '[0-7][0-9A-HJKMNP-TV-Z]{25}';
const RUN_ID = new RegExp(`^run-${ULID}$`);
const CHECKPOINT_ID = new RegExp(`^cp-${ULID}$`);

/** Uniform in [0, 1). Node's own generator: the package would load all of Web Crypto for it. */
function random(): number {
  return randomBytes(4).readUInt32LE() / 0x1_0000_0000;
}

/** Time-ordered and random; never reused. `timeMs` and the random source come from the caller only in tests. */
export function newRunId(timeMs?: number): RunId {
  return `run-${ulid(timeMs, random)}` as RunId;
}
export function newAttemptId(timeMs?: number): AttemptId {
  return `att-${ulid(timeMs, random)}` as AttemptId;
}
export function newCheckpointId(timeMs?: number): CheckpointId {
  return `cp-${ulid(timeMs)}` as CheckpointId;
}
export function newOperationId(timeMs?: number): OperationId {
  return `op-${ulid(timeMs, random)}` as OperationId;
}
export function newEventId(timeMs?: number): EventId {
  return `evt-${ulid(timeMs, random)}` as EventId;
}

export function newControlRunId(timeMs?: number): ControlRunId {
  return `ctl-${ulid(timeMs)}` as ControlRunId;
}
export function newApprovalId(timeMs?: number): ApprovalId {
  return `apr-${ulid(timeMs)}` as ApprovalId;
}

/** The id when `text` has its exact form, else undefined (prefixes and names are the store's business). */
export function parseRunId(text: string): RunId | undefined {
  return RUN_ID.test(text) ? (text as RunId) : undefined;
}

/** The id when `text` has its exact form, else undefined. */
export function parseCheckpointId(text: string): CheckpointId | undefined {
  return CHECKPOINT_ID.test(text) ? (text as CheckpointId) : undefined;
}
