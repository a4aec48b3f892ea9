import { canonicalJson } from '../core/canonical-json.ts';
import type { Outcome } from '../core/control.ts';
import { messageOf } from '../core/errors.ts';
import type { JsonObject } from '../core/json.ts';
import { parseStrictJson } from '../core/strict-json.ts';
import type { StepRow } from '../store/index.ts';
import type { ToolAnswer, ToolCall } from './contract.ts';
import { timeLeft } from './limits.ts';
import { deepFreeze } from './request.ts';
import { isLost, type ControlSession } from './session.host.ts';
import type { CompiledTool } from './tool-schemas.ts';

/** What is recorded of an execution. Texts are canonical JSON. */
export interface Recorded {
  readonly outcome: Outcome;
  readonly observation: string | null;
  readonly detail: string | null;
  readonly evidence: string | null;
}

/** How often a running effect looks whether the run is still ours, in milliseconds. */
const LOOK_MS = 200;
const LONGEST_TIMER_MS = 2 ** 31 - 1;

const OUTCOMES_OF_TOOLS: readonly Outcome[] = ['not_sent', 'refused', 'answered_ok', 'answered_error', 'no_answer', 'cut_off'];

/**
 * Executes one started step and records how it went. What comes after its time, after a cancel, or after the run went to another owner is recorded
 * as late. Rejects only with faults of the store.
 */
export async function executeStep(session: ControlSession, compiled: CompiledTool, step: StepRow, request: string): Promise<void> {
  const { parts } = session;
  await parts.at('tool-started');
  const abort = new AbortController();
  const stop = (why: unknown): void => {
    abort.abort(why);
  };
  const lost = (): void => {
    stop(session.signal.reason);
  };
  session.signal.addEventListener('abort', lost, { once: true });
  if (session.signal.aborted) lost();
  const call: ToolCall = {
    runId: session.runId,
    step: step.number,
    operation: `${session.runId}/${step.number}`,
    execution: step.executions,
    arguments: deepFreeze(parseStrictJson(request)),
    request,
    signal: abort.signal,
  };
  const answer = run(compiled, call);
  const limit = Math.min(compiled.spec.timeoutMs, timeLeft(session.rules.limits, session.spent()) ?? compiled.spec.timeoutMs, LONGEST_TIMER_MS);
  const waited = await wait(session, answer, limit, stop);
  session.signal.removeEventListener('abort', lost);
  await parts.at('tool-answered');
  if (waited.kind === 'answered') {
    settle(session, compiled, step, waited.recorded);
    return;
  }
  // Nobody waits any more; what the effect did is recorded all the same when it comes.
  track(session, answer, step, waited.recorded);
  if (waited.kind === 'timeout') settle(session, compiled, step, waited.recorded);
}

/** Never rejects. */
async function run(compiled: CompiledTool, call: ToolCall): Promise<Recorded> {
  let answer: ToolAnswer;
  try {
    answer = await compiled.tool.execute(call);
  } catch (error) {
    answer = { outcome: 'no_answer', value: undefined, detail: messageOf(error) };
  }
  return recordable(answer);
}

/** An answer as it is recorded. One that doesn't encode isn't: no other value stands in for it. */
export function recordable(answer: ToolAnswer): Recorded {
  try {
    const outcome = OUTCOMES_OF_TOOLS.find((one) => one === answer.outcome);
    if (outcome === undefined) {
      return { outcome: 'answered_unrecordable', observation: null, detail: `outcome ${JSON.stringify(answer.outcome)} is none`, evidence: null };
    }
    // Also text that has no UTF-8 form is nothing that can be recorded.
    canonicalJson(answer.detail ?? null);
    return {
      outcome,
      observation: answer.value === undefined && outcome !== 'answered_ok' ? null : canonicalJson(answer.value),
      detail: answer.detail ?? null,
      evidence: answer.evidence === undefined ? null : canonicalJson(answer.evidence),
    };
  } catch (error) {
    return { outcome: 'answered_unrecordable', observation: null, detail: messageOf(error), evidence: null };
  }
}

type Waited = { readonly kind: 'answered'; readonly recorded: Recorded } | { readonly kind: 'timeout' | 'lost'; readonly recorded: Recorded };

