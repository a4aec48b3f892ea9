import type { Effect, Outcome } from '../core/control.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import type { ModelReply, ModelRequest } from './model.ts';
import type { RunView } from './record.ts';

/** What is said about a tool: to the model, to the policy, to the person who approves. Its digest is part of every approval. */
export interface ToolSpec {
  /** Letters, digits, `_` and `-`, at most 64. */
  readonly name: string;
  readonly description: string;
  readonly effect: Effect;
  /** JSON Schema 2020-12 of the arguments. May not refer outside itself. */
  readonly inputSchema: JsonObject;
  /** Milliseconds that one execution may take. */
  readonly timeoutMs: number;
}

export interface ToolCall {
  readonly runId: string;
  readonly step: number;
  /** The same for every execution of one step: for tools that recognise a repetition. */
  readonly operation: string;
  /** From 1; above 1 only after somebody decided that it may run again. */
  readonly execution: number;
  /** Frozen. */
  readonly arguments: JsonValue;
  /** Canonical text of the arguments, number literals as they came. */
  readonly request: string;
  /** Aborted when nobody waits any more. */
  readonly signal: AbortSignal;
}

/** How an execution went. `evidence`: what a review may want to see, such as the run in a sandbox and its bundle. */
export interface ToolAnswer {
  readonly outcome: Exclude<Outcome, 'answered_unrecordable'>;
  /** What the agent gets to see; must encode as JSON. */
  readonly value: unknown;
  readonly detail?: string;
  readonly evidence?: JsonObject;
}

/** What somebody who can look says about an execution whose end nobody saw. */
export type Reconciliation = { readonly kind: 'unknown' } | { readonly kind: 'happened'; readonly value: unknown } | { readonly kind: 'did_not_happen' };

/** A tool with its code. Agents and policies see the ToolSpec only. */
export interface Tool {
  readonly spec: ToolSpec;
  /** What it throws counts as `no_answer`. */
  execute(call: ToolCall): Promise<ToolAnswer>;
  /** Looks whether an interrupted execution took place. Absent: a person decides. */
  reconcile?(call: Omit<ToolCall, 'signal'>): Promise<Reconciliation>;
}

/** A call as an agent asks for it. `arguments` is text or bytes as received: JSON or not, it is recorded before it is looked at. */
export interface ProposedCall {
  readonly id: string;
  readonly tool: string;
  readonly arguments: string | Uint8Array;
}

/** What an agent wants next. Anything else is an invalid decision. */
export type Decision =
  | { readonly kind: 'calls'; readonly reason: string; readonly calls: readonly ProposedCall[] }
  | { readonly kind: 'finish'; readonly reason: string; readonly result: unknown };

/** An agent's way to its model during one turn. Every request is limited, charged and recorded. */
export interface ModelAccess {
  /** Rejects when the run is ending; then nothing that the agent still says counts. */
  ask(request: ModelRequest): Promise<ModelReply>;
}

/** Asks; decides nothing. It holds no tool and no policy. */
export interface Agent {
  /** `view` is frozen and of this moment. Rejecting ends the run (agent_failed). */
  decide(view: RunView, model: ModelAccess): Promise<Decision>;
}

/** Limits of a run; undefined: none. Tokens are whole numbers, times milliseconds. */
export interface ControlLimits {
  readonly steps?: number;
  /** Consecutive steps or replies that failed, were invalid or were denied. */
  readonly failures?: number;
  /** The same calls in so many replies running. */
  readonly loops?: number;
  readonly modelCalls?: number;
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  readonly costNanoUsd?: number;
  readonly activeMs?: number;
  readonly elapsedMs?: number;
  /** How long a question may wait for a person. */
  readonly approvalMs?: number;
  /** How long an approval may wait to be used. */
  readonly grantMs?: number;
  /** Read-only calls of one reply that run side by side. Default 4. */
  readonly parallel?: number;
  /** Times that a model request is sent again. Default 2. */
  readonly retries?: number;
}
