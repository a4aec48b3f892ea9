import type { JsonValue } from '../core/json.ts';

/** A tool call as a model wrote it: `arguments` is its text, JSON or not. */
export interface ModelToolCall {
  readonly id: string;
  readonly tool: string;
  readonly arguments: string;
}

/** One message of a conversation, in no provider's form. */
export type ModelMessage =
  | { readonly role: 'user'; readonly text: string }
  | { readonly role: 'assistant'; readonly text: string; readonly calls: readonly ModelToolCall[] }
  | { readonly role: 'tool'; readonly call_id: string; readonly content: string; readonly is_error: boolean };

/** What is asked of a model, in no provider's form. It is hashed, measured and sent as canonical JSON. */
export interface ModelRequest {
  readonly model: string;
  readonly system: string;
  readonly messages: readonly ModelMessage[];
  readonly tools: readonly { readonly name: string; readonly description: string; readonly input_schema: JsonValue }[];
  /** The most tokens that the reply may have; null: no cap, which a token or cost limit refuses. */
  readonly max_output_tokens: number | null;
}

/** Why a reply ended. Of `length`, `refusal` and `other` no call is ever acted upon. */
export const MODEL_STOPS = ['end', 'tool_calls', 'length', 'refusal', 'other'] as const;
export type ModelStop = (typeof MODEL_STOPS)[number];

/** Tokens as the provider says; whole numbers, cached input included. */
export interface ModelUsage {
  readonly inputTokens: number;
  readonly outputTokens: number;
}

/** A whole reply. A stream that broke off is no reply, but `cut_off`. */
export interface ModelReply {
  readonly stop: ModelStop;
  readonly text: string;
  readonly calls: readonly ModelToolCall[];
  readonly usage: ModelUsage | null;
}

/**
 * What became of one dispatch.
 *   reply       the whole answer
 *   not_sent    nothing left this process: costs nothing
 *   refused     the provider said no and surely served nothing (a status of 4xx); costs what it says, or nothing
 *   no_answer   sent, and nothing usable came: charged as if it had been served in full
 *   cut_off     an answer began and broke off: the same
 */
export type ModelOutcome =
  | { readonly kind: 'reply'; readonly reply: ModelReply }
  | { readonly kind: 'not_sent' | 'no_answer' | 'cut_off'; readonly detail: string; readonly retryAfterMs?: number }
  | { readonly kind: 'refused'; readonly detail: string; readonly retryable: boolean; readonly retryAfterMs?: number; readonly usage?: ModelUsage };

export interface ModelDispatch {
  readonly request: ModelRequest;
  /** The request as it is recorded and measured. */
  readonly canonical: string;
  /** Unique to this dispatch. */
  readonly attempt: string;
  /** Aborted when nobody waits for the answer any more. What still comes is accounted for. */
  readonly signal: AbortSignal;
  /** Text as it arrives, where the model streams. For display only. */
  readonly onText?: (text: string) => void;
}

/** US dollars for a million tokens, in thousandths: `3000` is $3. One token then costs that many nano-dollars. */
export interface ModelPrice {
  readonly inputMilliUsdPerMillion: number;
  readonly outputMilliUsdPerMillion: number;
}

/**
 * A way to models. Never throws for what a provider does: every way in which a dispatch can end is an outcome. What it throws is a fault of
 * its own, and ends the run.
 */
export interface Model {
  /** Undefined: nobody knows; then a cost limit refuses the run. */
  price(model: string): ModelPrice | undefined;
  dispatch(dispatch: ModelDispatch): Promise<ModelOutcome>;
}
