import { canonicalJson } from '../core/canonical-json.ts';
import { CONTROL_ENDS } from '../core/control.ts';
import { messageOf, ProofrunError } from '../core/errors.ts';
import { hasLoneSurrogate } from '../core/strict-json.ts';
import type { PartWrite, StepRow } from '../store/index.ts';
import type { ProposedCall } from './contract.ts';
import { reached, stepsLeft } from './limits.ts';
import { turnModel } from './model-access.host.ts';
import type { ModelStop } from './model.ts';
import { rawOf, readArguments } from './request.ts';
import { internalEnd, isLost, type ControlSession } from './session.host.ts';
import { advanceSteps, openSteps, type Progress } from './steps.host.ts';

/** Longest text of a decision that is kept, in code units. */
const MAX_REASON = 64 * 1024;
const MAX_CALLS = 64;

/**
 * Works on a run until it ends or waits for a person. Resolves then; rejects when the run went to another owner (ERR_STORE_STALE) or the store
 * fails. A fault of ours ends the run as `internal_error`, with nothing more executed.
 */
export async function drive(session: ControlSession): Promise<void> {
  try {
    for (;;) {
      const progress = await advance(session);
      if (progress !== 'on') return;
    }
  } catch (error) {
    if (isLost(error)) {
      session.abort(messageOf(error));
      if (endedElsewhere(session)) return;
      throw error;
    }
    if (error instanceof ProofrunError && (error.code === 'ERR_DISK_FULL' || error.code === 'ERR_STORE_UNREADABLE')) throw error;
    session.end(internalEnd(error));
  }
}

/** An operator's cancel or an expiry: the run is over, and that is its end. */
function endedElsewhere(session: ControlSession): boolean {
  const row = session.parts.store.read(session.runId);
  return row !== undefined && CONTROL_ENDS.includes(row.state) && row.fence === session.fence;
}

async function advance(session: ControlSession): Promise<Progress> {
  // What a resumption has started is executed whatever the limits say: they were asked together with the start.
  if (session.startedByResume.length > 0) return await advanceSteps(session);
  const over = reached(session.rules.limits, session.spent());
  // The same calls again count when the reply is whole, before any of them runs.
  if (over !== undefined) {
    session.end(over);
    return 'over';
  }
  if (openSteps(session).length > 0) return await advanceSteps(session);
  return await nextTurn(session);
}

async function nextTurn(session: ControlSession): Promise<Progress> {
  const { parts, rules } = session;
  await parts.at('deciding');
  const model = turnModel(session);
  let decision: unknown;
  try {
    decision = await rules.agent.decide(session.view(), model.access);
  } catch (error) {
    if (isLost(error)) throw error;
    session.end(session.ending ?? { reason: 'agent_failed', detail: messageOf(error) });
    return 'over';
  } finally {
    model.close();
  }
  if (session.ending !== undefined) {
    session.end(session.ending);
    return 'over';
  }
  await parts.at('decided');
  return recordDecision(session, decision, model.stop());
}

/** As received, before anything of it is looked at closely. */
export function recordDecision(session: ControlSession, decision: unknown, stop: ModelStop | undefined): Progress {
  const read = readDecision(decision);
  const number = session.record.turns.size + 1;
  const partial = stop === undefined || stop === 'end' || stop === 'tool_calls' ? undefined : `the reply ended with ${stop}: nothing of it is acted upon`;
  const fault = read.kind === 'invalid' ? read.fault : partial;
  const created = session.parts.clock();
  const turn = (kind: 'calls' | 'finish' | 'invalid', text: string | null, raw: string | null): PartWrite => ({
    table: 'control_turns',
    insert: { number, kind, stop: stop ?? null, reason: read.reason, decision: text, raw, fault: fault ?? null, created_ms: created },
  });
  if (fault !== undefined) {
    session.write({
      events: [{ kind: 'turn.invalid', data: { turn: number, fault } }],
      add: { turns: 1 },
      fields: { failures: session.record.run.failures + 1 },
      writes: [turn('invalid', null, rawDecision(decision))],
    });
    return 'on';
  }
  if (read.kind === 'finish') {
    const result = canonicalJson(read.result);
    session.end({ reason: 'finished', detail: '' }, 'completed', { add: { turns: 1 }, fields: { result }, writes: [turn('finish', result, null)] });
    return 'over';
  }
  if (read.kind === 'invalid') return 'on';
  const { calls } = read;
  const steps = calls.map((call, index) => proposedStep(session, call, number, session.record.steps.size + index + 1));
  const tooMany = stepsLeft(session.rules.limits, session.spent(), calls.length);
  const ids = canonicalJson({ calls: steps.map(({ call_id: id }) => id) });
  if (tooMany !== undefined) {
    session.end(tooMany, 'failed', {
      add: { turns: 1, steps: steps.length },
      writes: [
        turn('calls', ids, null),
        ...steps.map((step): PartWrite => ({ table: 'control_steps', insert: { ...step, state: 'failed', detail: 'the limit of steps' } })),
      ],
    });
    return 'over';
  }
  session.write({
    events: [{ kind: 'turn.recorded', data: { turn: number, steps: steps.map((step) => step.number) } }],
    add: { turns: 1, steps: steps.length },
    writes: [turn('calls', ids, null), ...steps.map((step): PartWrite => ({ table: 'control_steps', insert: step }))],
  });
  return 'on';
}

