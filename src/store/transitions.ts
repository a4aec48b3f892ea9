import { TERMINAL_STATES, type RunState, type StageState } from '../core/run.ts';

const ORDER: readonly RunState[] = ['recorded', 'preparing', 'gate', 'running', 'finishing'];

/** Forward only, steps may be left out; `finished`, `failed` and `interrupted` end a run from any living state; nothing leaves an end. */
export function mayMove(from: RunState, to: RunState): boolean {
  if (TERMINAL_STATES.includes(from) || to === 'refused') return false;
  return TERMINAL_STATES.includes(to) || ORDER.indexOf(to) > ORDER.indexOf(from);
}

/** `dropped` is terminal; what was applied is staged again when the apply is undone; a run without a stage never gets one later. */
export function mayRestage(from: StageState, to: StageState): boolean {
  if (from === 'staged' || from === 'partly_applied') return to !== 'none';
  return from === 'applied' && (to === 'staged' || to === 'partly_applied');
}

export function isTerminal(state: RunState): boolean {
  return TERMINAL_STATES.includes(state);
}
