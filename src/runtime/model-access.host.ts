import { canonicalJson, sha256Hex } from '../core/canonical-json.ts';
import type { ModelAttemptState, Outcome } from '../core/control.ts';
import { messageOf, ProofrunError } from '../core/errors.ts';
import type { JsonValue } from '../core/json.ts';
import type { ControlTotals } from '../store/control-change.host.ts';
import { conservative, costOf, NO_CHARGE, plausible, reservation, type Charge } from './accounting.ts';
import type { ModelAccess } from './contract.ts';
import { projected, timeLeft, timeReached, uncapped, type End } from './limits.ts';
import { MODEL_STOPS, type Model, type ModelOutcome, type ModelReply, type ModelRequest, type ModelStop, type ModelUsage } from './model.ts';
import { deepFreeze } from './request.ts';
import type { ControlSession } from './session.host.ts';

const DEFAULT_RETRIES = 2;
const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 30_000;
const LOOK_MS = 200;

/** The agent's model for one turn, and what the runtime saw of it. */
export interface TurnModel {
  readonly access: ModelAccess;
  /** How the last reply of this turn ended; undefined: no model was asked. */
  readonly stop: () => ModelStop | undefined;
  /** After this nothing can be asked any more. */
  readonly close: () => void;
}

/**
 * A way to the model under the run's limits. The request and its projected charge are on disk before anything is sent; every dispatch is a row of
 * its own; what isn't known afterwards is charged in full.
 */
export function turnModel(session: ControlSession, onText?: (text: string) => void): TurnModel {
  let open = true;
  let stop: ModelStop | undefined;
  let queue: Promise<unknown> = Promise.resolve();
  const ask = async (request: ModelRequest): Promise<ModelReply> => {
    const { model } = session.rules;
    if (!open) throw new ProofrunError('ERR_RUN_STATE', { message: 'the turn is over: nothing is asked of the model now', hint: 'ask within decide()' });
    if (model === undefined) throw ended(session, { reason: 'agent_failed', detail: 'the agent asked a model, and the run has none' });
    stop = undefined;
    const reply = await askModel(session, model, request, onText);
    stop = reply.stop;
    return reply;
  };
  return {
    access: {
      // One after the other: a reservation is judged against what was charged before.
      ask: (request) => {
        const next = queue.then(() => ask(request));
        queue = next.catch(() => undefined);
        return next;
      },
    },
    stop: () => stop,
    close: () => {
      open = false;
    },
  };
}

async function askModel(session: ControlSession, model: Model, given: ModelRequest, onText?: (text: string) => void): Promise<ModelReply> {
  const { rules } = session;
  let canonical: string;
  try {
    canonical = canonicalJson(given);
  } catch (error) {
    throw ended(session, { reason: 'internal_error', detail: `a model request that does not encode: ${messageOf(error)}` });
  }
  const request = deepFreeze(JSON.parse(canonical) as ModelRequest);
  const fault = uncapped(rules.limits, request.max_output_tokens);
  if (fault !== undefined) throw ended(session, { reason: 'agent_failed', detail: `model request refused: ${fault}` });
  const price = model.price(request.model);
  if (price === undefined && rules.limits.costNanoUsd !== undefined) {
    throw ended(session, { reason: 'agent_failed', detail: `model request refused: a limit of cost needs a price of ${request.model}, and none is known` });
  }
  const requestBytes = Buffer.byteLength(canonical);
  const reserved = reservation(requestBytes, request.max_output_tokens, price);
  const retries = rules.limits.retries ?? DEFAULT_RETRIES;
  for (let tries = 0; ; tries += 1) {
    const spent = session.spent();
    const end = timeReached(rules.limits, spent) ?? projected(rules.limits, spent, reserved);
    if (end !== undefined) throw ended(session, end);
    const number = reserve(session, request, canonical, reserved);
    const outcome = await dispatch(session, { model, request, canonical, number, reserved, price, requestBytes, onText });
    if (outcome.kind === 'reply') return deepFreeze(outcome.reply);
    const again = outcome.kind === 'refused' ? outcome.retryable : true;
    if (!again || tries >= retries) throw ended(session, { reason: 'model_failed', detail: `${outcome.kind}: ${outcome.detail}` });
    await holdBack(session, Math.min(LONGEST_DELAY_MS, outcome.retryAfterMs ?? FIRST_DELAY_MS * 2 ** tries));
  }
}