function proposedStep(session: ControlSession, call: ProposedCall, turn: number, number: number): Omit<StepRow, 'run_id'> {
  const received = readArguments(call.arguments);
  return {
    number,
    turn,
    call_id: call.id,
    tool: call.tool,
    effect: session.rules.tools.get(call.tool)?.spec.effect ?? null,
    arguments: received.kind === 'json' ? received.request : null,
    raw: received.kind === 'json' ? null : received.raw,
    request_sha256: null,
    spec_sha256: null,
    policy: null,
    state: 'proposed',
    outcome: null,
    observation: null,
    detail: received.kind === 'json' ? null : received.fault,
    evidence: null,
    executions: 0,
    fence: null,
    started_ms: null,
    ended_ms: null,
    late: null,
  };
}

type ReadDecision =
  | { readonly kind: 'calls'; readonly reason: string; readonly calls: readonly ProposedCall[] }
  | { readonly kind: 'finish'; readonly reason: string; readonly result: unknown }
  | { readonly kind: 'invalid'; readonly reason: string; readonly fault: string };

/** What an agent gave, when it has the form of a decision. */
function readDecision(value: unknown): ReadDecision {
  if (typeof value !== 'object' || value === null) return { kind: 'invalid', reason: '', fault: 'the agent decided nothing' };
  const decision = value as Readonly<Record<string, unknown>>;
  const stated = decision['reason'];
  const reason = typeof stated === 'string' && isText(stated) && stated.length <= MAX_REASON ? stated : '';
  const invalid = (fault: string): ReadDecision => ({ kind: 'invalid', reason, fault });
  if (typeof stated !== 'string' || reason !== stated) return invalid('the reason is no text that can be recorded');
  switch (decision['kind']) {
    case 'finish':
      return { kind: 'finish', reason, result: decision['result'] ?? null };
    case 'calls': {
      const calls: unknown = decision['calls'];
      if (!Array.isArray(calls) || calls.length === 0) return invalid('a decision of calls has none');
      if (calls.length > MAX_CALLS) return invalid(`${calls.length} calls in one reply, at most ${MAX_CALLS} are taken`);
      const read: ProposedCall[] = [];
      for (const call of calls as readonly unknown[]) {
        if (!isCall(call)) return invalid('a call has another form');
        read.push(call);
      }
      if (new Set(read.map(({ id }) => id)).size !== read.length) return invalid('two calls of one reply have one id');
      return { kind: 'calls', reason, calls: read };
    }
    default:
      return invalid('the decision is none that is known');
  }
}

function isText(text: string): boolean {
  return !hasLoneSurrogate(text);
}

function isCall(value: unknown): value is ProposedCall {
  if (typeof value !== 'object' || value === null) return false;
  const call = value as Readonly<Record<string, unknown>>;
  const word = (text: unknown): boolean => typeof text === 'string' && text.length > 0 && text.length <= 256 && isText(text);
  return word(call['id']) && word(call['tool']) && (typeof call['arguments'] === 'string' || call['arguments'] instanceof Uint8Array);
}

/** What can be kept of a decision that isn't one, out of band. */
function rawDecision(value: unknown): string | null {
  try {
    const text = JSON.stringify(value, (_, item: unknown) => (item instanceof Uint8Array ? `base64:${Buffer.from(item).toString('base64')}` : item));
    return typeof text === 'string' ? rawOf(text.slice(0, 1024 * 1024)) : null;
  } catch {
    return null;
  }
}
