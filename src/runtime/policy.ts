import { canonicalSha256 } from '../core/canonical-json.ts';
import type { Effect, OnReject } from '../core/control.ts';
import { messageOf } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import type { RunView } from './record.ts';

/** What a policy is asked: may this call run now. Frozen; a copy of the truth, never the truth itself. */
export interface PolicyQuestion {
  readonly run: RunView;
  readonly step: number;
  readonly tool: string;
  readonly effect: Effect;
  readonly arguments: JsonValue;
  /** Canonical text of the arguments. */
  readonly request: string;
}

/**
 * What a policy says. `rule` names where it is written. Anything else than these three ends the run: an answer that nobody understands is no
 * permission, and no denial to go on from.
 */
export type PolicyAnswer =
  | { readonly kind: 'allow'; readonly rule?: string }
  /** `ends`: the run with it. */
  | { readonly kind: 'deny'; readonly reason: string; readonly rule?: string; readonly ends?: boolean }
  | {
      readonly kind: 'ask';
      readonly reason?: string;
      readonly rule?: string;
      readonly expiresMs?: number;
      readonly grantMs?: number;
      readonly onReject?: OnReject;
    };

/** A policy, from a file or written as a function. `digest` changes with what it says: every approval is bound to it. */
export interface Policy {
  readonly name: string;
  readonly digest: string;
  decide(question: PolicyQuestion): PolicyAnswer | Promise<PolicyAnswer>;
}

/** A policy from a function. `version` stands for what it says: change it when the function changes. */
export function functionPolicy(name: string, version: string, decide: Policy['decide']): Policy {
  return { name, digest: canonicalSha256({ function: name, version }), decide };
}

export type Verdict =
  | { readonly kind: 'allow'; readonly record: JsonObject }
  | { readonly kind: 'deny'; readonly record: JsonObject; readonly reason: string; readonly ends: boolean }
  | {
      readonly kind: 'ask';
      readonly record: JsonObject;
      readonly expiresMs: number | undefined;
      readonly grantMs: number | undefined;
      readonly onReject: OnReject;
    }
  | { readonly kind: 'unknown'; readonly record: JsonObject; readonly fault: string };

/** Digest of all policies of a run, in their order. */
export function policiesDigest(policies: readonly Policy[]): string {
  return canonicalSha256(policies.map(({ digest }) => digest));
}

/** Asks every policy. A denial beats a question, a question beats an allowance; without any policy, or with an answer of another form, nothing runs. */
export async function askPolicies(policies: readonly Policy[], question: PolicyQuestion): Promise<Verdict> {
  const answers: { readonly policy: string; readonly answer: PolicyAnswer }[] = [];
  for (const policy of policies) {
    let answer: unknown;
    try {
      answer = await policy.decide(question);
    } catch (error) {
      return unknown(policy, `it failed: ${messageOf(error)}`);
    }
    const read = readAnswer(answer);
    if (read === undefined) return unknown(policy, 'its answer is none that is known');
    answers.push({ policy: policy.name, answer: read });
  }
  const denial = answers.find(({ answer }) => answer.kind === 'deny');
  if (denial?.answer.kind === 'deny') {
    const ends = answers.some(({ answer }) => answer.kind === 'deny' && answer.ends === true);
    return { kind: 'deny', record: recordOf(denial.policy, denial.answer), reason: denial.answer.reason, ends };
  }
  const asks = answers.flatMap(({ policy, answer }) => (answer.kind === 'ask' ? [{ policy, answer }] : []));
  const [first] = asks;
  if (first !== undefined) {
    const least = (values: readonly (number | undefined)[]): number | undefined => {
      const stated = values.filter((value): value is number => value !== undefined);
      return stated.length === 0 ? undefined : Math.min(...stated);
    };
    return {
      kind: 'ask',
      record: recordOf(first.policy, first.answer),
      expiresMs: least(asks.map(({ answer }) => answer.expiresMs)),
      grantMs: least(asks.map(({ answer }) => answer.grantMs)),
      onReject: asks.some(({ answer }) => answer.onReject === 'end') ? 'end' : 'deny',
    };
  }
  const [allowed] = answers;
  if (allowed === undefined) return { kind: 'deny', record: { kind: 'deny', reason: 'there is no policy' }, reason: 'there is no policy', ends: false };
  return { kind: 'allow', record: recordOf(allowed.policy, allowed.answer) };
}

function unknown(policy: Policy, fact: string): Verdict {
  const fault = `policy ${policy.name}: ${fact}`;
  return { kind: 'unknown', record: { kind: 'unknown', policy: policy.name, fault }, fault };
}

function recordOf(policy: string, answer: PolicyAnswer): JsonObject {
  return {
    kind: answer.kind,
    policy,
    ...(answer.rule === undefined ? {} : { rule: answer.rule }),
    ...(answer.kind === 'allow' || answer.reason === undefined ? {} : { reason: answer.reason }),
  };
}

/** The answer when it has exactly the form of one. */
function readAnswer(value: unknown): PolicyAnswer | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const answer = value as Readonly<Record<string, unknown>>;
  const text = (key: string, required: boolean): boolean => (answer[key] === undefined ? !required : typeof answer[key] === 'string');
  const time = (key: string): boolean => answer[key] === undefined || (Number.isSafeInteger(answer[key]) && (answer[key] as number) > 0);
  if (!text('rule', false)) return undefined;
  switch (answer['kind']) {
    case 'allow':
      return value as PolicyAnswer;
    case 'deny':
      return text('reason', true) && (answer['ends'] === undefined || typeof answer['ends'] === 'boolean') ? (value as PolicyAnswer) : undefined;
    case 'ask':
      return text('reason', false) && time('expiresMs') && time('grantMs') && [undefined, 'deny', 'end'].includes(answer['onReject'] as undefined)
        ? (value as PolicyAnswer)
        : undefined;
    default:
      return undefined;
  }
}
