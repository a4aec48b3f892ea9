import { setImmediate } from 'node:timers/promises';
import { ProofrunError } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { MODEL_STOPS, type Model, type ModelOutcome, type ModelPrice, type ModelReply } from './model.ts';

/**
 * A model that says the replies of a list, one for each turn of the conversation that it is shown: for tests, examples and trying a policy without
 * a provider. Deterministic: which reply comes next follows from the request.
 */
export function scriptModel(replies: readonly ModelReply[], price: ModelPrice | undefined): Model {
  return {
    price: () => price,
    dispatch: async ({ request, signal, onText }): Promise<ModelOutcome> => {
      await setImmediate();
      if (signal.aborted) return { kind: 'cut_off', detail: 'nobody waits for it any more' };
      const said = request.messages.filter((message) => message.role === 'assistant').length;
      const reply = replies[said];
      if (reply === undefined) {
        return { kind: 'refused', detail: `the script has ${replies.length} replies, and this asks for number ${said + 1}`, retryable: false };
      }
      onText?.(reply.text);
      return { kind: 'reply', reply };
    },
  };
}

/** The replies of a script file: a list of `{ text, calls: [{ tool, arguments }], stop, usage: { input_tokens, output_tokens } }`. ERR_JOB_FILE. */
export function parseScript(value: JsonValue, source: string): readonly ModelReply[] {
  if (!Array.isArray(value)) throw fault(source, '', 'expected a list of replies');
  return (value as readonly JsonValue[]).map((item, index) => readReply(item, source, index));
}

function readReply(item: JsonValue, source: string, index: number): ModelReply {
  const at = `[${index}]`;
  if (!isObject(item)) throw fault(source, at, 'expected a reply as an object');
  for (const key of Object.keys(item)) {
    if (!['text', 'calls', 'stop', 'usage'].includes(key)) throw fault(source, at, `unknown key ${JSON.stringify(key)}`);
  }
  const calls = item['calls'] ?? [];
  if (!Array.isArray(calls)) throw fault(source, at, 'calls: expected a list');
  const read = (calls as readonly JsonValue[]).map((call, number) => {
    if (!isObject(call) || typeof call['tool'] !== 'string') throw fault(source, `${at}.calls[${number}]`, 'expected { tool, arguments }');
    const args = call['arguments'] ?? {};
    return { id: `call-${index}-${number}`, tool: call['tool'], arguments: typeof args === 'string' ? args : JSON.stringify(args) };
  });
  const text = item['text'] ?? '';
  if (typeof text !== 'string') throw fault(source, at, 'text: expected text');
  const stop = MODEL_STOPS.find((one) => one === (item['stop'] ?? (read.length > 0 ? 'tool_calls' : 'end')));
  if (stop === undefined) throw fault(source, at, `stop: expected one of ${MODEL_STOPS.join(', ')}`);
  const usage = item['usage'];
  if (usage === undefined) return { stop, text, calls: read, usage: null };
  if (!isObject(usage) || typeof usage['input_tokens'] !== 'number' || typeof usage['output_tokens'] !== 'number') {
    throw fault(source, at, 'usage: expected { input_tokens, output_tokens }');
  }
  return { stop, text, calls: read, usage: { inputTokens: usage['input_tokens'], outputTokens: usage['output_tokens'] } };
}

function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function fault(source: string, at: string, fact: string): ProofrunError {
  return new ProofrunError('ERR_JOB_FILE', {
    message: `${source}${at}: ${fact}`,
    hint: 'a reply: { "text": "...", "calls": [{ "tool": "name", "arguments": {} }] }',
  });
}
