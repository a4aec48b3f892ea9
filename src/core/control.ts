/**
 * Words of the control runtime: the record of an agent's work, of which every model request and every tool call is decided before it happens.
 * Plain data, shared by the store, the runtime and the command.
 */

/**
 * States of a control run.
 *   running -> waiting -> running ...     waiting: nobody owns it, a person has to decide
 *   running, waiting -> completed | failed | cancelled, which are terminal
 */
export const CONTROL_STATES = ['running', 'waiting', 'completed', 'failed', 'cancelled'] as const;
export type ControlState = (typeof CONTROL_STATES)[number];
export const CONTROL_ENDS: readonly ControlState[] = ['completed', 'failed', 'cancelled'];

/** What a reply was. finish: the agent says that it is done. invalid: nothing of it is acted upon. */
export const TURN_KINDS = ['calls', 'finish', 'invalid'] as const;
export type TurnKind = (typeof TURN_KINDS)[number];

/**
 * States of a step, which is one call that an agent asked for.
 *   proposed -> invalid | denied | waiting | started | failed (the run ended)
 *   waiting  -> denied | started | failed | done (an operator says that it happened)
 *   started  -> done | failed | unknown
 *   unknown  -> waiting | done | failed     it may have happened
 * invalid, denied, done and failed are ends.
 */
export const STEP_STATES = ['proposed', 'invalid', 'denied', 'waiting', 'started', 'unknown', 'done', 'failed'] as const;
export type StepState = (typeof STEP_STATES)[number];
export const STEP_ENDS: readonly StepState[] = ['invalid', 'denied', 'done', 'failed'];

/**
 * How an execution went, as far as anybody knows.
 *   not_sent               nothing left this process
 *   refused                the other side said no before doing anything
 *   answered_ok            it says that it did it
 *   answered_error         it says that it failed
 *   answered_unrecordable  it answered something that can't be recorded
 *   no_answer              it was sent, and nothing came back
 *   cut_off                an answer began and broke off
 */
export const OUTCOMES = ['not_sent', 'refused', 'answered_ok', 'answered_error', 'answered_unrecordable', 'no_answer', 'cut_off'] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** What a tool may do outside, as its operator declares it. Only `read-only` calls run side by side, and only they may be repeated unasked. */
export const EFFECTS = ['read-only', 'side-effect'] as const;
export type Effect = (typeof EFFECTS)[number];

/** call: may this run. unknown_outcome: an execution was cut off; may it run again, or is it over. */
export const APPROVAL_KINDS = ['call', 'unknown_outcome'] as const;
export type ApprovalKind = (typeof APPROVAL_KINDS)[number];

/** pending -> approved | rejected | settled | expired | withdrawn; approved -> used | expired | withdrawn. settled: the operator said how it went. */
export const APPROVAL_STATES = ['pending', 'approved', 'rejected', 'settled', 'used', 'expired', 'withdrawn'] as const;
export type ApprovalState = (typeof APPROVAL_STATES)[number];

/** A model request that was dispatched. reserved: on its way. conservative and orphaned: charged at the reservation. */
export const ATTEMPT_STATES = ['reserved', 'settled', 'conservative', 'orphaned'] as const;
export type ModelAttemptState = (typeof ATTEMPT_STATES)[number];

/** What a person's rejection does. */
export const ON_REJECT = ['deny', 'end'] as const;
export type OnReject = (typeof ON_REJECT)[number];

/** Why a control run ended, but for `finished`. */
export const END_REASONS = [
  'finished',
  'cancelled',
  'limit_steps',
  'limit_failures',
  'limit_loops',
  'limit_model_calls',
  'limit_input_tokens',
  'limit_output_tokens',
  'limit_cost',
  'limit_active_time',
  'limit_elapsed_time',
  'approval_expired',
  'grant_expired',
  'rejected',
  'policy_ended',
  'policy_unknown',
  'outcome_unknown',
  'model_failed',
  'agent_failed',
  'internal_error',
] as const;
export type EndReason = (typeof END_REASONS)[number];
