/** The public library. */
export { DIMENSIONS, type Dimension, type Mode, type ObservedLevel, type PlanLevel } from './core/dimension.ts';
export { ProofrunError, EXIT_CODES } from './core/errors.ts';
export type { ErrorCode } from './core/error-codes.ts';
export { VERSION } from './core/version.ts';
