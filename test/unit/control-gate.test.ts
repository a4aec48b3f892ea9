import { describe, expect, test } from 'vitest';
import type { PolicyAnswer } from '../../src/runtime/policy.ts';
import { allowAll, askAll, controlLabs, DECIDER, definition, policyOf, tool } from '../support/control-lab.host.ts';

const lab = controlLabs();
const NOTE = { tool: 'note', arguments: '{"text":"a"}', reason: 'it is needed' };

describe('the gate, for a loop that is not ours', () => {
  test('what is allowed is executed once, and recorded as in our own loop', async () => {
    const here = lab();
    const note = tool('note', 'side-effect');
    const { id, gate } = await here.runtime.start(definition({ tools: [note] }));
    const answer = await gate.propose(NOTE);
    expect(answer).toEqual({ kind: 'allowed', step: 1 });
    expect(note.calls).toEqual([]);
    expect(await gate.execute(1)).toMatchObject({ state: 'done', outcome: 'answered_ok' });
    await expect(gate.execute(1)).rejects.toMatchObject({ code: 'ERR_RUN_STATE' });
    expect(note.calls).toHaveLength(1);
    expect(here.store.control.events(id).map(({ kind }) => kind)).toEqual(['run.started', 'turn.recorded', 'step.started', 'step.settled']);
    expect(here.store.control.check(id)).toEqual({ ok: true });
  });

  test('a call that is denied, does not fit or names no tool runs nothing, and is recorded', async () => {
    const here = lab();
    const note = tool('note', 'side-effect');
    const { id, gate } = await here.runtime.start(
      definition({
        tools: [note],
        policies: [policyOf(({ arguments: args }) => ((args as { text: string }).text === 'no' ? { kind: 'deny', reason: 'no' } : { kind: 'allow' }))],
      }),
    );
    expect(await gate.propose({ ...NOTE, arguments: '{"text":"no"}' })).toMatchObject({ kind: 'denied', detail: 'no' });
    expect(await gate.propose({ ...NOTE, arguments: '{"text":7}' })).toMatchObject({ kind: 'invalid' });
    expect(await gate.propose({ ...NOTE, arguments: '{"text":' })).toMatchObject({ kind: 'invalid' });
    expect(await gate.propose({ ...NOTE, tool: 'other' })).toMatchObject({ kind: 'invalid' });
    expect([note.calls, here.store.control.rows(id).steps.map(({ state }) => state)]).toEqual([[], ['denied', 'invalid', 'invalid', 'invalid']]);
  });

  test('the policy is asked again when it starts: what was allowed may be denied by then', async () => {
    const here = lab();
    const note = tool('note', 'side-effect');
    let answer: PolicyAnswer = { kind: 'allow' };
    const { gate } = await here.runtime.start(definition({ tools: [note], policies: [policyOf(() => answer)] }));
    expect(await gate.propose(NOTE)).toMatchObject({ kind: 'allowed' });
    answer = { kind: 'deny', reason: 'not any more' };
    await expect(gate.execute(1)).rejects.toThrow(/not any more/);
    expect(note.calls).toEqual([]);
  });

  test('a loop that executes itself gets leave for exactly one thing, and says once how it went', async () => {
    const here = lab();
    const { gate, id } = await here.runtime.start(definition({ tools: [tool('note', 'side-effect')] }));
    await gate.propose(NOTE);
    expect(() => gate.settle(1, { outcome: 'answered_ok', value: 1 })).toThrow(expect.objectContaining({ code: 'ERR_STORE_STALE' }));
    const permit = await gate.begin(1);
    expect(permit).toEqual({ step: 1, tool: 'note', request: '{"text":"a"}', operation: `${id}/1`, execution: 1 });
    await expect(gate.begin(1)).rejects.toMatchObject({ code: 'ERR_RUN_STATE' });
    await expect(gate.propose(NOTE)).rejects.toThrow(/a step is open/);
    expect(gate.settle(1, { outcome: 'answered_ok', value: { n: 1 } })).toMatchObject({ state: 'done', observation: { n: 1 } });
    expect(() => gate.settle(1, { outcome: 'answered_ok', value: 2 })).toThrow(expect.objectContaining({ code: 'ERR_STORE_STALE' }));
    expect(await gate.propose(NOTE)).toEqual({ kind: 'allowed', step: 2 });
  });

  test('a question waits; what was approved is handed out once, after the resumption', async () => {
    const here = lab();
    const note = tool('note', 'side-effect');
    const define = definition({ tools: [note], policies: [askAll] });
    const first = await here.runtime.start(define);
    const asked = await first.gate.propose(NOTE);
    const approval = here.store.control.pending(first.id)[0];
    expect(asked).toEqual({ kind: 'waiting', step: 1, approval: approval?.id });
    here.runtime.approve({ approval: approval?.id ?? '', shown: approval?.shown_sha256 ?? '', decider: DECIDER });
    const again = await here.runtime.resume(first.id, define);
    expect(again?.gate.approved()).toMatchObject([{ step: 1, tool: 'note', request: '{"text":"a"}' }]);
    expect(again?.gate.approved()).toEqual([]);
    expect(again?.gate.settle(1, { outcome: 'answered_ok', value: null })).toMatchObject({ state: 'done' });
    expect(note.calls).toEqual([]);
  });

  test('a limit ends the run before the call that would cross it', async () => {
    const here = lab();
    const note = tool('note', 'side-effect');
    const { gate, id } = await here.runtime.start(definition({ tools: [note], policies: [allowAll], limits: { steps: 1 } }));
    await gate.propose(NOTE);
    await gate.execute(1);
    expect(await gate.propose(NOTE)).toMatchObject({ kind: 'over', reason: 'limit_steps' });
    expect([note.calls.length, here.runtime.view(id).state]).toEqual([1, 'failed']);
  });
});
