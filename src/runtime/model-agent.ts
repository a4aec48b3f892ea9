import type { JsonValue } from '../core/json.ts';
import type { Agent, Decision, ToolSpec } from './contract.ts';
import type { ModelMessage, ModelReply, ModelToolCall } from './model.ts';
import type { RunView, StepView } from './record.ts';

export interface ModelAgentPlan {
  readonly model: string;
  readonly system: string;
  readonly maxOutputTokens: number | null;
  readonly tools: readonly ToolSpec[];
}

/**
 * An agent that a model drives: it makes the conversation from the record alone, so that a run that is resumed says what it would have said. A
 * reply with calls is a decision of calls, one without is the end.
 */
export function modelAgent(plan: ModelAgentPlan): Agent {
  const tools = plan.tools.map((tool) => ({ name: tool.name, description: tool.description, input_schema: tool.inputSchema }));
  return {
    decide: async (view, model) => {
      const reply = await model.ask({ model: plan.model, system: plan.system, messages: conversation(view), tools, max_output_tokens: plan.maxOutputTokens });
      return decisionOf(reply);
    },
  };
}

function decisionOf(reply: ModelReply): Decision {
  if (reply.calls.length === 0) return { kind: 'finish', reason: reply.text, result: reply.text };
  return { kind: 'calls', reason: reply.text, calls: reply.calls.map(({ id, tool, arguments: text }) => ({ id, tool, arguments: text })) };
}

/** The record as messages. Ids are ours, so that two replies with the same ids don't mix. */
export function conversation(view: RunView): readonly ModelMessage[] {
  const messages: ModelMessage[] = [{ role: 'user', text: typeof view.task === 'string' ? view.task : JSON.stringify(view.task) }];
  for (const turn of view.turns) {
    if (turn.kind === 'invalid') {
      messages.push(
        { role: 'assistant', text: turn.reason, calls: [] },
        { role: 'user', text: `Nothing of your reply was done: ${turn.fault ?? 'it was invalid'}.` },
      );
      continue;
    }
    const steps = view.steps.filter((step) => step.turn === turn.number);
    messages.push({ role: 'assistant', text: turn.reason, calls: steps.map(callOf) });
    for (const step of steps) messages.push({ role: 'tool', call_id: idOf(step), content: contentOf(step), is_error: step.state !== 'done' });
  }
  return messages;
}

function idOf(step: StepView): string {
  return `step-${step.number}`;
}

function callOf(step: StepView): ModelToolCall {
  return { id: idOf(step), tool: step.tool, arguments: step.request ?? '{}' };
}

function contentOf(step: StepView): string {
  const observed = step.observation === null ? '' : text(step.observation);
  switch (step.state) {
    case 'done':
      return step.detail === null ? observed : `${step.detail}\n${observed}`;
    case 'denied':
      return `denied: ${step.detail ?? ''}`;
    case 'invalid':
      return `not executed: ${step.detail ?? ''}`;
    default:
      return `failed (${step.outcome ?? step.state}): ${step.detail ?? ''}\n${observed}`.trim();
  }
}

function text(value: JsonValue): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}
