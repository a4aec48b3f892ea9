import type { ChangeSet } from '../core/change.ts';
import { MODES, type Mode } from '../core/dimension.ts';
import { messageOf } from '../core/errors.ts';
import type { RunId } from '../core/ids.ts';
import { parseRunId } from '../core/ids.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { RUN_STATES, STAGE_STATES, type Ending, type RunState, type StageState } from '../core/run.ts';
import { parseStrictJson } from '../core/strict-json.ts';
import { parseEnding } from './ending.ts';
import type { Owner } from './owner.host.ts';
import type { RunRow } from './run-row.ts';

export interface Lease {
  readonly owner: Owner;
  /** Milliseconds since the epoch. Counts only where the owner can't be looked at. */
  readonly expiresMs: number;
}

export type StagedSummary = ChangeSet['totals'];

/** A run as the store has it. */
export interface StoredRun {
  readonly id: RunId;
  readonly name: string | null;
  readonly workspace: string;
  readonly state: RunState;
  readonly stageState: StageState;
  readonly mode: Mode;
  readonly executor: string | null;
  readonly argv: readonly string[];
  readonly createdMs: number;
  readonly startedMs: number | null;
  readonly endedMs: number | null;
  readonly ending: Ending | null;
  /** The plan as recorded: the `plan` member of the bundle. */
  readonly plan: JsonValue;
  /** `path` is relative to the state directory. */
  readonly bundle: { readonly path: string; readonly sha256: string } | null;
  readonly stagedSummary: StagedSummary | null;
  /** null once the run is over. */
  readonly lease: Lease | null;
  /** Rises with every owner; a stale owner's writes carry an old one and are refused. */
  readonly fence: number;
  readonly lastSeq: number;
  /** Hash of the last event. */
  readonly chain: string;
  /** Why the row can't be trusted: it is listed and shown, may be closed or dropped, and is never continued from. */
  readonly damaged: string | null;
}

/** Total: what can't be read is replaced by the most harmless value, and `damaged` says so. */
export function toStoredRun(row: RunRow): StoredRun {
  const faults: string[] = [];
  const read = <T>(column: string, make: () => T, harmless: T): T => {
    try {
      return make();
    } catch (error) {
      faults.push(`${column}: ${messageOf(error)}`);
      return harmless;
    }
  };
  return {
    id: read('id', () => required(parseRunId(row.id), row.id), row.id as RunId),
    name: row.name,
    workspace: row.workspace,
    state: read(
      'state',
      () =>
        required(
          RUN_STATES.find((state) => state === row.state),
          row.state,
        ),
      'interrupted',
    ),
    stageState: read(
      'stage_state',
      () =>
        required(
          STAGE_STATES.find((state) => state === row.stage_state),
          row.stage_state,
        ),
      'none',
    ),
    mode: read(
      'mode',
      () =>
        required(
          MODES.find((mode) => mode === row.mode),
          row.mode,
        ),
      'default',
    ),
    executor: row.executor,
    argv: read('argv', () => parseArgv(row.argv), []),
    createdMs: row.created_ms,
    startedMs: row.started_ms,
    endedMs: row.ended_ms,
    ending: read('ending', () => (row.ending === null ? null : parseEnding(parseStrictJson(row.ending))), null),
    plan: read('plan', () => (row.plan === null ? null : parsePlan(row.plan)), null),
    bundle: read('bundle', () => bundleOf(row), null),
    stagedSummary: read('staged_summary', () => (row.staged_summary === null ? null : parseSummary(row.staged_summary)), null),
    lease: leaseOf(row),
    fence: row.fence,
    lastSeq: row.last_seq,
    chain: row.chain,
    damaged: faults.length === 0 ? null : faults.join('; '),
  };
}

let lastPlan: { readonly text: string; readonly value: JsonValue } | undefined;

/** A run's row is read several times in its life, and its plan never changes: the text that was parsed last isn't parsed again. */
function parsePlan(text: string): JsonValue {
  if (lastPlan?.text !== text) lastPlan = { text, value: parseStrictJson(text) };
  return lastPlan.value;
}

/** The JSON of a summary column. */
export function formatSummary(summary: StagedSummary): JsonObject {
  return {
    added: summary.added,
    modified: summary.modified,
    deleted: summary.deleted,
    other: summary.other,
    conflicts: summary.conflicts,
    added_lines: summary.addedLines,
    removed_lines: summary.removedLines,
  };
}

function parseSummary(text: string): StagedSummary {
  const value = parseStrictJson(text);
  const count = (key: string): number => {
    const item = isObject(value) ? value[key] : undefined;
    if (typeof item !== 'number') throw new Error(`no number ${key}`);
    return item;
  };
  return {
    added: count('added'),
    modified: count('modified'),
    deleted: count('deleted'),
    other: count('other'),
    conflicts: count('conflicts'),
    addedLines: count('added_lines'),
    removedLines: count('removed_lines'),
  };
}

function parseArgv(text: string): readonly string[] {
  const value = parseStrictJson(text);
  if (!Array.isArray(value)) throw new Error('not a list');
  return value.map((word: unknown) => {
    if (typeof word !== 'string') throw new Error('not a list of strings');
    return word;
  });
}

function bundleOf(row: RunRow): StoredRun['bundle'] {
  if (row.bundle_path === null && row.bundle_sha256 === null) return null;
  return { path: required(row.bundle_path ?? undefined, 'no path'), sha256: required(row.bundle_sha256 ?? undefined, 'no hash') };
}

function leaseOf(row: RunRow): Lease | null {
  const { owner_pid: pid, owner_start_ticks: startTicks, owner_boot_id: bootId, owner_pid_namespace: pidNamespace, expires_ms: expiresMs } = row;
  if (pid === null || startTicks === null || bootId === null || pidNamespace === null || expiresMs === null) return null;
  return { owner: { pid, startTicks, bootId, pidNamespace }, expiresMs };
}

function required<T>(value: T | undefined, found: string): T {
  if (value === undefined) throw new Error(`unknown value ${JSON.stringify(found)}`);
  return value;
}

function isObject(value: JsonValue): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
