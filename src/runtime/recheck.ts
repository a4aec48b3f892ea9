import type { JsonValue } from '../core/json.ts';
import { askPolicies, type Policy } from './policy.ts';
import type { RunView } from './record.ts';

/** What another policy would have said to one recorded call. */
export interface Rechecked {
  readonly step: number;
  readonly tool: string;
  /** As it was decided; null: it never came to a policy. */
  readonly recorded: string | null;
  readonly now: 'allow' | 'deny' | 'ask' | 'unknown';
  readonly detail: string;
  readonly changed: boolean;
}

/** Asks policies about every recorded call as if it came now, each with the record as it was before it. Runs nothing and writes nothing. */
export async function recheck(view: RunView, policies: readonly Policy[]): Promise<readonly Rechecked[]> {
  const results: Rechecked[] = [];
  for (const step of view.steps) {
    if (step.request === null || step.effect === null) continue;
    const before: RunView = Object.freeze({ ...view, steps: Object.freeze(view.steps.filter((other) => other.number < step.number)) });
    const verdict = await askPolicies(
      policies,
      Object.freeze({ run: before, step: step.number, tool: step.tool, effect: step.effect, arguments: step.arguments, request: step.request }),
    );
    const recorded = kindOf(step.policy);
    const detail = verdict.kind === 'deny' ? verdict.reason : verdict.kind === 'unknown' ? verdict.fault : ruleOf(verdict.record);
    results.push({ step: step.number, tool: step.tool, recorded, now: verdict.kind, detail, changed: recorded !== null && recorded !== verdict.kind });
  }
  return results;
}

function kindOf(policy: JsonValue): string | null {
  return typeof policy === 'object' && policy !== null && 'kind' in policy && typeof policy.kind === 'string' ? policy.kind : null;
}

function ruleOf(record: JsonValue): string {
  return typeof record === 'object' && record !== null && 'rule' in record && typeof record.rule === 'string' ? record.rule : '';
}
