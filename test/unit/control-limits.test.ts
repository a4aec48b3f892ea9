import { describe, expect, test } from 'vitest';
import { conservative, costOf, plausible, reservation } from '../../src/runtime/accounting.ts';
import { saturatingAdd } from '../../src/store/control-rows.ts';
import type { ControlLimits } from '../../src/runtime/contract.ts';
import type { ModelOutcome } from '../../src/runtime/model.ts';
import {
  askAll,
  askThen,
  call,
  calls,
  controlLabs,
  DECIDER,
  definition,
  finish,
  model,
  modelRequest,
  policyOf,
  reply,
  script,
  tool,
} from '../support/control-lab.host.ts';

const lab = controlLabs();
const PRICE = { inputMilliUsdPerMillion: 3000, outputMilliUsdPerMillion: 15_000 };

describe('10: limits, each with its own reason', () => {
  const ends = async (limits: ControlLimits, agent: ReturnType<typeof script>, more: Parameters<typeof definition>[0] = {}) => {
    const here = lab();
    const note = tool('note', 'side-effect');
    const bad = tool('bad', 'read-only', () => ({ outcome: 'answered_error', value: 'x' }));
    const open = await here.runtime.start(definition({ tools: [note, bad], limits, agent, ...more }));
    return { end: await open.drive(), note, bad };
  };

  test('steps: the call that would cross it is not executed', async () => {
    const { end, note } = await ends({ steps: 2 }, script(calls(call('note')), calls(call('note', { text: 'b' }), call('note', { text: 'c' }))));
    expect([end.reason, note.calls.length]).toEqual(['limit_steps', 1]);
  });

  test('consecutive failures, which a success takes back', async () => {
    const { end, bad } = await ends(
      { failures: 2 },
      script(calls(call('bad')), calls(call('note')), calls(call('bad', { text: 'b' })), calls(call('nothing'), call('note'))),
    );
    expect([end.reason, bad.calls.length, end.steps.at(-1)?.state]).toEqual(['limit_failures', 2, 'failed']);
  });

  test('loops: the same calls again are not executed', async () => {
    const same = calls(call('note'));
    const { end, note } = await ends({ loops: 3 }, script(same, same, same, same));
    expect([end.reason, note.calls.length]).toEqual(['limit_loops', 2]);
  });

  test('model requests', async () => {
    const provider = model([reply()]);
    const { end } = await ends({ modelCalls: 2 }, script(askThen(calls(call('note'))), askThen(calls(call('note', { text: 'b' }))), askThen(finish())), {
      model: { model: provider, name: 'm', maxOutputTokens: 100 },
    });
    expect([end.reason, provider.requests.length]).toEqual(['limit_model_calls', 2]);
  });

  test.each([
    ['limit_input_tokens', { inputTokens: 1500 }],
    ['limit_output_tokens', { outputTokens: 150 }],
    ['limit_cost', { costNanoUsd: 6_000_000 }],
  ] as const)('%s stops before the request that would cross it', async (reason, limits) => {
    const provider = model([reply({ usage: { inputTokens: 500, outputTokens: 90 } })], PRICE);
    const { end } = await ends(limits, script(askThen(calls(call('note'))), askThen(finish())), {
      model: { model: provider, name: 'm', maxOutputTokens: 100 },
    });
    expect([end.reason, provider.requests.length]).toEqual([reason, 1]);
    expect(end.inputTokens).toBe(500);
  });

  test('an agent that swallows the limit changes nothing', async () => {
    const provider = model([reply()]);
    const { end, note } = await ends(
      { modelCalls: 1 },
      script(async (_view, access) => {
        await access.ask(modelRequest());
        await access.ask(modelRequest()).catch(() => undefined);
        return calls(call('note'));
      }),
      { model: { model: provider, name: 'm', maxOutputTokens: 100 } },
    );
    expect([end.reason, provider.requests.length, note.calls]).toEqual(['limit_model_calls', 1, []]);
  });

  test('active time', async () => {
    const here = lab();
    const slow = tool('slow', 'side-effect', () => ((here.now += 5000), { outcome: 'answered_ok', value: 1 }));
    const open = await here.runtime.start(
      definition({ tools: [slow], limits: { activeMs: 4000 }, agent: script(calls(call('slow')), calls(call('slow', { text: 'b' }))) }),
    );
    const end = await open.drive();
    expect([end.reason, slow.calls.length]).toEqual(['limit_active_time', 1]);
  });

  test('active time does not run while a run waits; elapsed time does', async () => {
    for (const [limits, reason] of [
      [{ activeMs: 4000 }, 'finished'],
      [{ elapsedMs: 4000 }, 'limit_elapsed_time'],
    ] as const) {
      const here = lab();
      const define = definition({ tools: [tool('note', 'side-effect')], policies: [askAll], limits, agent: script(calls(call('note'))) });
      const open = await here.runtime.start(define);
      await open.drive();
      const asked = here.store.control.pending(open.id)[0]!;
      here.now += 3000;
      here.runtime.approve({ approval: asked.id, shown: asked.shown_sha256, decider: DECIDER });
      here.now += 3000;
      await (await here.runtime.resume(open.id, define))?.drive();
      expect(here.runtime.view(open.id).reason).toBe(reason);
    }
  });

  test('an approval and a grant expire, fired by the sweeper and refused without it', async () => {
    for (const how of ['sweeper', 'touch'] as const) {
      for (const kind of ['approval_expired', 'grant_expired'] as const) {
        const here = lab();
        const note = tool('note', 'side-effect');
        const define = definition({ tools: [note], policies: [askAll], limits: { approvalMs: 1000, grantMs: 2000 }, agent: script(calls(call('note'))) });
        const open = await here.runtime.start(define);
        await open.drive();
        const asked = here.store.control.pending(open.id)[0]!;
        const shown = { approval: asked.id, shown: asked.shown_sha256, decider: DECIDER };
        if (kind === 'grant_expired') here.runtime.approve(shown);
        here.now += kind === 'grant_expired' ? 2000 : 1000;
        if (how === 'sweeper') {
          expect(here.another().sweep()).toEqual([{ run: open.id, reason: kind }]);
          expect(here.runtime.sweep()).toEqual([]);
        } else {
          if (kind === 'approval_expired') expect(() => here.runtime.approve(shown)).toThrow(/expired/);
          expect(await here.runtime.resume(open.id, define)).toBeUndefined();
        }
        const end = here.runtime.view(open.id);
        expect([end.state, end.reason, end.approvals[0]?.state, note.calls.length]).toEqual(['failed', kind, 'expired', 0]);
        expect(here.store.control.check(open.id)).toEqual({ ok: true });
      }
    }
  });

  test('the sweeper ends a waiting run past its elapsed time', async () => {
    const here = lab();
    const open = await here.runtime.start(
      definition({ tools: [tool('note', 'side-effect')], policies: [askAll], limits: { elapsedMs: 1000 }, agent: script(calls(call('note'))) }),
    );
    await open.drive();
    here.now += 1000;
    expect(here.runtime.sweep()).toEqual([{ run: open.id, reason: 'limit_elapsed_time' }]);
    expect(here.store.control.pending()).toEqual([]);
  });

  test('a request without an output cap is refused under a limit of tokens or cost', async () => {
    for (const limits of [{ outputTokens: 1000 }, { costNanoUsd: 10 ** 9 }]) {
      const provider = model([reply()], PRICE);
      const { end } = await ends(limits, script(askThen(finish(), { max_output_tokens: null })), {
        model: { model: provider, name: 'm', maxOutputTokens: 100 },
      });
      expect([end.reason, provider.requests.length]).toEqual(['agent_failed', 0]);
      const here = lab();
      await expect(here.runtime.start(definition({ limits, model: { model: provider, name: 'm', maxOutputTokens: null } }))).rejects.toMatchObject({
        code: 'ERR_USAGE',
      });
    }
  });

  test('a limit of cost without a price is refused, at admission and at the request', async () => {
    const here = lab();
    const priceless = model([reply()]);
    const limits = { costNanoUsd: 10 ** 9 };
    await expect(here.runtime.start(definition({ limits, model: { model: priceless, name: 'm', maxOutputTokens: 9 } }))).rejects.toMatchObject({
      code: 'ERR_USAGE',
    });
    const partly = { ...model([reply()]), price: (name: string) => (name === 'm' ? PRICE : undefined) };
    const { end } = await ends(limits, script(askThen(finish(), { model: 'other' })), { model: { model: partly, name: 'm', maxOutputTokens: 9 } });
    expect(end.reason).toBe('agent_failed');
  });

  test('a retry never waits past a limit of time', async () => {
    const pauses: number[] = [];
    const here = lab({ pause: async (ms) => void pauses.push(ms) });
    const provider = model([{ kind: 'refused', detail: 'busy', retryable: true, retryAfterMs: 20_000 }]);
    const open = await here.runtime.start(
      definition({ limits: { elapsedMs: 10_000, retries: 9 }, agent: script(askThen(finish())), model: { model: provider, name: 'm', maxOutputTokens: 9 } }),
    );
    const end = await open.drive();
    expect([end.reason, provider.requests.length, pauses]).toEqual(['limit_elapsed_time', 1, []]);
  });

  test.each([{ steps: 0 }, { steps: 1.5 }, { failures: -1 }, { inputTokens: Number.NaN }])('a limit that is none is refused: %j', async (limits) => {
    await expect(lab().runtime.start(definition({ limits }))).rejects.toMatchObject({ code: 'ERR_USAGE' });
  });
});

