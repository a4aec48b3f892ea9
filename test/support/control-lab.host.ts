import { join } from 'node:path';
import { afterEach } from 'vitest';
import { canonicalJson } from '../../src/core/canonical-json.ts';
import type { JsonObject } from '../../src/core/json.ts';
import type { Agent, Decision, ModelAccess, Tool, ToolAnswer, ToolCall, ToolSpec } from '../../src/runtime/contract.ts';
import type { Model, ModelOutcome, ModelPrice, ModelReply, ModelRequest } from '../../src/runtime/model.ts';
import { functionPolicy, type Policy, type PolicyAnswer, type PolicyQuestion } from '../../src/runtime/policy.ts';
import type { RunView } from '../../src/runtime/record.ts';
import { openRuntime, type ControlRuntime, type ControlRuntimeOptions, type NewControl } from '../../src/runtime/runtime.host.ts';
import { openStore, type Store } from '../../src/store/index.ts';
import { temporaryDirectories } from './temporary.ts';

export interface ControlLab {
  readonly store: Store;
  readonly runtime: ControlRuntime;
  readonly state: string;
  /** Another runtime over the same file, as another process has it. */
  another(options?: Partial<ControlRuntimeOptions>): ControlRuntime;
  /** Milliseconds; moves when a test says so. */
  now: number;
}

export const DECIDER = { uid: 1000, pid: 7, via: 'test' };

/** A store and a runtime of its own for each call; both go after the test. The clock stands unless `realTime`. */
export function controlLabs(): (options?: Partial<ControlRuntimeOptions> & { readonly realTime?: boolean }) => ControlLab {
  const directory = temporaryDirectories();
  const open: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const close of open.splice(0).reverse()) await close();
  });
  return ({ realTime, ...options } = {}) => {
    const state = join(directory(), 'state');
    // What stands still lies ahead, so that no lease that the thread renews has lapsed.
    const clock = { now: Date.now() };
    const read = realTime === true ? Date.now : () => clock.now;
    const make = (more: Partial<ControlRuntimeOptions>): { readonly store: Store; readonly runtime: ControlRuntime } => {
      const store = openStore(state, read);
      const runtime = openRuntime({ store, clock: read, leaseMs: 600_000, closeMs: 300, ...options, ...more });
      open.push(async () => {
        await runtime.close();
        store.close();
      });
      return { store, runtime };
    };
    const { store, runtime } = make({});
    return {
      store,
      runtime,
      state,
      another: (more = {}) => make(more).runtime,
      get now() {
        return clock.now;
      },
      set now(value: number) {
        clock.now = value;
      },
    };
  };
}

const NOTE_SCHEMA: JsonObject = {
  type: 'object',
  properties: { text: { type: 'string' }, count: { type: 'number' } },
  required: ['text'],
  additionalProperties: false,
};

export interface ScriptedTool extends Tool {
  /** Every execution, in order. */
  readonly calls: ToolCall[];
}

/** A tool that remembers its executions and answers what it is told. */
export function tool(
  name: string,
  effect: ToolSpec['effect'],
  answer: (call: ToolCall) => ToolAnswer | Promise<ToolAnswer> = () => ({ outcome: 'answered_ok', value: { ok: true } }),
  more: Partial<ToolSpec> & { readonly reconcile?: Tool['reconcile'] } = {},
): ScriptedTool {
  const { reconcile, ...spec } = more;
  const calls: ToolCall[] = [];
  return {
    spec: { name, effect, description: `the tool ${name}`, inputSchema: NOTE_SCHEMA, timeoutMs: 60_000, ...spec },
    calls,
    execute: async (call) => {
      calls.push(call);
      return await answer(call);
    },
    ...(reconcile === undefined ? {} : { reconcile }),
  };
}

export type Line = Decision | ((view: RunView, model: ModelAccess) => unknown);

/** An agent that says its lines one after the other, and then that it is done. Which line comes next is read from the record, so that it can be resumed. */
export function script(...lines: readonly Line[]): Agent & { readonly views: RunView[] } {
  const views: RunView[] = [];
  return {
    views,
    decide: async (view, model) => {
      views.push(view);
      const line = lines[view.turns.length];
      if (line === undefined) return finish();
      return (await (typeof line === 'function' ? line(view, model) : line)) as Decision;
    },
  };
}

export function finish(result: unknown = 'done'): Decision {
  return { kind: 'finish', reason: 'all is done', result };
}

/** `call('note', {text: 'a'})`, or text as it is. */
export function call(
  name: string,
  args: JsonObject | string | Uint8Array = { text: 'a' },
  id = 'c1',
): { id: string; tool: string; arguments: string | Uint8Array } {
  return { id, tool: name, arguments: typeof args === 'string' || args instanceof Uint8Array ? args : canonicalJson(args) };
}

export function calls(...list: readonly ReturnType<typeof call>[]): Decision {
  return { kind: 'calls', reason: 'it is needed', calls: list.map((one, index) => ({ ...one, id: `${one.id}-${index}` })) };
}

export const allowAll = functionPolicy('all', '1', () => ({ kind: 'allow' }));
export const askAll = functionPolicy('ask', '1', () => ({ kind: 'ask', reason: 'somebody has to look' }));

export function policyOf(decide: (question: PolicyQuestion) => unknown, version = '1'): Policy {
  return functionPolicy('test', version, (question) => decide(question) as PolicyAnswer);
}

/** A run with what a test says, and the rest as usual. */
export function definition(more: Partial<NewControl>): NewControl {
  return { agentName: 'test', task: { do: 'it' }, workspace: '/w', tools: [], policies: [allowAll], agent: script(), ...more };
}

export function reply(more: Partial<ModelReply> = {}): ModelOutcome {
  return { kind: 'reply', reply: { stop: 'end', text: 'hello', calls: [], usage: { inputTokens: 100, outputTokens: 10 }, ...more } };
}

export interface ScriptedModel extends Model {
  readonly requests: ModelRequest[];
}

/** A model that answers one outcome after the other; the last one stays. */
export function model(outcomes: readonly (ModelOutcome | (() => ModelOutcome | Promise<ModelOutcome>))[], price?: ModelPrice): ScriptedModel {
  const requests: ModelRequest[] = [];
  return {
    requests,
    price: () => price,
    dispatch: async ({ request }) => {
      const outcome = outcomes[Math.min(requests.length, outcomes.length - 1)];
      requests.push(request);
      if (outcome === undefined) throw new Error('no outcome');
      return await (typeof outcome === 'function' ? outcome() : outcome);
    },
  };
}

export function modelRequest(more: Partial<ModelRequest> = {}): ModelRequest {
  return { model: 'm', system: 's', messages: [{ role: 'user', text: 'x' }], tools: [], max_output_tokens: 100, ...more };
}

/** A line that asks the model and then calls or finishes as the reply says. */
export function askThen(decision: Decision, request: Partial<ModelRequest> = {}): Line {
  return async (_view, access) => {
    await access.ask(modelRequest(request));
    return decision;
  };
}
