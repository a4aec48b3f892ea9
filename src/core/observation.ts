import type { Dimension, ObservedLevel, PerDimension } from './dimension.ts';
import type { ReceiptFact, ReceiptRequirement } from './receipt.ts';

/** How one owed receipt turned out. */
export interface RequirementOutcome {
  readonly id: string;
  readonly control: string;
  readonly phase: 'gate' | 'end';
  readonly kind: 'fact' | 'probe';
  readonly status: 'matched' | 'differs' | 'missing';
}

export interface DimensionObservation {
  readonly level: ObservedLevel;
  readonly scope: string;
  readonly outcomes: readonly RequirementOutcome[];
}

/**
 * Returned by the executor at teardown. `receipts` and `requirements` are kept whole, so that every level
 * can be recomputed offline by `job verify`.
 */
export interface ExecutorObservations {
  readonly contract: 1;
  readonly executor: string;
  readonly dimensions: PerDimension<DimensionObservation>;
  readonly requirements: readonly ReceiptRequirement[];
  readonly receipts: readonly ReceiptFact[];
}

export type GateDecision =
  | { readonly kind: 'release' }
  | { readonly kind: 'refuse'; readonly missing: readonly { readonly dimension: Dimension; readonly outcome: RequirementOutcome }[] };
