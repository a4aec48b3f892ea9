/**
 * States of a run. refused, finished, failed and interrupted are terminal.
 *   recorded -> preparing -> gate -> running -> finishing -> finished
 *   any of the middle ones -> failed (evidence missing, control lost, launch failure) or interrupted (owner died)
 */
export const RUN_STATES = ['refused', 'recorded', 'preparing', 'gate', 'running', 'finishing', 'finished', 'failed', 'interrupted'] as const;
export type RunState = (typeof RUN_STATES)[number];
export const TERMINAL_STATES: readonly RunState[] = ['refused', 'finished', 'failed', 'interrupted'];

/** State of what a run staged. none: nothing to apply. dropped is terminal; applied ends by an undo only. */
export const STAGE_STATES = ['none', 'staged', 'partly_applied', 'applied', 'dropped'] as const;
export type StageState = (typeof STAGE_STATES)[number];

/** How the command ended. `first cause wins`. */
export type Ending =
  | { readonly kind: 'exit'; readonly code: number }
  | { readonly kind: 'signal'; readonly signal: string; readonly number: number }
  | { readonly kind: 'timeout'; readonly afterMs: number }
  | { readonly kind: 'limit'; readonly limit: string }
  | { readonly kind: 'not_found' | 'not_executable'; readonly errno: string }
  | { readonly kind: 'refused' | 'evidence_missing' | 'control_lost' | 'launch_failed' | 'interrupted'; readonly detail: string };