describe('11: every model attempt is accounted', () => {
  const spent = async (outcomes: readonly (ModelOutcome | (() => ModelOutcome | Promise<ModelOutcome>))[], limits: ControlLimits = {}) => {
    const here = lab({ pause: async () => undefined });
    const provider = model(outcomes, PRICE);
    const open = await here.runtime.start(
      definition({ limits, agent: script(askThen(finish())), model: { model: provider, name: 'm', maxOutputTokens: 100 } }),
    );
    const end = await open.drive();
    return { end, rows: here.store.control.rows(open.id), provider, check: here.store.control.check(open.id) };
  };
  const bytes = Buffer.byteLength('{"max_output_tokens":100,"messages":[{"role":"user","text":"x"}],"model":"m","system":"s","tools":[]}');
  const reserved = bytes + 1024;

  test('reserved and debited before it is sent', async () => {
    const here = lab();
    let before: unknown;
    const provider = model([
      () => {
        const rows = here.store.control.rows(open.id);
        before = [rows.run.input_tokens, rows.run.output_tokens, rows.attempts.map(({ state }) => state), rows.run.model_calls];
        return reply();
      },
    ]);
    const open = await here.runtime.start(definition({ agent: script(askThen(finish())), model: { model: provider, name: 'm', maxOutputTokens: 100 } }));
    const end = await open.drive();
    expect(before).toEqual([reserved, 100, ['reserved'], 1]);
    expect([end.inputTokens, end.outputTokens]).toEqual([100, 10]);
  });

  test('a reply is charged as it says', async () => {
    const { end, rows, check } = await spent([reply()]);
    expect([end.inputTokens, end.outputTokens, end.costNanoUsd]).toEqual([100, 10, 100 * 3000 + 10 * 15_000]);
    expect(rows.attempts[0]).toMatchObject({ state: 'settled', charged_cost: 450_000 });
    expect(check).toEqual({ ok: true });
  });

  test.each([
    ['nothing', null],
    ['no input at all', { inputTokens: 0, outputTokens: 10 }],
    ['too little output for what was said', { inputTokens: 100, outputTokens: 0 }],
    ['more output than the cap', { inputTokens: 100, outputTokens: 101 }],
    ['more input than there are bytes', { inputTokens: 10 ** 6, outputTokens: 10 }],
    ['a fraction', { inputTokens: 10.5, outputTokens: 10 }],
    ['a negative number', { inputTokens: -100, outputTokens: 10 }],
    ['no number', { inputTokens: Number.NaN, outputTokens: 10 }],
  ])('usage that can not be right is charged at the conservative estimate: %s', async (_reason, usage) => {
    const { end, rows } = await spent([reply({ usage })]);
    expect([end.inputTokens, end.outputTokens]).toEqual([reserved, 100]);
    expect(rows.attempts[0]?.state).toBe('conservative');
  });

  test.each([
    ['no answer', { kind: 'no_answer', detail: 'x' }, 1],
    ['cut off', { kind: 'cut_off', detail: 'x' }, 1],
    ['not sent', { kind: 'not_sent', detail: 'x' }, 0],
    ['refused', { kind: 'refused', detail: 'x', retryable: true }, 0],
    ['an outcome that nobody knows', { kind: 'odd' }, 1],
  ] as const)('a try that came to nothing is counted, and charged unless nothing was served: %s', async (_reason, outcome, times) => {
    const { end, provider } = await spent([outcome as ModelOutcome, reply()]);
    expect([end.state, provider.requests.length, end.modelCalls]).toEqual(['completed', 2, 2]);
    expect([end.inputTokens, end.outputTokens]).toEqual([100 + times * reserved, 10 + times * 100]);
  });

  test('a model that throws is charged in full', async () => {
    const { end } = await spent([() => Promise.reject(new Error('socket hang up'))], { retries: 1 });
    expect([end.reason, end.modelCalls, end.inputTokens, end.outputTokens]).toEqual(['model_failed', 2, 2 * reserved, 200]);
  });

  test('a reply that can not be used is charged all the same', async () => {
    const { end } = await spent([reply({ stop: 'length' })]);
    expect([end.turns[0]?.kind, end.inputTokens, end.outputTokens]).toEqual(['invalid', 100, 10]);
  });

  test('totals saturate, and stay so', () => {
    const top = Number.MAX_SAFE_INTEGER;
    expect(saturatingAdd(top - 5, 10)).toBe(top);
    expect(saturatingAdd(top, -1000)).toBe(top);
    expect(saturatingAdd(5, -10)).toBe(0);
    const huge = { inputMilliUsdPerMillion: top, outputMilliUsdPerMillion: top };
    expect(costOf(huge, top, top)).toBe(top);
    expect(reservation(top, top, huge)).toEqual({ inputTokens: top, outputTokens: top, costNanoUsd: top });
  });

  test('the conservative charge is never below what was seen', () => {
    const text = 'x'.repeat(5000);
    const said = { stop: 'end', text, calls: [], usage: null } as const;
    expect(conservative(reservation(10, null, PRICE), said, PRICE).outputTokens).toBe(5000);
    expect(
      plausible({ inputTokens: 10, outputTokens: 10 }, { requestBytes: 10, reserved: reservation(10, null, PRICE), maxOutputTokens: null, reply: said }),
    ).toBe(false);
  });

  test('a cancel during a dispatch charges the reservation', async () => {
    const here = lab();
    const provider = model([
      () => {
        here.another().cancel(open.id, DECIDER);
        return reply();
      },
    ]);
    const open = await here.runtime.start(definition({ agent: script(askThen(finish())), model: { model: provider, name: 'm', maxOutputTokens: 100 } }));
    const end = await open.drive();
    expect([end.state, end.inputTokens, here.store.control.rows(open.id).attempts[0]?.state]).toEqual(['cancelled', reserved, 'orphaned']);
  });
});

