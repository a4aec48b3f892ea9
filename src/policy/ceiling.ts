import { ProofrunError } from '../core/errors.ts';
import type { Origin } from '../core/job.ts';
import { formatOrigin, type RuleHead } from './rules.ts';

/** A grant that lies above a ceiling. */
export interface Violation {
  readonly dimension: string;
  /** What was granted, in words. */
  readonly what: string;
  readonly grant: Origin;
  readonly ceiling: Origin;
  /** What the ceiling says, in words. */
  readonly limit: string;
  readonly hint: string;
}

/** One error for all grants above ceilings, each with both lines. */
export function ceilingError(violations: readonly [Violation, ...Violation[]]): ProofrunError {
  const lines = violations
    .slice(0, 20)
    .map(({ what, grant, ceiling, limit }) => `${formatOrigin(grant)} grants ${what}, above the ceiling of ${formatOrigin(ceiling)} (${limit})`);
  const more = violations.length > lines.length ? [`and ${String(violations.length - lines.length)} more`] : [];
  return new ProofrunError('ERR_POLICY_CEILING', {
    message: [...lines, ...more].join('\n'),
    hint: violations[0].hint,
    data: { violations: violations.map(({ dimension, what, grant, ceiling, limit, hint }) => ({ dimension, what, grant, ceiling, limit, hint })) },
  });
}

/** `remove job.yaml:12, or change ci.yaml:9`. */
export function eitherLine(grant: Origin, ceiling: Origin): string {
  return `remove ${formatOrigin(grant)}, or have whoever owns ${formatOrigin(ceiling)} allow it there`;
}

/** What a section of a policy says that denies by default, also when it says so by leaving `default_action` out. */
export function denyWords(dimension: Violation['dimension'], section: RuleHead): string {
  return section.defaultStated ? `${dimension} default_action: deny` : `${dimension} has rules and no default_action, which denies by default`;
}
