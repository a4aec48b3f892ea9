import { canonicalSha256 } from '../core/canonical-json.ts';
import { EFFECTS } from '../core/control.ts';
import { ProofrunError } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { parseDuration } from '../core/units.ts';
import { compileGlob } from '../policy/glob.ts';
import { compileCondition, type Condition } from './conditions.ts';
import type { Policy, PolicyAnswer, PolicyQuestion } from './policy.ts';

interface Rule {
  readonly matches: (question: PolicyQuestion) => boolean;
  readonly answer: PolicyAnswer;
}

/**
 * A policy from the mapping of a file whose form the schema has checked. `where` names a place of it: `tools.yaml:7`. A matching denial beats a
 * matching question, which beats a matching allowance, whatever their order; without any match `default_action` counts, which is deny when it
 * isn't stated. ERR_POLICY_FILE for a glob that is none.
 */
export function compileToolPolicy(value: JsonObject, name: string, where: (pointer: string) => string): Policy {
  const rules = (Array.isArray(value['rules']) ? (value['rules'] as readonly JsonValue[]) : []).map((rule, index) =>
    compileRule(asObject(rule), where(`/rules/${index}`)),
  );
  const fallback = value['default_action'] ?? 'deny';
  const rule = where(value['default_action'] === undefined ? '' : '/default_action');
  return {
    name,
    digest: canonicalSha256({ tool_policy: 1, default_action: fallback, rules: value['rules'] ?? [] }),
    decide: (question) => {
      const found = rules.filter(({ matches }) => matches(question));
      const first = (kind: PolicyAnswer['kind']): PolicyAnswer | undefined => found.find(({ answer }) => answer.kind === kind)?.answer;
      const ending = found.find(({ answer }) => answer.kind === 'deny' && answer.ends === true)?.answer;
      return ending ?? first('deny') ?? first('ask') ?? first('allow') ?? fallbackAnswer(fallback, rule);
    },
  };
}

function fallbackAnswer(action: JsonValue, rule: string): PolicyAnswer {
  if (action === 'allow') return { kind: 'allow', rule };
  return action === 'ask' ? { kind: 'ask', rule, reason: `no rule decides it (${rule})` } : { kind: 'deny', rule, reason: `no rule allows it (${rule})` };
}

function compileRule(rule: JsonObject, place: string): Rule {
  const tool = typeof rule['tool'] === 'string' ? rule['tool'] : '';
  const glob = compileGlob(tool);
  if (glob.kind === 'error') throw new ProofrunError('ERR_POLICY_FILE', { message: `${place}: the tool ${JSON.stringify(tool)}: ${glob.message}` });
  const effect = EFFECTS.find((one) => one === rule['effect']);
  const conditions: readonly Condition[] = (Array.isArray(rule['when']) ? (rule['when'] as readonly JsonValue[]) : []).map((one) =>
    compileCondition(asObject(one), place),
  );
  return {
    matches: (question) =>
      glob.regex.test(question.tool) && (effect === undefined || effect === question.effect) && conditions.every((condition) => condition(question.arguments)),
    answer: answerOf(rule, place),
  };
}

function answerOf(rule: JsonObject, place: string): PolicyAnswer {
  const reason = typeof rule['reason'] === 'string' ? rule['reason'] : undefined;
  switch (rule['action']) {
    case 'allow':
      return { kind: 'allow', rule: place };
    case 'ask': {
      const expiresMs = durationOf(rule['expires']);
      const grantMs = durationOf(rule['grant']);
      return {
        kind: 'ask',
        rule: place,
        reason: reason ?? `a rule says so (${place})`,
        ...(expiresMs === undefined ? {} : { expiresMs }),
        ...(grantMs === undefined ? {} : { grantMs }),
        ...(rule['on_reject'] === 'end' ? { onReject: 'end' as const } : {}),
      };
    }
    default:
      return { kind: 'deny', rule: place, reason: reason ?? `a rule says so (${place})`, ...(rule['ends'] === true ? { ends: true } : {}) };
  }
}

function durationOf(value: JsonValue | undefined): number | undefined {
  const parsed = typeof value === 'string' ? parseDuration(value) : undefined;
  return parsed?.kind === 'ok' && parsed.value > 0 ? parsed.value : undefined;
}

function asObject(value: JsonValue): JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : {};
}