/** Waits before the next try; never past a limit of time. */
async function holdBack(session: ControlSession, delayMs: number): Promise<void> {
  const { limits } = session.rules;
  const left = timeLeft(limits, session.spent());
  if (left !== undefined && delayMs >= left) {
    const elapsed = limits.elapsedMs !== undefined && limits.elapsedMs - session.spent().elapsedMs <= delayMs;
    throw ended(session, {
      reason: elapsed ? 'limit_elapsed_time' : 'limit_active_time',
      detail: `the next try would come after ${delayMs} ms, and ${left} ms are left`,
    });
  }
  await session.parts.pause(delayMs, session.signal);
}

/** Marks the run as ending, so that an agent that swallows the rejection changes nothing. */
function ended(session: ControlSession, end: End): ProofrunError {
  session.ending ??= end;
  return new ProofrunError('ERR_LIMIT', { message: `${end.reason}: ${end.detail}`, hint: `job show ${session.runId}` });
}

function reserve(session: ControlSession, request: ModelRequest, canonical: string, reserved: Charge): number {
  const number = session.record.attempts.size + 1;
  const now = session.parts.clock();
  session.write(
    {
      events: [{ kind: 'model.dispatched', data: { attempt: number, model: request.model, reserved_cost_nano_usd: reserved.costNanoUsd } }],
      add: { modelCalls: 1, ...totalsOf(reserved) },
      writes: [
        {
          table: 'control_attempts',
          insert: {
            number,
            turn: session.record.turns.size + 1,
            model: request.model,
            state: 'reserved',
            request_sha256: sha256Hex(canonical),
            reserved_input: reserved.inputTokens,
            reserved_output: reserved.outputTokens,
            reserved_cost: reserved.costNanoUsd,
            charged_input: reserved.inputTokens,
            charged_output: reserved.outputTokens,
            charged_cost: reserved.costNanoUsd,
            usage: null,
            outcome: null,
            detail: null,
            fence: session.fence,
            created_ms: now,
            settled_ms: null,
          },
        },
      ],
    },
    true,
  );
  return number;
}

interface Dispatch {
  readonly model: Model;
  readonly request: ModelRequest;
  readonly canonical: string;
  readonly number: number;
  readonly reserved: Charge;
  readonly price: ReturnType<Model['price']>;
  readonly requestBytes: number;
  readonly onText: ((text: string) => void) | undefined;
}

async function dispatch(session: ControlSession, plan: Dispatch): Promise<ModelOutcome> {
  const { parts } = session;
  await parts.at('model-sent');
  const abort = new AbortController();
  const left = timeLeft(session.rules.limits, session.spent());
  const timer = left === undefined ? undefined : setTimeout(() => abort.abort(new Error('a limit of time')), Math.min(left, 2 ** 31 - 1));
  const look = setInterval(() => {
    if (!session.stillOurs()) abort.abort(new Error('the run is over or has another owner'));
  }, LOOK_MS);
  let outcome: ModelOutcome;
  try {
    const answer = plan.model.dispatch({
      request: plan.request,
      canonical: plan.canonical,
      attempt: `${session.runId}/m${plan.number}`,
      signal: abort.signal,
      ...(plan.onText === undefined ? {} : { onText: plan.onText }),
    });
    outcome = readOutcome(await Promise.race([answer, aborted(abort.signal)]));
  } catch (error) {
    outcome = { kind: 'no_answer', detail: messageOf(error) };
  } finally {
    clearTimeout(timer);
    clearInterval(look);
  }
  await parts.at('model-answered');
  settleAttempt(session, plan, outcome);
  return outcome;
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(new Error(`no answer: ${messageOf(signal.reason)}`)), { once: true });
  });
}

/** What a model gave, when it has the form of an outcome; else nothing usable came. */
function readOutcome(value: unknown): ModelOutcome {
  const fault = (detail: string): ModelOutcome => ({ kind: 'no_answer', detail });
  if (typeof value !== 'object' || value === null || !('kind' in value)) return fault('the model gave no outcome');
  if (value.kind !== 'reply') {
    return ['not_sent', 'no_answer', 'cut_off', 'refused'].includes(String(value.kind)) && 'detail' in value && typeof value.detail === 'string'
      ? (value as ModelOutcome)
      : fault('the model gave an outcome that is not known');
  }
  const { reply } = value as { readonly reply?: Partial<ModelReply> };
  const calls: unknown = reply?.calls;
  if (
    reply === undefined ||
    !MODEL_STOPS.some((stop) => stop === reply.stop) ||
    typeof reply.text !== 'string' ||
    !Array.isArray(calls) ||
    !calls.every((call: unknown) => isCall(call))
  ) {
    return fault('the model gave a reply of another form');
  }
  return value as ModelOutcome;
}

