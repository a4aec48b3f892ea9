import { describe, expect, test } from 'vitest';
import {
  allowAll,
  askThen,
  call,
  calls,
  controlLabs,
  definition,
  finish,
  model,
  modelRequest,
  policyOf,
  reply,
  script,
  tool,
} from '../support/control-lab.host.ts';
import { sha256Hex } from '../../src/core/canonical-json.ts';
import type { RunView } from '../../src/runtime/record.ts';

const lab = controlLabs();

describe('1: no call without schema and policy', () => {
  test.each([
    ['arguments that do not match the schema', call('note', { text: 1 }), 'invalid'],
    ['an argument that the schema does not know', call('note', { text: 'a', more: 1 }), 'invalid'],
    ['a tool that is not there', call('other'), 'invalid'],
    ['arguments that are no JSON', call('note', '{"text":'), 'invalid'],
  ])('%s', async (_reason, one, state) => {
    const { runtime } = lab();
    const note = tool('note', 'side-effect');
    const asked: string[] = [];
    const open = await runtime.start(
      definition({ tools: [note], policies: [policyOf(({ tool: name }) => (asked.push(name), { kind: 'allow' }))], agent: script(calls(one)) }),
    );
    const end = await open.drive();
    expect([end.state, end.steps[0]?.state]).toEqual(['completed', state]);
    expect(note.calls).toEqual([]);
    // The policy is asked only about what fits.
    expect(asked).toEqual([]);
  });

  test('a denial is never executed, and without a policy nothing is', async () => {
    for (const policies of [[policyOf(() => ({ kind: 'deny', reason: 'no' }))], []]) {
      const { runtime } = lab();
      const note = tool('note', 'side-effect');
      const open = await runtime.start(definition({ tools: [note], policies, agent: script(calls(call('note'))) }));
      expect((await open.drive()).steps[0]?.state).toBe('denied');
      expect(note.calls).toEqual([]);
    }
  });

  test.each([
    ['another word', { kind: 'maybe' }],
    ['nothing', undefined],
    ['true', true],
    ['a denial without a reason', { kind: 'deny' }],
    ['a question with a time that is none', { kind: 'ask', expiresMs: -1 }],
  ])('an answer of the policy that nobody knows ends the run: %s', async (_reason, answer) => {
    const { runtime } = lab();
    const note = tool('note', 'side-effect');
    const open = await runtime.start(definition({ tools: [note], policies: [policyOf(() => answer)], agent: script(calls(call('note'))) }));
    const end = await open.drive();
    expect([end.state, end.reason]).toEqual(['failed', 'policy_unknown']);
    expect(note.calls).toEqual([]);
  });

  test('an answer of the policy that nobody knows ends the run on resumption too', async () => {
    const { runtime, store } = lab();
    const note = tool('note', 'side-effect');
    let answer: unknown = { kind: 'ask' };
    const define = definition({ tools: [note], policies: [policyOf(() => answer)], agent: script(calls(call('note'))) });
    const open = await runtime.start(define);
    await open.drive();
    const [asked] = store.control.pending(open.id);
    runtime.approve({ approval: asked!.id, shown: asked!.shown_sha256, decider: { uid: 1, pid: 1, via: 'test' } });
    answer = { kind: 'whatever' };
    expect(await runtime.resume(open.id, define)).toBeUndefined();
    expect([runtime.view(open.id).reason, note.calls]).toEqual(['policy_unknown', []]);
  });

  test('the agent gets no handle to a tool or a policy', async () => {
    const { runtime } = lab();
    const agent = script(calls(call('note')));
    const open = await runtime.start(definition({ tools: [tool('note', 'side-effect')], agent }));
    await open.drive();
    const seen = new Set<unknown>();
    const functions: string[] = [];
    const walk = (value: unknown, path: string): void => {
      if (typeof value === 'function') functions.push(path);
      if (typeof value !== 'object' || value === null || seen.has(value)) return;
      seen.add(value);
      for (const [key, item] of Object.entries(value)) walk(item, `${path}.${key}`);
    };
    agent.views.forEach((view, index) => walk(view, String(index)));
    expect(functions).toEqual([]);
  });
});

