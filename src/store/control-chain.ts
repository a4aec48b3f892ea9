import { canonicalJson, sha256Hex } from '../core/canonical-json.ts';
import { ProofrunError } from '../core/errors.ts';
import type { JsonValue } from '../core/json.ts';
import { CHAIN_START, DAMAGE_NOTED, type ChainCheck, type NewEvent } from './event-chain.ts';

/** A row of `control_events`. `data` is canonical JSON; `rows` lists [row, digest] of every other row that the transaction left changed. */
export interface ControlEventRow {
  readonly run_id: string;
  readonly seq: number;
  readonly time_ms: number;
  readonly kind: string;
  readonly data: string;
  readonly row_sha256: string;
  readonly rows: string;
  readonly hash: string;
}

/** An event of a control run as its readers get it. */
export interface ControlEvent {
  readonly runId: string;
  readonly seq: number;
  readonly timeMs: number;
  readonly kind: string;
  readonly data: JsonValue;
  readonly hash: string;
}

const KIND = /^[a-z][a-z_]*(?:\.[a-z][a-z_]*)+$/;

/** SHA-256 over the event, the digests of the rows as the transaction left them, and the hash of the event before. */
export function controlEventHash(row: Omit<ControlEventRow, 'hash'>, previous: string): string {
  return sha256Hex(canonicalJson([row.run_id, row.seq, row.time_ms, row.kind, row.data, row.row_sha256, row.rows, previous]));
}

export interface ControlLinkPlace {
  readonly runId: string;
  readonly seq: number;
  readonly timeMs: number;
  readonly rowSha256: string;
  /** Of all rows that the transaction changed; they go with its last event. */
  readonly rows: readonly (readonly [string, string])[];
  readonly previous: string;
}

/** The row that follows `previous`. Throws when kind or data can't be recorded: nothing is replaced by a stand-in. */
export function linkControlEvent(event: NewEvent, place: ControlLinkPlace): ControlEventRow {
  if (!KIND.test(event.kind)) throw new ProofrunError('ERR_INTERNAL', { message: `event kind ${JSON.stringify(event.kind)} is not dotted lower case` });
  const row = {
    run_id: place.runId,
    seq: place.seq,
    time_ms: place.timeMs,
    kind: event.kind,
    data: canonicalJson(event.data ?? {}),
    row_sha256: place.rowSha256,
    rows: canonicalJson(place.rows),
  };
  return { ...row, hash: controlEventHash(row, place.previous) };
}

/** What the chain of a run is held against. */
export interface ControlTruth {
  readonly lastSeq: number;
  readonly chain: string;
  readonly rowSha256: string;
  /** Digest of each other row of the run as it is now. */
  readonly rows: ReadonlyMap<string, string>;
  /** A head that somebody noted earlier: the event of that number must have that hash. */
  readonly head?: { readonly seq: number; readonly hash: string };
}

/** Follows the chain from its first event to the rows as they are now. */
export function checkControlChain(events: Iterable<ControlEventRow>, now: ControlTruth): ChainCheck {
  let previous = CHAIN_START;
  let last: ControlEventRow | undefined;
  let headSeen = now.head === undefined;
  const stated = new Map<string, string>();
  for (const event of events) {
    const expected = (last?.seq ?? 0) + 1;
    if (event.seq !== expected) return { ok: false, seq: expected, fact: 'is missing' };
    if (controlEventHash(event, previous) !== event.hash) return { ok: false, seq: event.seq, fact: 'was altered' };
    if (event.kind === DAMAGE_NOTED) return { ok: false, seq: event.seq, fact: 'says that the record was damaged' };
    if (now.head?.seq === event.seq) {
      if (now.head.hash !== event.hash) return { ok: false, seq: event.seq, fact: 'is not the one that was noted as head' };
      headSeen = true;
    }
    if (event.rows !== '[]') for (const [key, digest] of readRows(event.rows)) stated.set(key, digest);
    previous = event.hash;
    last = event;
  }
  if (last?.seq !== now.lastSeq || previous !== now.chain) return { ok: false, seq: now.lastSeq, fact: 'is missing' };
  if (!headSeen) return { ok: false, seq: now.head?.seq ?? 0, fact: 'is missing: the chain ends before the head that was noted' };
  if (last.row_sha256 !== now.rowSha256) return { ok: false, seq: last.seq, fact: 'does not match the row of the run, which was altered' };
  for (const [key, digest] of now.rows) {
    if (stated.get(key) !== digest) return { ok: false, seq: last.seq, fact: `does not match the row ${key}, which was altered or put in` };
  }
  for (const key of stated.keys()) if (!now.rows.has(key)) return { ok: false, seq: last.seq, fact: `names the row ${key}, which is gone` };
  return { ok: true };
}

function readRows(text: string): readonly (readonly [string, string])[] {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) ? (value as readonly (readonly [string, string])[]) : [];
  } catch {
    return [];
  }
}
