import { canonicalJson } from '../core/canonical-json.ts';
import { ProofrunError } from '../core/errors.ts';
import type { JsonObject } from '../core/json.ts';
import { parseLiteralJson, parseStrictJson } from '../core/strict-json.ts';
import type { ApprovalRow, PartWrite } from '../store/index.ts';
import { isIntact, shownDigest, shownOf } from './approval.ts';
import { RunRecord } from './record.ts';
import { expiryOf } from './resume.host.ts';
import { closingWrites, type ControlParts } from './session.host.ts';

/** Who decides: as the kernel sees the process, not as it says. */
export interface Decider {
  readonly uid: number;
  readonly pid: number;
  /** How the decision came: `terminal`, `command`, `library`. */
  readonly via: string;
}

export interface DecisionRequest {
  /** Whole, or a unique prefix of `apr-...`. */
  readonly approval: string;
  /** What was shown: at least 12 digits of its hash. */
  readonly shown: string;
  readonly decider: Decider;
  readonly note?: string;
}

export interface Approving extends DecisionRequest {
  /** JSON text of arguments that run instead. Both are recorded, each with its hash. */
  readonly edited?: string;
}

const LEAST_PREFIX = 12;
const MAX_NOTE = 1000;

/** Approves what was shown, if that is what is recorded now: one transaction. ERR_RUN_STATE, ERR_USAGE, ERR_STORE_UNREADABLE, ERR_STORE_STALE. */
export function approve(parts: ControlParts, request: Approving): ApprovalRow {
  return decide(parts, request, (row, now) => {
    const edited = request.edited === undefined ? undefined : readEdited(request.edited);
    return {
      set: {
        state: 'approved',
        grant_expires_ms: row.grant_ms === null ? null : now + row.grant_ms,
        ...(edited === undefined ? {} : { edited_request: edited, edited_sha256: shownDigest({ ...shownOf(row), request: edited }) }),
      },
      facts: edited === undefined ? {} : { edited_sha256: shownDigest({ ...shownOf(row), request: edited }) },
    };
  });
}

/** Rejects: the step is denied, or the run ends with it where the policy says so. */
export function reject(parts: ControlParts, request: DecisionRequest): ApprovalRow {
  return decide(parts, request, (row) => ({ set: { state: 'rejected' }, facts: {}, ends: row.on_reject === 'end' }));
}

/** For an execution that was cut off: it happened, and this is what it answered (JSON text). */
export function settleUnknown(parts: ControlParts, request: DecisionRequest & { readonly observation: string }): ApprovalRow {
  return decide(parts, request, (row) => {
    if (row.kind !== 'unknown_outcome') {
      throw new ProofrunError('ERR_RUN_STATE', { message: `${row.id}: nothing of it has been executed`, hint: `job approve ${row.id}` });
    }
    return { set: { state: 'settled', settlement: readEdited(request.observation) }, facts: {} };
  });
}

interface Deciding {
  readonly set: Partial<ApprovalRow>;
  readonly facts: JsonObject;
  readonly ends?: boolean;
}