describe('2: no partial call', () => {
  test.each(['length', 'refusal', 'other'] as const)('a reply that ended with %s is invalid, and its calls are never acted upon', async (stop) => {
    const { runtime } = lab();
    const note = tool('note', 'side-effect');
    const provider = model([reply({ stop, calls: [{ id: 'c', tool: 'note', arguments: '{"text":"a"}' }] }), reply()]);
    const open = await runtime.start(
      definition({ tools: [note], agent: script(askThen(calls(call('note'))), finish()), model: { model: provider, name: 'm', maxOutputTokens: 100 } }),
    );
    const end = await open.drive();
    expect(end.turns[0]).toMatchObject({ kind: 'invalid', stop });
    expect(end.steps).toEqual([]);
    expect(note.calls).toEqual([]);
  });

  test('a whole reply before a cut one does not make the cut one whole', async () => {
    const { runtime } = lab();
    const note = tool('note', 'side-effect');
    const provider = model([reply(), reply({ stop: 'length' })]);
    const open = await runtime.start(
      definition({
        tools: [note],
        agent: script(async (_view, access) => {
          await access.ask(modelRequest());
          await access.ask(modelRequest());
          return calls(call('note'));
        }),
        model: { model: provider, name: 'm', maxOutputTokens: 100 },
      }),
    );
    const end = await open.drive();
    expect(end.turns[0]?.kind).toBe('invalid');
    expect(note.calls).toEqual([]);
  });
});

describe('3: the policy sees the truth, and only a copy', () => {
  test('what it gets is frozen all the way down, and so is what the agent gets', async () => {
    const { runtime } = lab();
    const faults: string[] = [];
    const attack = (view: RunView): void => {
      const loosely = view as unknown as { steps: { state: string; arguments: Record<string, unknown> }[]; state: string };
      for (const [name, change] of Object.entries({
        state: (): unknown => (loosely.state = 'completed'),
        list: (): unknown => loosely.steps.push(loosely.steps[0]!),
        step: (): unknown => (loosely.steps[0]!.state = 'done'),
        arguments: (): unknown => (loosely.steps[0]!.arguments['text'] = 'other'),
      })) {
        try {
          change();
          faults.push(name);
        } catch (error) {
          expect(error).toBeInstanceOf(TypeError);
        }
      }
    };
    const note = tool('note', 'side-effect');
    const policy = policyOf(({ run }) => (attack(run), { kind: 'allow' }));
    const open = await runtime.start(
      definition({
        tools: [note],
        policies: [policy, policy],
        agent: script(calls(call('note')), (view) => (attack(view), calls(call('note', { text: 'b' }))), finish()),
      }),
    );
    const end = await open.drive();
    expect(faults).toEqual([]);
    expect(end.steps.map((step) => step.arguments)).toEqual([{ text: 'a' }, { text: 'b' }]);
    expect(note.calls.map(({ request }) => request)).toEqual(['{"text":"a"}', '{"text":"b"}']);
  });

  test('a question can not be altered for the next policy or for the driver', async () => {
    const { runtime } = lab();
    const note = tool('note', 'side-effect');
    const seen: unknown[] = [];
    const evil = policyOf((question) => {
      try {
        (question as { request: string }).request = '{"text":"evil"}';
        (question.arguments as { text: string }).text = 'evil';
      } catch {
        // Frozen.
      }
      return { kind: 'allow' };
    });
    const honest = policyOf((question) => (seen.push(question.arguments, question.request), { kind: 'allow' }), '2');
    const open = await runtime.start(definition({ tools: [note], policies: [evil, honest], agent: script(calls(call('note'))) }));
    await open.drive();
    expect(seen).toEqual([{ text: 'a' }, '{"text":"a"}']);
    expect(note.calls[0]?.arguments).toEqual({ text: 'a' });
  });

  test('what is kept equals what is read anew, at every step', async () => {
    const { runtime, store } = lab();
    const kept: RunView[] = [];
    const anew: RunView[] = [];
    const ids: string[] = [];
    const look = (run: RunView): { kind: 'allow' } => {
      kept.push(run);
      anew.push(runtime.view(ids[0]!));
      return { kind: 'allow' };
    };
    const note = tool('note', 'read-only');
    const open = await runtime.start(
      definition({
        tools: [note, tool('fails', 'side-effect', () => ({ outcome: 'answered_error', value: 'x' }))],
        policies: [policyOf(({ run }) => look(run))],
        agent: script(
          calls(call('note'), call('note', { text: 'b' }), call('nothing')),
          (view) => {
            kept.push(view);
            anew.push(runtime.view(ids[0]!));
            return calls(call('fails'));
          },
          'not a decision' as never,
          finish(),
        ),
      }),
    );
    ids.push(open.id);
    const end = await open.drive();
    expect(kept.length).toBeGreaterThan(3);
    expect(anew).toEqual(kept);
    expect(runtime.view(open.id)).toEqual(end);
    expect(store.control.check(open.id)).toEqual({ ok: true });
  });

  test('it is asked about the record as it is: earlier steps with how they went, and approvals', async () => {
    const { runtime } = lab();
    const states: (readonly string[])[] = [];
    const policy = policyOf(({ run }) => (states.push(run.steps.map(({ state }) => state)), { kind: 'allow' }));
    const open = await runtime.start(
      definition({ tools: [tool('note', 'side-effect')], policies: [policy], agent: script(calls(call('note')), calls(call('note', { text: 'b' }))) }),
    );
    await open.drive();
    expect(states).toEqual([['proposed'], ['done', 'proposed']]);
  });
});

