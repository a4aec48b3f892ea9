import { describe, expect, test } from 'vitest';
import { allowAll, askAll, call, calls, controlLabs, DECIDER, definition, finish, policyOf, script, tool } from '../support/control-lab.host.ts';

const lab = controlLabs();

describe('the loop', () => {
  test('a call is recorded, judged, executed and settled, and the run completes', async () => {
    const { runtime, store } = lab();
    const note = tool('note', 'side-effect');
    const open = await runtime.start(definition({ tools: [note], agent: script(calls(call('note', { text: 'a' }))) }));
    const end = await open.drive();
    expect(end.state).toBe('completed');
    expect(end.steps.map(({ state, outcome, observation }) => [state, outcome, observation])).toEqual([['done', 'answered_ok', { ok: true }]]);
    expect(note.calls).toHaveLength(1);
    expect(store.control.check(open.id)).toEqual({ ok: true });
    expect(store.control.events(open.id).map(({ kind }) => kind)).toEqual(['run.started', 'turn.recorded', 'step.started', 'step.settled', 'run.completed']);
  });

  test('a question pauses the run; approving and resuming executes it once', async () => {
    const { runtime, store } = lab();
    const note = tool('note', 'side-effect');
    const define = definition({ tools: [note], policies: [askAll], agent: script(calls(call('note'))) });
    const open = await runtime.start(define);
    expect((await open.drive()).state).toBe('waiting');
    const [asked] = store.control.pending(open.id);
    expect(note.calls).toHaveLength(0);
    runtime.approve({ approval: asked?.id ?? '', shown: asked?.shown_sha256 ?? '', decider: DECIDER });
    const again = await runtime.resume(open.id, define);
    const end = await again?.drive();
    expect(end?.state).toBe('completed');
    expect(note.calls).toHaveLength(1);
    expect(store.control.check(open.id)).toEqual({ ok: true });
  });

  test('a denial is told to the agent', async () => {
    const { runtime } = lab();
    const note = tool('note', 'side-effect');
    const open = await runtime.start(
      definition({ tools: [note], policies: [allowAll, policyOf(() => ({ kind: 'deny', reason: 'no' }))], agent: script(calls(call('note')), finish()) }),
    );
    const end = await open.drive();
    expect([end.state, end.steps[0]?.state, end.steps[0]?.detail]).toEqual(['completed', 'denied', 'no']);
    expect(note.calls).toHaveLength(0);
  });
});
