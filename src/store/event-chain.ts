import { canonicalJson, canonicalSha256 } from '../core/canonical-json.ts';
import { ProofrunError } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';

/** An event as a caller gives it. `kind` is dotted lower case: `run.recorded`. */
export interface NewEvent {
  readonly kind: string;
  /** Keys are snake_case. */
  readonly data?: JsonObject;
}

export interface StoredEvent {
  readonly runId: string;
  /** From 1, without gaps. */
  readonly seq: number;
  readonly timeMs: number;
  readonly kind: string;
  readonly data: JsonValue;
  /** Digest of the run's row as the transaction left it. */
  readonly rowSha256: string;
  readonly hash: string;
}

/** A row of `events`: `data` is canonical JSON text. */
export interface EventRow {
  readonly run_id: string;
  readonly seq: number;
  readonly time_ms: number;
  readonly kind: string;
  readonly data: string;
  readonly row_sha256: string;
  readonly hash: string;
}

/** Predecessor of the first event. */
export const CHAIN_START = '0'.repeat(64);

/** Kind of the event that the store puts before the first change of a damaged row. */
export const DAMAGE_NOTED = 'store.damaged';

const KIND = /^[a-z][a-z_]*(?:\.[a-z][a-z_]*)+$/;

/** The row that follows `previous`. Throws when kind or data can't be recorded. */
export function linkEvent(
  event: NewEvent,
  place: { readonly runId: string; readonly seq: number; readonly timeMs: number; readonly rowSha256: string; readonly previous: string },
): EventRow {
  if (!KIND.test(event.kind)) throw new ProofrunError('ERR_INTERNAL', { message: `event kind ${JSON.stringify(event.kind)} is not dotted lower case` });
  const row = {
    run_id: place.runId,
    seq: place.seq,
    time_ms: place.timeMs,
    kind: event.kind,
    data: canonicalJson(event.data ?? {}),
    row_sha256: place.rowSha256,
  };
  return { ...row, hash: eventHash(row, place.previous) };
}

/** SHA-256 over the event, the digest of the run's row, and the hash of the event before. */
export function eventHash(row: Omit<EventRow, 'hash'>, previous: string): string {
  return canonicalSha256({
    run_id: row.run_id,
    seq: row.seq,
    time_ms: row.time_ms,
    kind: row.kind,
    data: row.data,
    row_sha256: row.row_sha256,
    previous,
  });
}

export type ChainCheck = { readonly ok: true } | { readonly ok: false; readonly seq: number; readonly fact: string };

/** Follows the chain of one run from its first event to the row as it is now. */
export function checkChain(events: readonly EventRow[], now: { readonly lastSeq: number; readonly chain: string; readonly rowSha256: string }): ChainCheck {
  let previous = CHAIN_START;
  for (const [index, event] of events.entries()) {
    if (event.seq !== index + 1) return { ok: false, seq: index + 1, fact: 'is missing' };
    if (eventHash(event, previous) !== event.hash) return { ok: false, seq: event.seq, fact: 'was altered' };
    if (event.kind === DAMAGE_NOTED) return { ok: false, seq: event.seq, fact: 'says that the record was damaged' };
    previous = event.hash;
  }
  const last = events.at(-1);
  if (last?.seq !== now.lastSeq || previous !== now.chain) return { ok: false, seq: now.lastSeq, fact: 'is missing' };
  return last.row_sha256 === now.rowSha256 ? { ok: true } : { ok: false, seq: last.seq, fact: 'does not match the row of the run, which was altered' };
}