function isCall(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const call = value as Readonly<Record<string, unknown>>;
  return typeof call['id'] === 'string' && typeof call['tool'] === 'string' && typeof call['arguments'] === 'string';
}

interface Settlement {
  readonly charge: Charge;
  readonly state: ModelAttemptState;
  readonly outcome: Outcome;
}

/** What a dispatch is charged once it is over. Usage that can't be right is not believed. */
function settlementOf(plan: Dispatch, outcome: ModelOutcome): Settlement {
  const facts = { requestBytes: plan.requestBytes, reserved: plan.reserved, maxOutputTokens: plan.request.max_output_tokens };
  const told = (usage: ModelUsage): Charge => ({ ...usage, costNanoUsd: costOf(plan.price, usage.inputTokens, usage.outputTokens) });
  switch (outcome.kind) {
    case 'not_sent':
      return { charge: NO_CHARGE, state: 'settled', outcome: 'not_sent' };
    case 'refused':
      if (outcome.usage === undefined) return { charge: NO_CHARGE, state: 'settled', outcome: 'refused' };
      return plausible(outcome.usage, { ...facts, reply: undefined })
        ? { charge: told(outcome.usage), state: 'settled', outcome: 'refused' }
        : { charge: conservative(plan.reserved, undefined, plan.price), state: 'conservative', outcome: 'refused' };
    case 'no_answer':
    case 'cut_off':
      return { charge: conservative(plan.reserved, undefined, plan.price), state: 'conservative', outcome: outcome.kind };
    case 'reply': {
      const { usage } = outcome.reply;
      return plausible(usage, { ...facts, reply: outcome.reply })
        ? { charge: told(usage), state: 'settled', outcome: 'answered_ok' }
        : { charge: conservative(plan.reserved, outcome.reply, plan.price), state: 'conservative', outcome: 'answered_ok' };
    }
  }
}

function settleAttempt(session: ControlSession, plan: Dispatch, outcome: ModelOutcome): void {
  const { charge, state, outcome: word } = settlementOf(plan, outcome);
  const usage: JsonValue = outcome.kind === 'reply' ? reported(outcome.reply.usage) : outcome.kind === 'refused' ? reported(outcome.usage ?? null) : null;
  // Refused when the run is cancelled or went to another owner: whoever ended it has charged the reservation in full.
  session.write({
    events: [{ kind: 'model.settled', data: { attempt: plan.number, state, outcome: word, charged_cost_nano_usd: charge.costNanoUsd } }],
    add: {
      inputTokens: charge.inputTokens - plan.reserved.inputTokens,
      outputTokens: charge.outputTokens - plan.reserved.outputTokens,
      costNanoUsd: charge.costNanoUsd - plan.reserved.costNanoUsd,
    },
    writes: [
      {
        table: 'control_attempts',
        key: plan.number,
        from: ['reserved'],
        set: {
          state,
          charged_input: charge.inputTokens,
          charged_output: charge.outputTokens,
          charged_cost: charge.costNanoUsd,
          usage: usage === null ? null : canonicalJson(usage),
          outcome: word,
          detail: outcome.kind === 'reply' ? null : outcome.detail,
          settled_ms: session.parts.clock(),
        },
      },
    ],
  });
}

function reported(usage: ModelUsage | null): JsonValue {
  if (usage === null) return null;
  // Whatever was said, as far as it can be written down.
  const word = (value: unknown): JsonValue => (Number.isSafeInteger(value) ? (value as number) : String(value).slice(0, 100));
  return { input_tokens: word(usage.inputTokens), output_tokens: word(usage.outputTokens) };
}

function totalsOf(charge: Charge): ControlTotals {
  return { inputTokens: charge.inputTokens, outputTokens: charge.outputTokens, costNanoUsd: charge.costNanoUsd };
}
