import type { EndReason } from '../core/control.ts';
import { ProofrunError } from '../core/errors.ts';
import type { Charge } from './accounting.ts';
import type { ControlLimits } from './contract.ts';
import type { ModelPrice } from './model.ts';

/** A reason to end, with its words. */
export interface End {
  readonly reason: EndReason;
  readonly detail: string;
}

/** What of a run the limits look at. Times are milliseconds. */
export interface Spent {
  readonly steps: number;
  readonly failures: number;
  readonly modelCalls: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly costNanoUsd: number;
  readonly activeMs: number;
  readonly elapsedMs: number;
  /** Replies running, counted from the last, that asked for the same calls. */
  readonly repeats: number;
}

function over(reason: EndReason, what: string, limit: number | undefined, value: number): End | undefined {
  return limit !== undefined && value >= limit ? { reason, detail: `${what}: ${value} of ${limit}` } : undefined;
}

/** The first limit of time that is reached. */
export function timeReached(limits: ControlLimits, spent: Spent): End | undefined {
  return (
    over('limit_elapsed_time', 'milliseconds since the start', limits.elapsedMs, spent.elapsedMs) ??
    over('limit_active_time', 'active milliseconds', limits.activeMs, spent.activeMs)
  );
}

/** The first limit that is reached, before anything more is done. */
export function reached(limits: ControlLimits, spent: Spent): End | undefined {
  return (
    timeReached(limits, spent) ??
    over('limit_failures', 'consecutive failures', limits.failures, spent.failures) ??
    over('limit_loops', 'replies with the same calls', limits.loops, spent.repeats)
  );
}

/** Whether another step may begin. */
export function stepsLeft(limits: ControlLimits, spent: Spent, wanted: number): End | undefined {
  if (limits.steps === undefined || spent.steps + wanted <= limits.steps) return undefined;
  return { reason: 'limit_steps', detail: `steps: ${spent.steps} of ${limits.steps}, and ${wanted} more were asked for` };
}

/** Whether a model request may be sent: the limit is never crossed by it, whatever comes back. */
export function projected(limits: ControlLimits, spent: Spent, charge: Charge): End | undefined {
  const crossed = (reason: EndReason, what: string, limit: number | undefined, value: number, more: number): End | undefined =>
    limit !== undefined && value + more > limit ? { reason, detail: `${what}: ${value} of ${limit}, and the next request may take ${more}` } : undefined;
  return (
    crossed('limit_model_calls', 'model requests', limits.modelCalls, spent.modelCalls, 1) ??
    crossed('limit_input_tokens', 'input tokens', limits.inputTokens, spent.inputTokens, charge.inputTokens) ??
    crossed('limit_output_tokens', 'output tokens', limits.outputTokens, spent.outputTokens, charge.outputTokens) ??
    crossed('limit_cost', 'nano-dollars', limits.costNanoUsd, spent.costNanoUsd, charge.costNanoUsd)
  );
}

/** Milliseconds that are left until a limit of time, or undefined. */
export function timeLeft(limits: ControlLimits, spent: Spent): number | undefined {
  const left = [
    ...(limits.activeMs === undefined ? [] : [limits.activeMs - spent.activeMs]),
    ...(limits.elapsedMs === undefined ? [] : [limits.elapsedMs - spent.elapsedMs]),
  ];
  return left.length === 0 ? undefined : Math.max(0, Math.min(...left));
}

/** Why a request without an output cap can't be sent, or undefined. */
export function uncapped(limits: ControlLimits, maxOutputTokens: number | null): string | undefined {
  if (maxOutputTokens !== null) return Number.isSafeInteger(maxOutputTokens) && maxOutputTokens >= 1 ? undefined : 'the output cap is no whole number above 0';
  if (limits.outputTokens !== undefined) return 'a limit of output tokens needs an output cap';
  return limits.costNanoUsd === undefined ? undefined : 'a limit of cost needs an output cap';
}

/** Refuses limits that nothing could hold, before anything is recorded. ERR_USAGE. */
export function checkLimits(
  limits: ControlLimits,
  model: { readonly name: string; readonly price: ModelPrice | undefined; readonly maxOutputTokens: number | null } | undefined,
): void {
  for (const [name, value] of Object.entries(limits) as [string, number | undefined][]) {
    if (value === undefined) continue;
    if (!Number.isSafeInteger(value) || value < (name === 'retries' ? 0 : 1)) {
      throw new ProofrunError('ERR_USAGE', {
        message: `limit ${name}: expected a whole number from 1, received ${String(value)}`,
        hint: 'write a whole number',
      });
    }
  }
  if (model === undefined) return;
  if (limits.costNanoUsd !== undefined && model.price === undefined) {
    throw new ProofrunError('ERR_USAGE', {
      message: `a limit of cost needs a price of the model ${model.name}, and none is known`,
      hint: 'state model.price, or take the limit out',
    });
  }
  const fault = uncapped(limits, model.maxOutputTokens);
  if (fault !== undefined) throw new ProofrunError('ERR_USAGE', { message: `${fault}, and the model has none`, hint: 'state model.max_output_tokens' });
}
