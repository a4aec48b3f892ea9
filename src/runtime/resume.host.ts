import { canonicalJson } from '../core/canonical-json.ts';
import { CONTROL_ENDS } from '../core/control.ts';
import { ProofrunError } from '../core/errors.ts';
import type { JsonValue } from '../core/json.ts';
import { currentOwner, isOrphanControl, type ApprovalRow, type ControlChange, type ControlRows, type PartWrite, type StepRow } from '../store/index.ts';
import { isIntact } from './approval.ts';
import { judge } from './judge.ts';
import { reached, type End } from './limits.ts';
import { readCell, RunRecord } from './record.ts';
import { closingWrites, ControlSession, type ControlParts, type Rules } from './session.host.ts';
import { approvalWrite, pauseEvent, startWrite } from './steps.host.ts';

export interface LeasePlan {
  readonly leaseId: string;
  readonly leaseMs: number;
}

/** session: the run is ours. waiting: a person has to decide (again). over: it ended. */
export type Resumed = { readonly kind: 'session'; readonly session: ControlSession } | { readonly kind: 'waiting' } | { readonly kind: 'over' };

/**
 * Takes a run up again: one that waited for a decision, or whose owner died. The record is held against its chain first (ERR_STORE_UNREADABLE).
 * ERR_RUN_STATE: it is over, or nobody has decided yet. ERR_STORE_STALE: it is live elsewhere, or another process was faster.
 */
export async function resumeRun(parts: ControlParts, rules: Rules, runId: string, lease: LeasePlan): Promise<Resumed> {
  const rows = parts.store.rows(runId);
  const { run } = rows;
  if (CONTROL_ENDS.includes(run.state)) throw stateError(runId, `it is ${run.state}`, `job show ${runId}`);
  const check = parts.store.check(runId);
  if (!check.ok) {
    throw new ProofrunError('ERR_STORE_UNREADABLE', {
      message: `${runId}: its record is damaged (event ${check.seq} ${check.fact}); it can be shown and cancelled, not continued`,
      hint: `job cancel ${runId}`,
    });
  }
  const task = taskOf(parts.store.spec(run.spec_sha256));
  const taking: Taking = { parts, rules, rows, task, lease };
  if (run.state === 'running') {
    if (!isOrphanControl(run, parts.clock())) {
      throw new ProofrunError('ERR_STORE_STALE', { message: `${runId}: process ${run.owner_pid ?? '?'} is working on it`, hint: `job show ${runId}` });
    }
    return { kind: 'session', session: takeOrphan(taking) };
  }
  return await resumeWaiting(taking);
}

/** The task of a specification. */
export function taskOf(spec: string): JsonValue {
  const value = readCell(spec);
  return typeof value === 'object' && value !== null && 'task' in value ? value.task : null;
}

interface Taking {
  readonly parts: ControlParts;
  readonly rules: Rules;
  readonly rows: ControlRows;
  readonly task: JsonValue;
  readonly lease: LeasePlan;
}

function leaseOf({ parts, lease }: Taking): NonNullable<ControlChange['lease']> {
  return { kind: 'take', lease: { owner: currentOwner(), leaseId: lease.leaseId, expiresMs: parts.clock() + lease.leaseMs } };
}

function change(taking: Taking, what: Omit<ControlChange, 'guard'>): ControlRows {
  const { parts, rows } = taking;
  const { id, state, last_seq: seq } = rows.run;
  // What was read and decided upon must still be the truth.
  const changed = parts.store.change(id, { ...what, guard: { states: [state], seq } });
  parts.observe(id, what.events);
  const record = new Map(changed.parts.map((part) => [`${part.table}:${'id' in part.row ? part.row.id : part.row.number}`, part.row]));
  const merged = <R extends StepRow | ApprovalRow>(table: string, list: readonly R[]): readonly R[] =>
    list.map((row) => (record.get(`${table}:${'id' in row ? row.id : row.number}`) as R | undefined) ?? row);
  return {
    run: changed.run,
    turns: rows.turns,
    steps: merged('control_steps', rows.steps),
    approvals: merged('control_approvals', rows.approvals),
    attempts: changed.parts.length === 0 ? rows.attempts : parts.store.rows(id).attempts,
  };
}