describe('4: a decision is recorded before it is looked at', () => {
  test('as received, with the reason, before the policy is asked', async () => {
    const { runtime, store } = lab();
    let before: unknown;
    const policy = policyOf(({ run }) => {
      before = store.control.rows(run.id).turns.map(({ kind, reason }) => [kind, reason]);
      return { kind: 'allow' };
    });
    const open = await runtime.start(definition({ tools: [tool('note', 'side-effect')], policies: [policy], agent: script(calls(call('note'))) }));
    await open.drive();
    expect(before).toEqual([['calls', 'it is needed']]);
  });

  test('arguments that are no JSON are kept verbatim and out of band, never as arguments', async () => {
    const bytes = Buffer.from('{"text": "\xff', 'latin1');
    const { runtime, store } = lab();
    const open = await runtime.start(
      definition({ tools: [tool('note', 'side-effect')], agent: script(calls(call('note', bytes), call('note', '{"text":"a","text":"b"}'))) }),
    );
    const end = await open.drive();
    const rows = store.control.rows(open.id).steps;
    expect(rows.map((row) => row.arguments)).toEqual([null, null]);
    expect(rows.map((row) => Buffer.from(row.raw ?? '', 'base64'))).toEqual([bytes, Buffer.from('{"text":"a","text":"b"}')]);
    expect(end.steps.map((step) => [step.state, step.arguments, step.request])).toEqual([
      ['invalid', null, null],
      ['invalid', null, null],
    ]);
  });

  test('number literals keep their form from the reply to the tool', async () => {
    const { runtime } = lab();
    const note = tool('note', 'side-effect');
    const open = await runtime.start(definition({ tools: [note], agent: script(calls(call('note', '{"text":"a", "count":1.50e1}'))) }));
    await open.drive();
    expect(note.calls[0]?.request).toBe('{"count":1.50e1,"text":"a"}');
    expect(note.calls[0]?.arguments).toEqual({ text: 'a', count: 15 });
  });

  test('what is no decision is recorded as an invalid reply', async () => {
    const { runtime } = lab();
    const odd: readonly unknown[] = [
      undefined,
      'text',
      { kind: 'calls' },
      { kind: 'calls', reason: 'r', calls: [] },
      { kind: 'calls', reason: 1, calls: [call('note')] },
      { kind: 'calls', reason: '\ud800', calls: [call('note')] },
    ];
    const note = tool('note', 'side-effect');
    const open = await runtime.start(definition({ tools: [note], agent: script(...odd.map((one) => () => one)) }));
    const end = await open.drive();
    expect(end.turns.map(({ kind }) => kind)).toEqual([...odd.map(() => 'invalid'), 'finish']);
    expect(end.failures).toBe(odd.length);
    expect(note.calls).toEqual([]);
  });
});