describe('8: a run in progress belongs to one process', () => {
  test('it is not resumed while it is live', async () => {
    const here = lab();
    const define = definition({ agent: script(calls(call('note'))), tools: [tool('note', 'side-effect')] });
    const open = await here.runtime.start(define);
    await expect(here.another().resume(open.id, define)).rejects.toMatchObject({ code: 'ERR_STORE_STALE' });
    expect((await open.drive()).state).toBe('completed');
  });

  test('a loop that lost its lease starts no tool call and no model request', async () => {
    const here = lab({ leaseMs: 1000 });
    const note = tool('note', 'side-effect');
    const provider = model([reply()]);
    const define = definition({ tools: [note], agent: script(askThen(calls(call('note')))), model: { model: provider, name: 'm', maxOutputTokens: 9 } });
    const open = await here.runtime.start(define);
    here.now += 60_000;
    const taken = await here.another().resume(open.id, define);
    await expect(open.drive()).rejects.toMatchObject({ code: 'ERR_STORE_STALE' });
    expect([provider.requests.length, note.calls.length]).toEqual([0, 0]);
    expect((await taken?.drive())?.state).toBe('completed');
    expect([provider.requests.length, note.calls.length]).toEqual([1, 1]);
  });

  test('a lease that lapsed starts nothing, also when nobody took the run', async () => {
    for (const kind of ['tool', 'model'] as const) {
      const here = lab({ leaseMs: 1000 });
      const note = tool('note', 'side-effect');
      const provider = model([reply()]);
      const lapse = (): void => {
        here.now += 60_000;
      };
      const agent = script(async (_view, access) => {
        lapse();
        if (kind === 'model') await access.ask(modelRequest());
        return calls(call('note'));
      });
      const open = await here.runtime.start(definition({ tools: [note], agent, model: { model: provider, name: 'm', maxOutputTokens: 100 } }));
      await expect(open.drive()).rejects.toThrow(/the lease lapsed/);
      expect([provider.requests.length, note.calls.length]).toEqual([0, 0]);
    }
  });

  test('a lease is renewed while the main thread is busy', async () => {
    const real = controlLab({ realTime: true, leaseMs: 400 });
    const note = tool('note', 'side-effect');
    const busy = policyOf(() => {
      const until = Date.now() + 1200;
      while (Date.now() < until);
      return { kind: 'allow' };
    });
    // The thread needs a moment to be there before the main one is busy.
    const open = await real.runtime.start(definition({ tools: [note], policies: [busy], agent: script(calls(call('note'))) }));
    const first = real.store.control.read(open.id)!.expires_ms!;
    await expect.poll(() => real.store.control.read(open.id)!.expires_ms!, { interval: 10, timeout: 5000 }).toBeGreaterThan(first);
    expect((await open.drive()).state).toBe('completed');
    expect(note.calls).toHaveLength(1);
  });
});

const controlLab = lab;

describe('read-only calls of one reply', () => {
  test('run side by side, side effects alone and in order', async () => {
    const here = lab();
    let running = 0;
    let most = 0;
    const order: string[] = [];
    const meet = (name: string, expected: number) => async () => {
      running += 1;
      most = Math.max(most, running);
      order.push(name);
      // Goes on when all of them are there: it would stand still if they ran one after the other.
      await expect.poll(() => most, { interval: 1 }).toBeGreaterThanOrEqual(expected);
      running -= 1;
      return { outcome: 'answered_ok' as const, value: 1 };
    };
    const tools = [tool('look', 'read-only', meet('look', 3)), tool('write', 'side-effect', meet('write', 1))];
    const open = await here.runtime.start(
      definition({
        tools,
        agent: script(calls(call('look'), call('look', { text: 'b' }), call('look', { text: 'c' }), call('write'), call('look', { text: 'd' }))),
      }),
    );
    const end = await open.drive();
    expect([end.state, most, order]).toEqual(['completed', 3, ['look', 'look', 'look', 'write', 'look']]);
  });
});