/** One transaction: the lease, what was on its way marked as interrupted, and requests to the model charged in full. */
function takeOrphan(taking: Taking): ControlSession {
  const { parts, rules, rows } = taking;
  const now = parts.clock();
  const writes: PartWrite[] = [];
  const interrupted: number[] = [];
  for (const step of rows.steps) {
    if (step.state !== 'started') continue;
    interrupted.push(step.number);
    const detail = 'the process that executed it ended before it answered';
    const state = step.effect === 'read-only' ? 'failed' : 'unknown';
    writes.push({ table: 'control_steps', key: step.number, from: ['started'], set: { state, outcome: 'no_answer', detail, ended_ms: now } });
  }
  const orphaned = rows.attempts.filter((attempt) => attempt.state === 'reserved');
  for (const attempt of orphaned) {
    writes.push({ table: 'control_attempts', key: attempt.number, from: ['reserved'], set: { state: 'orphaned', outcome: 'no_answer', settled_ms: now } });
  }
  const taken = change(taking, {
    lease: leaseOf(taking),
    events: [{ kind: 'run.taken_over', data: { interrupted, orphaned_attempts: orphaned.map(({ number }) => number) } }],
    writes,
  });
  return new ControlSession(parts, rules, taken, taking.task);
}

async function resumeWaiting(taking: Taking): Promise<Resumed> {
  const { parts, rules, rows } = taking;
  const record = new RunRecord(rows, taking.task);
  const step = rows.steps.find((row) => row.state === 'waiting');
  if (step === undefined) return over(taking, { reason: 'internal_error', detail: 'the run waits and no step does' });
  const latest = record.approvalsOf(step.number).at(-1);
  if (latest === undefined) return over(taking, { reason: 'internal_error', detail: `step ${step.number} waits and nobody was asked` });
  if (!isIntact(latest)) throw tampered(latest);
  const late = expiryOf(latest, parts.clock());
  if (late !== undefined) return over(taking, late, [{ table: 'control_approvals', key: latest.id, from: [latest.state], set: { state: 'expired' } }]);
  switch (latest.state) {
    case 'pending':
      throw stateError(rows.run.id, `step ${step.number} waits for a decision on ${latest.id}`, `job approve ${latest.id} ${latest.shown_sha256.slice(0, 12)}`);
    case 'rejected':
      return session(taking, afterRejection(taking, step, latest));
    case 'settled':
      return session(taking, afterSettlement(taking, step, latest));
    case 'approved':
      break;
    case 'used':
    case 'expired':
    case 'withdrawn':
      return over(taking, { reason: 'internal_error', detail: `step ${step.number} waits and its approval is ${latest.state}` });
  }
  const limit = reached(rules.limits, spentOf(taking));
  if (limit !== undefined) return over(taking, limit);
  const request = latest.edited_request ?? latest.request;
  if (latest.request !== requestBefore(record, step)) throw tampered(latest);
  const judgement = await judge({ view: record.view(), tools: rules.tools, policies: rules.policies }, { step: step.number, tool: step.tool, request });
  const withdrawn: PartWrite = { table: 'control_approvals', key: latest.id, from: ['approved'], set: { state: 'withdrawn' } };
  const closed = (detail: string, state: 'denied' | 'failed'): Omit<ControlChange, 'guard'> => ({
    state: 'running',
    lease: leaseOf(taking),
    fields: { failures: rows.run.failures + 1 },
    events: [{ kind: 'run.resumed', data: { step: step.number, approval: latest.id, judged: state } }],
    writes: [withdrawn, { table: 'control_steps', key: step.number, from: ['waiting'], set: { state, detail, ended_ms: parts.clock() } }],
  });
  if (judgement.kind === 'invalid') return session(taking, closed(`what was approved does not fit any more: ${judgement.fault}`, 'failed'));
  const { compiled, verdict } = judgement;
  if (verdict.kind === 'unknown') return over(taking, { reason: 'policy_unknown', detail: verdict.fault });
  if (verdict.kind === 'deny') {
    return verdict.ends ? over(taking, { reason: 'policy_ended', detail: verdict.reason }) : session(taking, closed(verdict.reason, 'denied'));
  }
  const same = latest.spec_sha256 === compiled.specSha256 && latest.policy_sha256 === rules.policySha256;
  if (verdict.kind === 'ask' && !same) {
    const shell = { parts, rules, runId: rows.run.id, record };
    const pause = {
      step,
      compiled,
      request: latest.request,
      kind: latest.kind,
      why: 'the tool or the policy changed since this was approved',
      policy: verdict.record,
      expiresMs: verdict.expiresMs,
      grantMs: verdict.grantMs,
      onReject: verdict.onReject,
    };
    const again = approvalWrite(shell, pause);
    change(taking, { events: [pauseEvent(pause, again)], writes: [withdrawn, again] });
    return { kind: 'waiting' };
  }
  // The decision, what the policy says now, and the start that it allows: one transaction, which one process alone can make.
  const taken = change(taking, {
    state: 'running',
    lease: leaseOf(taking),
    events: [
      { kind: 'run.resumed', data: { step: step.number, approval: latest.id, judged: verdict.kind } },
      { kind: 'step.started', data: { step: step.number, tool: compiled.spec.name, effect: compiled.spec.effect } },
    ],
    writes: [
      { table: 'control_approvals', key: latest.id, from: ['approved'], set: { state: 'used' } },
      startWrite({ parts }, { step, compiled, request, policy: verdict.record }, rows.run.fence + 1),
    ],
  });
  const own = new ControlSession(parts, rules, taken, taking.task);
  own.startedByResume.push(step.number);
  return { kind: 'session', session: own };
}