describe('5: what is stored is never a stand-in', () => {
  test.each([
    ['bad UTF-8', Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d])],
    ['nesting over 256', `{"text":${'['.repeat(257)}${']'.repeat(257)}}`],
    ['a repeated key', '{"text":"a","text":"a"}'],
    ['an unpaired surrogate', '{"text":"\\ud800"}'],
    ['half of a pair in the text itself', '{"text":"\ud800"}'],
    ['a number that no double holds', '{"text":"a","count":1e999}'],
    ['an integer that would lose digits', '{"text":"a","count":9007199254740993}'],
    ['trailing data', '{"text":"a"} {}'],
  ])('refuses arguments with %s', async (_reason, text) => {
    const { runtime } = lab();
    const note = tool('note', 'side-effect');
    const open = await runtime.start(definition({ tools: [note], agent: script(calls(call('note', text))) }));
    const end = await open.drive();
    expect([end.steps[0]?.state, end.steps[0]?.arguments, note.calls]).toEqual(['invalid', null, []]);
  });

  test.each([
    ['NaN', Number.NaN],
    ['undefined', undefined],
    ['a function', () => 1],
    ['an unpaired surrogate', '\ud800'],
    ['a huge number', 1e300],
  ])('an answer that does not encode ends the run with nothing more executed: %s', async (_reason, value) => {
    const { runtime, store } = lab();
    const odd = tool('odd', 'side-effect', () => ({ outcome: 'answered_ok', value }));
    const note = tool('note', 'side-effect');
    const open = await runtime.start(definition({ tools: [odd, note], agent: script(calls(call('odd'), call('note'))) }));
    const end = await open.drive();
    expect([end.state, end.reason]).toEqual(['failed', 'internal_error']);
    expect(end.steps.map(({ state, outcome, observation }) => [state, outcome, observation])).toEqual([
      ['failed', 'answered_unrecordable', null],
      ['failed', null, null],
    ]);
    expect(note.calls).toEqual([]);
    expect(store.control.check(open.id)).toEqual({ ok: true });
  });

  test('a result that does not encode ends the run as internal_error', async () => {
    const { runtime } = lab();
    const open = await runtime.start(definition({ agent: script(finish({ at: new Date(0) })) }));
    const end = await open.drive();
    expect([end.state, end.reason, end.result]).toEqual(['failed', 'internal_error', null]);
  });

  test('the digests of a record are pinned', async () => {
    const { runtime, store } = lab();
    const open = await runtime.start(definition({ tools: [tool('note', 'side-effect')], agent: script(calls(call('note'))) }));
    await open.drive();
    const [step] = store.control.rows(open.id).steps;
    expect(step?.request_sha256).toBe(sha256Hex('{"text":"a"}'));
    expect(sha256Hex('{"text":"a"}')).toMatchInlineSnapshot(`"6193c97585a0f731ce7b500bb69d2476816afb14c8d95ac8e6e865f680e9e438"`);
    expect(step?.spec_sha256).toMatchInlineSnapshot(`"e9e2db8b4010754b7aa804260ad74bdaae1913b66fcd665201795e2e18e71905"`);
    expect(allowAll.digest).toMatchInlineSnapshot(`"b07ff99684928fd0214c977b8e1ae84d56e4cd932715026069fe33de2d1a6c07"`);
  });
});
