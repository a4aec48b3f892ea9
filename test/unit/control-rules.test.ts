import { describe, expect, test } from 'vitest';
import type { JsonObject, JsonValue } from '../../src/core/json.ts';
import type { PolicyQuestion } from '../../src/runtime/policy.ts';
import { compileToolPolicy } from '../../src/runtime/tool-policy.ts';
import { call, calls, controlLabs, DECIDER, definition, policyOf, script, tool } from '../support/control-lab.host.ts';

const lab = controlLabs();

function decide(rules: readonly JsonObject[], args: JsonValue, more: JsonObject = {}, toolName = 'write_file') {
  const policy = compileToolPolicy({ rules, ...more }, 'tools.yaml', (pointer) => `tools.yaml:${pointer}`);
  return policy.decide({ tool: toolName, effect: 'side-effect', arguments: args } as PolicyQuestion);
}

describe('a policy file of tools', () => {
  test.each<readonly [string, JsonObject, JsonValue, JsonValue]>([
    ['equals', { at: '/a', equals: { x: [1] } }, { a: { x: [1] } }, { a: { x: [2] } }],
    ['one_of', { at: '/a', one_of: ['p', 2] }, { a: 2 }, { a: '2' }],
    ['starts_with', { at: '/a', starts_with: 'ab' }, { a: 'abc' }, { a: 'bab' }],
    ['ends_with', { at: '/a', ends_with: 'c' }, { a: 'abc' }, { a: 'abcd' }],
    ['contains', { at: '/a', contains: 'b' }, { a: 'abc' }, { a: 'ac' }],
    ['within', { at: '/a', within: 'src' }, { a: 'src/./x/../y' }, { a: 'src/../etc' }],
    ['within, a name that only begins alike', { at: '/a', within: 'src' }, { a: 'src' }, { a: 'src-other' }],
    ['within, an absolute path', { at: '/a', within: '.' }, { a: 'x' }, { a: '/x' }],
    ['at_least', { at: '/a', at_least: 2 }, { a: 2 }, { a: 1 }],
    ['at_most', { at: '/a', at_most: 2 }, { a: 2 }, { a: '1' }],
    ['longest', { at: '/a', longest: 2 }, { a: 'ab' }, { a: 'abc' }],
    ['matches', { at: '/a', matches: 'src/**/*.ts' }, { a: 'src/b/c.ts' }, { a: 'lib/c.ts' }],
    ['exists', { at: '/a/0', exists: true }, { a: [null] }, { a: [] }],
    ['exists: false', { at: '/a', exists: false }, {}, { a: null }],
    ['several in one', { at: '/a', starts_with: 'a', ends_with: 'c' }, { a: 'ac' }, { a: 'ab' }],
    ['a key with a slash', { at: '/a~1b', equals: 1 }, { 'a/b': 1 }, { a: { b: 1 } }],
    ['an inherited name is absent', { at: '/toString', exists: false }, {}, { toString: 1 }],
  ])('condition %s', (_what, condition, yes, no) => {
    const rules = [{ tool: 'write_file', when: [condition], action: 'allow' }];
    expect([decide(rules, yes), decide(rules, no)]).toMatchObject([{ kind: 'allow' }, { kind: 'deny' }]);
  });

  test('a denial beats a question, a question an allowance, whatever their order; without any the default denies', () => {
    const allow = { tool: '*', action: 'allow' };
    const ask = { tool: '*', action: 'ask' };
    const deny = { tool: '*', action: 'deny', reason: 'no' };
    for (const rules of [
      [allow, ask, deny],
      [deny, ask, allow],
      [ask, deny, allow],
    ]) {
      expect(decide(rules, {})).toMatchObject({ kind: 'deny', reason: 'no' });
    }
    expect(decide([allow, ask], {})).toMatchObject({ kind: 'ask' });
    expect(decide([], {})).toMatchObject({ kind: 'deny' });
    expect(decide([], {}, { default_action: 'ask' })).toMatchObject({ kind: 'ask' });
  });

  test('a glob of a tool matches whole names, and an effect narrows it', () => {
    expect(decide([{ tool: 'write_*', action: 'allow' }], {})).toMatchObject({ kind: 'allow' });
    expect(decide([{ tool: 'write', action: 'allow' }], {})).toMatchObject({ kind: 'deny' });
    expect(decide([{ tool: '*', effect: 'read-only', action: 'allow' }], {})).toMatchObject({ kind: 'deny' });
  });

  test('a denial that ends, ends the run; one that does not is told to the agent', async () => {
    for (const ends of [true, false]) {
      const here = lab();
      const note = tool('note', 'side-effect');
      const policies = [compileToolPolicy({ rules: [{ tool: 'note', action: 'deny', reason: 'no', ...(ends ? { ends } : {}) }] }, 'p', () => 'p')];
      const open = await here.runtime.start(definition({ tools: [note], policies, agent: script(calls(call('note'))) }));
      const end = await open.drive();
      expect([end.state, end.reason, note.calls]).toEqual(ends ? ['failed', 'policy_ended', []] : ['completed', 'finished', []]);
    }
  });

  test('a rejection ends the run where the rule says so, and denies the one call where it does not', async () => {
    for (const onReject of ['end', undefined]) {
      const here = lab();
      const note = tool('note', 'side-effect');
      const policies = [
        compileToolPolicy({ rules: [{ tool: 'note', action: 'ask', ...(onReject === undefined ? {} : { on_reject: onReject }) }] }, 'p', () => 'p'),
      ];
      const define = definition({ tools: [note], policies, agent: script(calls(call('note'))) });
      const open = await here.runtime.start(define);
      await open.drive();
      const asked = here.store.control.pending(open.id)[0];
      here.runtime.reject({ approval: asked?.id ?? '', shown: asked?.shown_sha256 ?? '', decider: DECIDER });
      const again = await here.runtime.resume(open.id, define).catch(() => undefined);
      await again?.drive();
      const end = here.runtime.view(open.id);
      expect([end.state, note.calls]).toEqual([onReject === 'end' ? 'failed' : 'completed', []]);
    }
  });
});