async function wait(session: ControlSession, answer: Promise<Recorded>, limitMs: number, stop: (why: unknown) => void): Promise<Waited> {
  let timer: NodeJS.Timeout | undefined;
  let look: NodeJS.Timeout | undefined;
  let onAbort: (() => void) | undefined;
  try {
    return await Promise.race([
      answer.then((recorded): Waited => ({ kind: 'answered', recorded })),
      new Promise<Waited>((resolve) => {
        timer = setTimeout(() => {
          const detail = `no answer within ${limitMs} ms`;
          stop(new Error(detail));
          resolve({ kind: 'timeout', recorded: { outcome: 'no_answer', observation: null, detail, evidence: null } });
        }, limitMs);
        const lose = (): void => {
          const detail = 'the run ended, or went to another owner, while this was on its way';
          stop(new Error(detail));
          resolve({ kind: 'lost', recorded: { outcome: 'no_answer', observation: null, detail, evidence: null } });
        };
        look = setInterval(() => {
          if (!session.stillOurs()) lose();
        }, LOOK_MS);
        onAbort = lose;
        session.signal.addEventListener('abort', lose, { once: true });
        if (session.signal.aborted) lose();
      }),
    ]);
  } finally {
    clearTimeout(timer);
    clearInterval(look);
    if (onAbort !== undefined) session.signal.removeEventListener('abort', onAbort);
  }
}

/** States after an execution: a side effect of which nobody knows is neither done nor failed. */
function stateAfter(compiled: CompiledTool, outcome: Outcome): 'done' | 'failed' | 'unknown' {
  if (outcome === 'answered_ok') return 'done';
  const silent = outcome === 'no_answer' || outcome === 'cut_off';
  return silent && compiled.spec.effect !== 'read-only' ? 'unknown' : 'failed';
}

function settle(session: ControlSession, compiled: CompiledTool, step: StepRow, recorded: Recorded): void {
  const now = session.parts.clock();
  const state = stateAfter(compiled, recorded.outcome);
  const { failures } = session.record.run;
  const set = { state, outcome: recorded.outcome, observation: recorded.observation, detail: recorded.detail, evidence: recorded.evidence, ended_ms: now };
  const write = { table: 'control_steps' as const, key: step.number, from: ['started' as const], set };
  const event = { kind: 'step.settled', data: { step: step.number, state, outcome: recorded.outcome } };
  try {
    if (recorded.outcome === 'answered_unrecordable') {
      session.end(
        { reason: 'internal_error', detail: `step ${step.number}: what ${compiled.spec.name} answered can't be recorded: ${recorded.detail ?? ''}` },
        'failed',
        {
          writes: [write],
        },
      );
      return;
    }
    session.write({ events: [event], fields: { failures: state === 'done' ? 0 : state === 'failed' ? failures + 1 : failures }, writes: [write] });
  } catch (error) {
    if (!isLost(error)) throw error;
    recordLate(session, step.number, recorded);
    throw error;
  }
}

/** How an execution went that a loop of somebody else's made. When the run is over or lost, it is recorded as late. */
export function settleOutside(session: ControlSession, compiled: CompiledTool, step: StepRow, answer: ToolAnswer): void {
  settle(session, compiled, step, recordable(answer));
}

/** Waits for an answer that nobody waits for, and records it. */
function track(session: ControlSession, answer: Promise<Recorded>, step: StepRow, before: Recorded): void {
  const late = (async () => {
    const recorded = await answer;
    await session.parts.at('late');
    if (recorded.outcome === before.outcome && recorded.observation === null && recorded.evidence === null) return;
    recordLate(session, step.number, recorded);
  })();
  const settled: Promise<void> = late.then(
    () => undefined,
    () => undefined,
  );
  session.inFlight.add(settled);
  void settled.then(() => session.inFlight.delete(settled));
}

/** Whoever owns the run now, and whether it is over or not: what a side effect did is part of its record. */
export function recordLate(session: ControlSession, step: number, recorded: Recorded): void {
  const { store, clock, observe } = session.parts;
  const late: JsonObject = {
    outcome: recorded.outcome,
    at_ms: clock(),
    ...(recorded.observation === null ? {} : { observation: parseStrictJson(recorded.observation) }),
    ...(recorded.detail === null ? {} : { detail: recorded.detail }),
    ...(recorded.evidence === null ? {} : { evidence: parseStrictJson(recorded.evidence) }),
  };
  const events = [{ kind: 'step.late', data: { step, outcome: recorded.outcome } }];
  const changed = store.change(session.runId, {
    guard: { states: ['running', 'waiting', 'completed', 'failed', 'cancelled'] },
    events,
    writes: [
      {
        table: 'control_steps',
        key: step,
        from: ['proposed', 'invalid', 'denied', 'waiting', 'started', 'unknown', 'done', 'failed'],
        set: { late: canonicalJson(late) },
      },
    ],
  });
  session.record.absorb(changed);
  observe(session.runId, events);
}