/** The request that the person was asked about: as proposed, or as it ran before when it was edited. */
function requestBefore(record: RunRecord, step: StepRow): string | null {
  const used = record.approvalsOf(step.number).findLast((row) => row.state === 'used' && row.edited_request !== null);
  return used?.edited_request ?? step.arguments;
}

function session(taking: Taking, what: Omit<ControlChange, 'guard'>): Resumed {
  return { kind: 'session', session: new ControlSession(taking.parts, taking.rules, change(taking, what), taking.task) };
}

function over(taking: Taking, end: End, before: readonly PartWrite[] = []): Resumed {
  const { parts, rows } = taking;
  const record = new RunRecord(rows, taking.task);
  const written = new Set(before.flatMap((write) => ('key' in write ? [write.key] : [])));
  const closing = closingWrites(record, `the run ended: ${end.reason}`, parts.clock()).filter((write) => !('key' in write) || !written.has(write.key));
  change(taking, {
    state: 'failed',
    fields: { reason: end.reason, detail: end.detail },
    events: [{ kind: 'run.failed', data: { reason: end.reason, detail: end.detail } }],
    writes: [...before, ...closing],
  });
  return { kind: 'over' };
}

function afterRejection(taking: Taking, step: StepRow, latest: ApprovalRow): Omit<ControlChange, 'guard'> {
  const note = latest.note === null ? '' : `: ${latest.note}`;
  const unknown = latest.kind === 'unknown_outcome';
  const detail = unknown ? `it was cut off, and an operator decided that it does not run again${note}` : `rejected by an operator${note}`;
  return {
    state: 'running',
    lease: leaseOf(taking),
    fields: { failures: taking.rows.run.failures + 1 },
    events: [{ kind: 'run.resumed', data: { step: step.number, approval: latest.id, judged: 'rejected' } }],
    writes: [
      { table: 'control_steps', key: step.number, from: ['waiting'], set: { state: unknown ? 'failed' : 'denied', detail, ended_ms: taking.parts.clock() } },
    ],
  };
}

function afterSettlement(taking: Taking, step: StepRow, latest: ApprovalRow): Omit<ControlChange, 'guard'> {
  return {
    state: 'running',
    lease: leaseOf(taking),
    fields: { failures: 0 },
    events: [{ kind: 'run.resumed', data: { step: step.number, approval: latest.id, judged: 'settled' } }],
    writes: [
      {
        table: 'control_steps',
        key: step.number,
        from: ['waiting'],
        set: {
          state: 'done',
          observation: latest.settlement ?? canonicalJson(null),
          detail: 'an operator says that it happened',
          ended_ms: taking.parts.clock(),
        },
      },
    ],
  };
}

/** Whether a question or its answer has waited too long. */
export function expiryOf(row: ApprovalRow, now: number): End | undefined {
  if (row.state === 'pending' && row.expires_ms !== null && row.expires_ms <= now) {
    return { reason: 'approval_expired', detail: `nobody decided on ${row.id} in time` };
  }
  if (row.state === 'approved' && row.grant_expires_ms !== null && row.grant_expires_ms <= now) {
    return { reason: 'grant_expired', detail: `the approval ${row.id} was not used in time` };
  }
  return undefined;
}

function spentOf({ rows, parts }: Taking): Parameters<typeof reached>[1] {
  const { run } = rows;
  return {
    steps: run.steps,
    failures: run.failures,
    modelCalls: run.model_calls,
    inputTokens: run.input_tokens,
    outputTokens: run.output_tokens,
    costNanoUsd: run.cost_nano_usd,
    activeMs: run.active_ms,
    elapsedMs: Math.max(0, parts.clock() - run.created_ms),
    // A loop is seen when its reply is recorded; a decision about it doesn't make it longer.
    repeats: 0,
  };
}

function tampered(row: ApprovalRow): ProofrunError {
  return new ProofrunError('ERR_STORE_UNREADABLE', {
    message: `${row.run_id}: ${row.id} is not what was shown: its record was altered`,
    hint: `job cancel ${row.run_id}`,
  });
}

function stateError(runId: string, fact: string, hint: string): ProofrunError {
  return new ProofrunError('ERR_RUN_STATE', { message: `${runId}: ${fact}`, hint });
}
