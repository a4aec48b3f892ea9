import { deepFreeze } from './request.ts';
import { askPolicies, type Policy, type Verdict } from './policy.ts';
import type { RunView } from './record.ts';
import { parseStrictJson } from '../core/strict-json.ts';
import { messageOf } from '../core/errors.ts';
import type { CompiledTool } from './tool-schemas.ts';

/** What a call is judged by: the truth as it is recorded, the tools and the policies as they are now. */
export interface Judging {
  readonly view: RunView;
  readonly tools: ReadonlyMap<string, CompiledTool>;
  readonly policies: readonly Policy[];
}

export interface JudgedCall {
  readonly step: number;
  readonly tool: string;
  /** Canonical text; null: what was received were no arguments. */
  readonly request: string | null;
}

/** No call is executed but one that is `allow`, or `ask` with an approval that is bound to this very request. */
export type Judgement =
  | { readonly kind: 'invalid'; readonly fault: string }
  | { readonly kind: 'judged'; readonly compiled: CompiledTool; readonly request: string; readonly verdict: Verdict };

/** Schema first, then the policies, on a frozen copy. */
export async function judge(judging: Judging, call: JudgedCall): Promise<Judgement> {
  if (call.request === null) return { kind: 'invalid', fault: 'the arguments are not JSON' };
  const compiled = judging.tools.get(call.tool);
  if (compiled === undefined) return { kind: 'invalid', fault: 'there is no tool of that name' };
  let value;
  try {
    value = deepFreeze(parseStrictJson(call.request));
  } catch (error) {
    return { kind: 'invalid', fault: messageOf(error) };
  }
  const fault = compiled.check(value);
  if (fault !== undefined) return { kind: 'invalid', fault };
  const verdict = await askPolicies(
    judging.policies,
    Object.freeze({ run: judging.view, step: call.step, tool: compiled.spec.name, effect: compiled.spec.effect, arguments: value, request: call.request }),
  );
  return { kind: 'judged', compiled, request: call.request, verdict };
}
