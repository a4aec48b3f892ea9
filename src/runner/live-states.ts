import { RUN_STATES, TERMINAL_STATES, type RunState } from '../core/run.ts';

/** States of a run that isn't over. */
export const RUN_LIVING: readonly RunState[] = RUN_STATES.filter((state) => !TERMINAL_STATES.includes(state));
