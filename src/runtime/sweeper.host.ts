import { currentOwner, isOrphanControl, livenessOf } from '../store/index.ts';
import { taskOf, expiryOf } from './resume.host.ts';
import type { End } from './limits.ts';
import { RunRecord } from './record.ts';
import { closingWrites, isLost, type ControlParts } from './session.host.ts';

export interface Swept {
  readonly run: string;
  readonly reason: string;
}

/**
 * Fires what is due, whether or not anybody touches the run: questions that nobody answered, approvals that nobody used, runs past their elapsed
 * time; and charges requests in full whose process died. Each by compare and set: a decision or an owner that was faster wins.
 */
export function sweep(parts: ControlParts): readonly Swept[] {
  const { store, clock } = parts;
  const now = clock();
  const swept: Swept[] = [];
  const due = store.due(now);
  const ends = new Map<string, End>();
  for (const approval of due.approvals) {
    const end = expiryOf(approval, now);
    if (end !== undefined) ends.set(approval.run_id, end);
  }
  for (const run of due.runs) {
    ends.set(run.id, { reason: 'limit_elapsed_time', detail: `the run was to end by ${new Date(run.deadline_ms ?? now).toISOString()}` });
  }
  for (const [runId, end] of ends) {
    const rows = store.rows(runId);
    if (rows.run.state !== 'waiting' && rows.run.state !== 'running') continue;
    const record = new RunRecord(rows, taskOf('null'));
    const expired = new Set(due.approvals.filter((row) => row.run_id === runId).map(({ id }) => id));
    const closing = closingWrites(record, `the run ended: ${end.reason}`, now).map((write) =>
      write.table === 'control_approvals' && 'key' in write && expired.has(write.key) ? { ...write, set: { state: 'expired' as const } } : write,
    );
    const events = [{ kind: 'run.failed', data: { reason: end.reason, detail: end.detail, by: 'sweeper' } }];
    try {
      store.change(runId, {
        guard: { states: [rows.run.state], seq: rows.run.last_seq },
        state: 'failed',
        fields: { reason: end.reason, detail: end.detail },
        events,
        writes: closing,
      });
      parts.observe(runId, events);
      swept.push({ run: runId, reason: end.reason });
    } catch (error) {
      if (!skips(error)) throw error;
    }
  }
  for (const run of store.orphans()) if (chargeOrphans(parts, run.id)) swept.push({ run: run.id, reason: 'orphaned_attempts' });
  return swept;
}

/** Requests of a dead owner: they may have been served, so they cost what was reserved. The run itself waits to be resumed. */
function chargeOrphans(parts: ControlParts, runId: string): boolean {
  const rows = parts.store.rows(runId);
  if (!isOrphanControl(rows.run, parts.clock())) return false;
  const reserved = rows.attempts.filter((attempt) => attempt.state === 'reserved');
  if (reserved.length === 0 || ownerLives(rows.run)) return false;
  const events = [{ kind: 'model.orphaned', data: { attempts: reserved.map(({ number }) => number) } }];
  try {
    parts.store.change(runId, {
      guard: { states: ['running'], fence: rows.run.fence, seq: rows.run.last_seq },
      events,
      writes: reserved.map((attempt) => ({
        table: 'control_attempts',
        key: attempt.number,
        from: ['reserved'],
        set: { state: 'orphaned', outcome: 'no_answer', settled_ms: parts.clock() },
      })),
    });
    parts.observe(runId, events);
    return true;
  } catch (error) {
    if (!skips(error)) throw error;
    return false;
  }
}

/** An owner whose lease lapsed may still be there and settle its request itself. */
function ownerLives(run: {
  readonly owner_pid: number | null;
  readonly owner_start_ticks: number | null;
  readonly owner_boot_id: string | null;
  readonly owner_pid_namespace: string | null;
}): boolean {
  if (run.owner_pid === null || run.owner_start_ticks === null || run.owner_boot_id === null || run.owner_pid_namespace === null) return false;
  const owner = { pid: run.owner_pid, startTicks: run.owner_start_ticks, bootId: run.owner_boot_id, pidNamespace: run.owner_pid_namespace };
  return owner.pid === currentOwner().pid || livenessOf(owner) === 'alive';
}

/** Somebody was faster, or the record is damaged: that is told where the run is looked at. */
function skips(error: unknown): boolean {
  return isLost(error) || (typeof error === 'object' && error !== null && 'code' in error && error.code === 'ERR_STORE_UNREADABLE');
}