describe('several calls of one reply', () => {
  /** Resolves the executions when `wanted` of them are in flight; one alone waits for ever. */
  function barrier(wanted: number) {
    let waiting = 0;
    let open: () => void = () => undefined;
    const all = new Promise<void>((resolve) => (open = resolve));
    return async () => {
      if (++waiting === wanted) open();
      await all;
      return { outcome: 'answered_ok', value: waiting } as const;
    };
  }

  test('that only read are in flight together, each recorded before it starts', async () => {
    const here = lab();
    const read = tool('read', 'read-only', barrier(3));
    const open = await here.runtime.start(
      definition({ tools: [read], agent: script(calls(call('read'), call('read', { text: 'b' }), call('read', { text: 'c' }))) }),
    );
    const end = await open.drive();
    expect([end.state, end.steps.map(({ state }) => state)]).toEqual(['completed', ['done', 'done', 'done']]);
    const kinds = here.store.control.events(open.id).map(({ kind }) => kind);
    expect(kinds.lastIndexOf('step.started')).toBeLessThan(kinds.indexOf('step.settled'));
  });

  test('with a side effect run alone, in their order', async () => {
    const here = lab();
    let inFlight = 0;
    const order: string[] = [];
    const one = async ({ arguments: args }: { readonly arguments: JsonValue }) => {
      order.push((args as { text: string }).text);
      expect(++inFlight).toBe(1);
      await Promise.resolve();
      inFlight -= 1;
      return { outcome: 'answered_ok', value: null } as const;
    };
    const tools = [tool('read', 'read-only', one), tool('write', 'side-effect', one)];
    const list = [call('write', { text: 'a' }), call('write', { text: 'b' }), call('read', { text: 'c' }), call('write', { text: 'd' })];
    const open = await here.runtime.start(definition({ tools, agent: script(calls(...list)) }));
    expect((await open.drive()).state).toBe('completed');
    expect(order).toEqual(['a', 'b', 'c', 'd']);
  });

  test('no more at once than the limit says', async () => {
    const here = lab();
    let inFlight = 0;
    let most = 0;
    const read = tool('read', 'read-only', async () => {
      most = Math.max(most, ++inFlight);
      await new Promise((resolve) => setImmediate(resolve));
      inFlight -= 1;
      return { outcome: 'answered_ok', value: null };
    });
    const list = ['a', 'b', 'c', 'd', 'e'].map((text) => call('read', { text }));
    const open = await here.runtime.start(
      definition({ tools: [read], policies: [policyOf(() => ({ kind: 'allow' }))], limits: { parallel: 2 }, agent: script(calls(...list)) }),
    );
    expect([(await open.drive()).state, most]).toEqual(['completed', 2]);
  });
});
