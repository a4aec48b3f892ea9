import type { ModelPrice, ModelReply, ModelUsage } from './model.ts';

/** What one dispatch is charged, in tokens and nano-dollars. */
export interface Charge {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly costNanoUsd: number;
}

export const NO_CHARGE: Charge = { inputTokens: 0, outputTokens: 0, costNanoUsd: 0 };

/** Tokens that a provider adds to what we send: its own frame around messages and tools. */
const FRAME_TOKENS = 1024;
/** No tokenizer makes fewer tokens of a text than one for so many bytes; real ones make one for three to five. */
const MOST_BYTES_A_TOKEN = 64;

/**
 * The most that a dispatch can cost: a token stands for at least one byte of the request, and the reply is as long as its cap. Without a cap
 * there is no such bound (null), and a projected limit refuses the request.
 */
export function reservation(requestBytes: number, maxOutputTokens: number | null, price: ModelPrice | undefined): Charge {
  const inputTokens = cap(requestBytes + FRAME_TOKENS);
  const outputTokens = maxOutputTokens === null ? 0 : cap(maxOutputTokens);
  return { inputTokens, outputTokens, costNanoUsd: costOf(price, inputTokens, outputTokens) };
}

/** Nano-dollars, at most 2^53 - 1. Without a price 0: there is no cost limit then. */
export function costOf(price: ModelPrice | undefined, inputTokens: number, outputTokens: number): number {
  if (price === undefined) return 0;
  return cap(cap(inputTokens * price.inputMilliUsdPerMillion) + cap(outputTokens * price.outputMilliUsdPerMillion));
}

/** What a provider may honestly report for a request and its reply. */
export function plausible(
  usage: ModelUsage | null,
  facts: { readonly requestBytes: number; readonly reserved: Charge; readonly maxOutputTokens: number | null; readonly reply: ModelReply | undefined },
): usage is ModelUsage {
  if (usage === null) return false;
  const { inputTokens, outputTokens } = usage;
  if (!Number.isSafeInteger(inputTokens) || !Number.isSafeInteger(outputTokens) || inputTokens < 1 || outputTokens < 0) return false;
  if (inputTokens > facts.reserved.inputTokens || inputTokens * MOST_BYTES_A_TOKEN < facts.requestBytes) return false;
  if (facts.maxOutputTokens !== null && outputTokens > facts.maxOutputTokens) return false;
  return outputTokens * MOST_BYTES_A_TOKEN >= replyBytes(facts.reply);
}

/** The conservative charge: the reservation, and never less output than the reply that was seen. */
export function conservative(reserved: Charge, reply: ModelReply | undefined, price: ModelPrice | undefined): Charge {
  const outputTokens = Math.max(reserved.outputTokens, replyBytes(reply));
  return { inputTokens: reserved.inputTokens, outputTokens, costNanoUsd: costOf(price, reserved.inputTokens, outputTokens) };
}

function replyBytes(reply: ModelReply | undefined): number {
  if (reply === undefined) return 0;
  return Buffer.byteLength(reply.text) + reply.calls.reduce((sum, call) => sum + Buffer.byteLength(call.tool) + Buffer.byteLength(call.arguments), 0);
}

function cap(value: number): number {
  return Math.min(Number.MAX_SAFE_INTEGER, Math.ceil(value));
}
