import { isDeepStrictEqual } from 'node:util';
import { perDimension, type Dimension, type PerDimension } from '../core/dimension.ts';
import type { DimensionObservation, GateDecision, RequirementOutcome } from '../core/observation.ts';
import type { ControlId } from '../core/plan.ts';
import { isReceipt, type Expectation, type Receipt, type ReceiptFact, type ReceiptPhase, type ReceiptRequirement } from '../core/receipt.ts';
import { OWED } from './controls.ts';

/** What the lowering says about one receipt of a control. */
export interface ExpectedReceipt {
  readonly control: ControlId;
  readonly id: string;
  readonly phase: ReceiptPhase;
  readonly expect: Expectation;
}

/** Nothing meets it: a receipt that is owed but for which the lowering states no value keeps its control from counting. */
const UNMET: Expectation = { kind: 'refused', errnos: [] };

/**
 * Everything that is owed for the planned controls: the table's receipts and those that the lowering adds. An owed receipt
 * that the lowering forgot stays in the list, unmet.
 */
export function requireReceipts(controls: PerDimension<readonly ControlId[]>, expected: readonly ExpectedReceipt[]): readonly ReceiptRequirement[] {
  const stated = new Map<string, ExpectedReceipt[]>();
  for (const one of expected) {
    const list = stated.get(one.control);
    if (list === undefined) stated.set(one.control, [one]);
    else list.push(one);
  }
  const requirements: ReceiptRequirement[] = [];
  for (const [dimension, list] of Object.entries(controls) as [Dimension, readonly ControlId[]][]) {
    for (const control of list) {
      const own = stated.get(control) ?? [];
      for (const one of own) requirements.push({ id: one.id, dimension, control, phase: one.phase, expect: one.expect });
      for (const owed of OWED[control]) {
        if (own.some((one) => one.id === owed.id && one.phase === owed.phase)) continue;
        requirements.push({ id: owed.id, dimension, control, phase: owed.phase, expect: UNMET });
      }
    }
  }
  return requirements;
}

function meets(expect: Expectation, fact: ReceiptFact): boolean {
  switch (expect.kind) {
    case 'equals':
      return isDeepStrictEqual(fact.value, expect.value);
    case 'differs':
      return fact.value !== null && !isDeepStrictEqual(fact.value, expect.from);
    case 'at_least':
      return typeof fact.value === 'number' && fact.value >= expect.value;
    case 'at_most':
      return typeof fact.value === 'number' && fact.value <= expect.value;
    case 'refused':
      return fact.kind === 'probe' && typeof fact.value === 'string' && expect.errnos.includes(fact.value);
  }
}

type FactIndex = ReadonlyMap<string, readonly ReceiptFact[]>;

const keyOf = (id: string, phase: ReceiptPhase): string => `${phase}\0${id}`;

function indexFacts(receipts: readonly ReceiptFact[]): FactIndex {
  const index = new Map<string, ReceiptFact[]>();
  for (const fact of receipts) {
    const key = keyOf(fact.id, fact.phase);
    const list = index.get(key);
    if (list === undefined) index.set(key, [fact]);
    else list.push(fact);
  }
  return index;
}

/** A receipt that was taken twice must hold both times. */
function judge(requirement: ReceiptRequirement, facts: FactIndex): RequirementOutcome {
  const taken = facts.get(keyOf(requirement.id, requirement.phase)) ?? [];
  const status = taken.length === 0 ? 'missing' : taken.every((fact) => meets(requirement.expect, fact)) ? 'matched' : 'differs';
  const kind = requirement.expect.kind === 'refused' && requirement.id.startsWith('probe.') ? 'probe' : 'fact';
  return { id: requirement.id, control: requirement.control, phase: requirement.phase, kind, status };
}

/** Controls that open something and restrict nothing: their receipts are owed at the gate, and never make a level. */
const OPENING: ReadonlySet<string> = new Set<ControlId>(['network_public']);

/** Controls that the command can go around: at best they make a dimension cooperative. */
const AVOIDABLE: ReadonlySet<string> = new Set<ControlId>(['proxy_offered']);

/**
 * The levels, from receipts alone: enforced when something is owed and everything owed was taken and matches, cooperative when the command
 * can go around one of the controls, else unenforced.
 * Scopes are words; they decide nothing. Works on receipts of this process and on recorded ones, so `job verify` repeats it offline.
 */
export function deriveObservations(
  requirements: readonly ReceiptRequirement[],
  receipts: readonly ReceiptFact[],
  scopes: PerDimension<string>,
): PerDimension<DimensionObservation> {
  const facts = indexFacts(receipts);
  return perDimension((dimension) => {
    const outcomes = requirements.filter((one) => one.dimension === dimension).map((one) => judge(one, facts));
    const restricts = outcomes.some((one) => !OPENING.has(one.control));
    const installed = restricts && outcomes.every((one) => one.status === 'matched');
    const level = !installed ? 'unenforced' : outcomes.some((one) => AVOIDABLE.has(one.control)) ? 'cooperative' : 'enforced';
    return { level, scope: scopes[dimension], outcomes };
  });
}

/**
 * Whether the command may start: every needed dimension owes something at the gate, and all of it was taken by parsers of this
 * process and matches. A look-alike object is no receipt.
 */
export function decideGate(needed: readonly Dimension[], requirements: readonly ReceiptRequirement[], receipts: readonly Receipt[]): GateDecision {
  const facts = indexFacts(receipts.filter(isReceipt));
  const missing = needed.flatMap((dimension) => {
    const owed = requirements.filter((one) => one.dimension === dimension && one.phase === 'gate');
    if (owed.length === 0) {
      const outcome: RequirementOutcome = { id: 'any', control: 'any', phase: 'gate', kind: 'fact', status: 'missing' };
      return [{ dimension, outcome }];
    }
    return owed.map((one) => ({ dimension, outcome: judge(one, facts) })).filter(({ outcome }) => outcome.status !== 'matched');
  });
  return missing.length === 0 ? { kind: 'release' } : { kind: 'refuse', missing };
}