function decide(parts: ControlParts, request: DecisionRequest, how: (row: ApprovalRow, now: number) => Deciding): ApprovalRow {
  const { store, clock } = parts;
  const found = store.findApproval(request.approval);
  const rows = store.rows(found.run_id);
  const record = new RunRecord(rows, null);
  const row = record.approvals.get(found.id) ?? found;
  const now = clock();
  const runId = row.run_id;
  const check = store.check(runId);
  if (!check.ok || !isIntact(row)) {
    throw new ProofrunError('ERR_STORE_UNREADABLE', { message: `${row.id}: its record was altered, and grants nothing`, hint: `job cancel ${runId}` });
  }
  if (row.state !== 'pending') throw new ProofrunError('ERR_RUN_STATE', { message: `${row.id}: it is ${row.state}`, hint: `job show ${runId}` });
  if (record.approvalsOf(row.step).at(-1)?.id !== row.id) {
    throw new ProofrunError('ERR_RUN_STATE', { message: `${row.id}: a later question took its place`, hint: 'job approvals' });
  }
  if (expiryOf(row, now) !== undefined) throw new ProofrunError('ERR_RUN_STATE', { message: `${row.id}: it expired`, hint: `job show ${runId}` });
  checkShown(row, request.shown);
  const note = request.note ?? null;
  if (note !== null && note.length > MAX_NOTE) {
    throw new ProofrunError('ERR_USAGE', { message: `a note has at most ${MAX_NOTE} characters`, hint: 'shorten it' });
  }
  const { set, facts, ends } = how(row, now);
  const decider = { ...request.decider };
  const write: PartWrite = {
    table: 'control_approvals',
    key: row.id,
    from: ['pending'],
    set: { ...set, decided_ms: now, decider: canonicalJson(decider), note },
  };
  const end = ends === true ? { reason: 'rejected', detail: note ?? `${row.id} was rejected` } : undefined;
  const closing = end === undefined ? [] : closingWrites(record, 'the run ended: rejected', now).filter((one) => !('key' in one) || one.key !== row.id);
  const events = [
    {
      kind: `approval.${set.state ?? 'decided'}`,
      data: { approval: row.id, step: row.step, shown_sha256: row.shown_sha256, decider, ...(note === null ? {} : { note }), ...facts },
    },
    ...(end === undefined ? [] : [{ kind: 'run.failed', data: end }]),
  ];
  const changed = store.change(runId, {
    guard: { states: ['waiting'], seq: rows.run.last_seq },
    ...(end === undefined ? {} : { state: 'failed' as const, fields: end }),
    events,
    writes: [write, ...closing],
  });
  parts.observe(runId, events);
  for (const part of changed.parts) if (part.table === 'control_approvals' && part.row.id === row.id) return part.row;
  return row;
}

/** A decision is on what was shown, and says so. */
function checkShown(row: ApprovalRow, shown: string): void {
  if (/^[0-9a-f]+$/.test(shown) && shown.length >= LEAST_PREFIX && row.shown_sha256.startsWith(shown)) return;
  throw new ProofrunError('ERR_USAGE', {
    message: `${row.id}: expected the hash of what was shown, at least ${LEAST_PREFIX} of its digits; what is recorded has another`,
    hint: `job approvals ${row.id}`,
  });
}

function readEdited(text: string): string {
  parseStrictJson(text, { source: 'the JSON given' });
  return canonicalJson(parseLiteralJson(text, { source: 'the JSON given' }));
}

/** Ends a run that isn't over, whoever works on it. A damaged one too. */
export function cancel(parts: ControlParts, runId: string, decider: Decider, note?: string): void {
  const { store, clock } = parts;
  const now = clock();
  const events = [{ kind: 'run.cancelled', data: { decider: { ...decider }, ...(note === undefined ? {} : { note }) } }];
  const rows = store.rows(runId);
  const damaged = !store.check(runId).ok;
  const guard = damaged ? { states: ['running', 'waiting'] as const, evenDamaged: true as const } : { states: ['running', 'waiting'] as const };
  for (let tries = 0; ; tries += 1) {
    const fresh = tries === 0 ? rows : store.rows(runId);
    if (fresh.run.state === 'completed' || fresh.run.state === 'failed' || fresh.run.state === 'cancelled') {
      throw new ProofrunError('ERR_RUN_STATE', { message: `${runId}: it is ${fresh.run.state}`, hint: `job show ${runId}` });
    }
    try {
      store.change(runId, {
        guard: { ...guard, seq: fresh.run.last_seq },
        state: 'cancelled',
        fields: { reason: 'cancelled', detail: note ?? null },
        events,
        // Rows that can't be read are left as they are: the run is over all the same.
        writes: damaged ? [] : closingWrites(new RunRecord(fresh, null), 'the run was cancelled', now),
      });
      parts.observe(runId, events);
      return;
    } catch (error) {
      // The owner wrote meanwhile: what is open is another now.
      if (!(error instanceof ProofrunError) || error.code !== 'ERR_STORE_STALE' || tries >= 20) throw error;
    }
  }
}
