import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import type { Agent, Tool, ToolSpec } from '../../src/runtime/contract.ts';
import type { Model } from '../../src/runtime/model.ts';
import { functionPolicy } from '../../src/runtime/policy.ts';
import type { ControlRuntime, NewControl } from '../../src/runtime/runtime.host.ts';
import type { Store } from '../../src/store/index.ts';

/** What an outside world saw, one JSON object a line: it knows nothing of the store. */
export interface WorldLine {
  readonly kind: 'tool' | 'model';
  readonly run: string;
  /** The step's operation with the number of its execution, or the attempt. */
  readonly id: string;
}

export const WORK_USAGE = { inputTokens: 400, outputTokens: 60 };

/** Written with one append each, so that lines of several processes don't mix. */
function note(world: string, line: WorldLine): void {
  appendFileSync(world, `${JSON.stringify(line)}\n`);
}

export function readWorld(world: string): readonly WorldLine[] {
  if (!existsSync(world)) return [];
  return readFileSync(world, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as WorldLine);
}

/**
 * A run of three replies: two read-only calls and a side effect; one that somebody is asked about; the end. `inside` is called in the middle of
 * each dispatch and each execution, when the outside world has seen it and nobody here knows.
 */
export function work(world: string, inside: (what: string) => Promise<void>): NewControl {
  const tool = (name: string, effect: ToolSpec['effect']): Tool => ({
    spec: {
      name,
      effect,
      description: name,
      timeoutMs: 60_000,
      inputSchema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'], additionalProperties: false },
    },
    execute: async (call) => {
      await inside(`${name} before`);
      note(world, { kind: 'tool', run: call.runId, id: `${call.operation}#${call.execution}` });
      await inside(`${name} after`);
      return { outcome: 'answered_ok', value: { name } };
    },
  });
  const model: Model = {
    price: () => ({ inputMilliUsdPerMillion: 3000, outputMilliUsdPerMillion: 15_000 }),
    dispatch: async ({ attempt }) => {
      await inside('model before');
      note(world, { kind: 'model', run: attempt.split('/')[0] ?? '', id: attempt });
      await inside('model after');
      return { kind: 'reply', reply: { stop: 'tool_calls', text: 'go on', calls: [], usage: WORK_USAGE } };
    },
  };
  const call = (name: string, n: number) => ({ id: `c${n}`, tool: name, arguments: `{"n":${n}}` });
  const agent: Agent = {
    decide: async (view, access) => {
      await access.ask({ model: 'm', system: '', messages: [{ role: 'user', text: 'go' }], tools: [], max_output_tokens: 200 });
      switch (view.turns.length) {
        case 0:
          return { kind: 'calls', reason: 'first', calls: [call('look', 1), call('look', 2), call('write', 3)] };
        case 1:
          return { kind: 'calls', reason: 'second', calls: [call('ask', 4)] };
        default:
          return { kind: 'finish', reason: 'done', result: view.steps.length };
      }
    },
  };
  return {
    agentName: 'work',
    task: 'work',
    workspace: '/w',
    agent,
    tools: [tool('look', 'read-only'), tool('write', 'side-effect'), tool('ask', 'side-effect')],
    policies: [functionPolicy('work', '1', ({ tool: name }) => (name === 'ask' ? { kind: 'ask' } : { kind: 'allow' }))],
    limits: { steps: 50, modelCalls: 50, costNanoUsd: 10 ** 9, inputTokens: 10 ** 6, outputTokens: 10 ** 5 },
    model: { model, name: 'm', maxOutputTokens: 200 },
  };
}

const DECIDER = { uid: 0, pid: 1, via: 'test' };

/** Decides on everything that waits, and resumes everything that nobody works on. An execution whose end nobody saw isn't repeated. */
export async function finishAll(store: Store, runtime: ControlRuntime, define: NewControl): Promise<void> {
  for (;;) {
    const open = store.control.list({ states: ['running', 'waiting'] });
    if (open.length === 0) return;
    for (const run of open) {
      for (const asked of store.control.pending(run.id)) {
        const decision = { approval: asked.id, shown: asked.shown_sha256, decider: DECIDER };
        if (asked.kind === 'call') runtime.approve(decision);
        else runtime.reject(decision);
      }
      await (await runtime.resume(run.id, define))?.drive();
    }
  }
}

/** What must hold whatever was killed: read from the database and from what the outside world saw. Empty when all does. */
export function brokenInvariants(store: Store, world: readonly WorldLine[]): readonly string[] {
  const faults: string[] = [];
  const seen = new Map<string, number>();
  for (const line of world) seen.set(`${line.kind} ${line.id}`, (seen.get(`${line.kind} ${line.id}`) ?? 0) + 1);
  for (const [id, times] of seen) if (times > 1) faults.push(`${id} took place ${times} times`);
  const runs = new Map(store.control.list().map((run) => [run.id, run]));
  for (const line of world) if (!runs.has(line.run)) faults.push(`${line.id} belongs to no run`);
  for (const [id, run] of runs) {
    const rows = store.control.rows(id);
    const check = store.control.check(id);
    if (!check.ok) faults.push(`${id}: event ${check.seq} ${check.fact}`);
    if (run.state === 'running' || run.state === 'waiting') faults.push(`${id} is ${run.state}`);
    if (run.lease_id !== null) faults.push(`${id} is over and has an owner`);
    for (const step of rows.steps) {
      const executions = world.filter((line) => line.kind === 'tool' && line.id.startsWith(`${id}/${step.number}#`));
      if (executions.length > step.executions) faults.push(`${id}/${step.number} was executed ${executions.length} times, ${step.executions} are recorded`);
      if (step.effect === 'side-effect' && executions.length > 1) faults.push(`${id}/${step.number} was executed again`);
      if (step.state === 'done' && executions.length === 0) faults.push(`${id}/${step.number} is done and nobody did it`);
      if (['proposed', 'waiting', 'started'].includes(step.state)) faults.push(`${id}/${step.number} is ${step.state}`);
    }
    for (const approval of rows.approvals) if (['pending', 'approved'].includes(approval.state)) faults.push(`${approval.id} is ${approval.state}`);
    for (const attempt of rows.attempts) if (attempt.state === 'reserved') faults.push(`${id}/m${attempt.number} is reserved`);
    for (const line of world.filter((one) => one.kind === 'model' && one.run === id)) {
      const attempt = rows.attempts.find(({ number }) => line.id === `${id}/m${number}`);
      if (attempt === undefined) faults.push(`${line.id} was sent and isn't recorded`);
      else if (attempt.charged_input < WORK_USAGE.inputTokens || attempt.charged_output < WORK_USAGE.outputTokens) {
        faults.push(`${line.id} cost more than was charged`);
      }
    }
    const sum = (column: 'charged_input' | 'charged_output' | 'charged_cost'): number => rows.attempts.reduce((total, attempt) => total + attempt[column], 0);
    if (run.input_tokens !== sum('charged_input') || run.output_tokens !== sum('charged_output') || run.cost_nano_usd !== sum('charged_cost')) {
      faults.push(`${id}: its totals are not those of its requests`);
    }
    if (run.model_calls !== rows.attempts.length || run.steps !== rows.steps.length || run.turns !== rows.turns.length) faults.push(`${id}: rows were lost`);
  }
  return faults;
}
