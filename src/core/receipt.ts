import type { Dimension } from './dimension.ts';
import type { JsonValue } from './json.ts';

/** Who said it: the shim over its control channel, the kernel through the host's /proc, or a container engine. */
export type ReceiptSource = 'shim' | 'proc' | 'engine';
/** gate: everything is installed, the command has not started. end: the tree is dead and the sandbox is being taken down. */
export type ReceiptPhase = 'gate' | 'end';

/**
 * One fact read back about an installed control. `value` of a probe is the errno name that the attempt met
 * (`EACCES`), or `ok` when the attempt succeeded, which means that the rule does not hold.
 */
export interface ReceiptFact {
  /** Stable name, `area.fact`, such as `mount.table` or `probe.network.abstract_socket`. */
  readonly id: string;
  readonly kind: 'fact' | 'probe';
  readonly source: ReceiptSource;
  readonly phase: ReceiptPhase;
  /** Where it was read: a file of /proc and the process, a system call and its argument, an engine field. */
  readonly readFrom: string;
  readonly value: JsonValue;
}

/** What a receipt has to say for its control to count as installed. */
export type Expectation =
  | { readonly kind: 'equals'; readonly value: JsonValue }
  | { readonly kind: 'differs'; readonly from: JsonValue }
  | { readonly kind: 'at_least'; readonly value: number }
  | { readonly kind: 'at_most'; readonly value: number }
  /** A probe: the errnos that count as refusal; anything else, `ok` included, does not. */
  | { readonly kind: 'refused'; readonly errnos: readonly string[] };

/** A receipt that a control of a dimension owes. The same receipt may be owed by more than one dimension. */
export interface ReceiptRequirement {
  readonly id: string;
  readonly dimension: Dimension;
  readonly control: string;
  readonly phase: ReceiptPhase;
  readonly expect: Expectation;
}

const minted = new WeakSet();

/**
 * A ReceiptFact that a parser of shim, /proc or engine output made in this process. There is no other way to get one:
 * `mintReceipt` may be imported by those parsers only (eslint.config.js and test/unit/import-edges.test.ts hold the list).
 */
export interface Receipt extends ReceiptFact {
  readonly __receipt: never;
}

/** For parsers of shim, /proc and engine output only. */
export function mintReceipt(fact: ReceiptFact): Receipt {
  const frozen = Object.freeze({ ...fact });
  minted.add(frozen);
  return frozen as Receipt;
}

/** True for a value that mintReceipt made in this process; a look-alike object is not one. */
export function isReceipt(value: unknown): value is Receipt {
  return typeof value === 'object' && value !== null && minted.has(value);
}
