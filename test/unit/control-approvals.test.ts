import Database from 'better-sqlite3';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { messageOf } from '../../src/core/errors.ts';
import type { ToolAnswer } from '../../src/runtime/contract.ts';
import type { ControlDefinition, NewControl } from '../../src/runtime/runtime.host.ts';
import { approvalText } from '../../src/cli/report/control.ts';
import { askAll, call, calls, controlLabs, DECIDER, definition, finish, policyOf, script, tool, type ControlLab } from '../support/control-lab.host.ts';

const lab = controlLabs();

/** A run that waits for a decision on `note {text: a}`. */
async function waiting(here: ControlLab, more: Partial<NewControl> = {}) {
  const note = tool('note', 'side-effect');
  const define = definition({ tools: [note], policies: [askAll], agent: script(calls(call('note'))), ...more });
  const open = await here.runtime.start(define);
  expect((await open.drive()).state).toBe('waiting');
  const asked = here.store.control.pending(open.id)[0]!;
  return { id: open.id, note, define, asked, shown: { approval: asked.id, shown: asked.shown_sha256, decider: DECIDER } };
}

/** Changes the database past the store, as somebody with an editor would. */
function tamper(here: ControlLab, sql: string, ...values: readonly unknown[]): void {
  const db = new Database(join(here.state, 'proofrun.db'));
  db.pragma('ignore_check_constraints = ON');
  expect(db.prepare(sql).run(...values).changes).toBe(1);
  db.close();
}

describe('6: state and audit are written together', () => {
  test('every event is seen by observers after it is on disk', async () => {
    const seen: (readonly [string, boolean])[] = [];
    const here = lab({
      onEvent: (runId, event) => {
        const other = new Database(join(here.state, 'proofrun.db'), { readonly: true });
        seen.push([event.kind, other.prepare('SELECT 1 FROM control_events WHERE run_id = ? AND kind = ?').get(runId, event.kind) !== undefined]);
        other.close();
      },
    });
    const open = await here.runtime.start(definition({ tools: [tool('note', 'side-effect')], agent: script(calls(call('note'))) }));
    await open.drive();
    expect(seen.map(([kind]) => kind)).toEqual(['run.started', 'turn.recorded', 'step.started', 'step.settled', 'run.completed']);
    expect(seen.every(([, there]) => there)).toBe(true);
  });

  test('an observer that throws changes nothing', async () => {
    const faults: unknown[] = [];
    const here = lab({
      onEvent: () => {
        throw new Error('no');
      },
      onFault: (error) => faults.push(error),
    });
    const open = await here.runtime.start(definition({ agent: script() }));
    expect((await open.drive()).state).toBe('completed');
    expect(faults).toHaveLength(2);
  });

  test('a resumption, its policy decision and the tool start are one transaction', async () => {
    const here = lab();
    const { id, shown, define } = await waiting(here);
    here.runtime.approve(shown);
    const before = here.store.control.read(id)!.last_seq;
    const open = await here.runtime.resume(id, define);
    const rows = here.store.control.rows(id);
    expect([rows.run.state, rows.steps[0]?.state, rows.approvals[0]?.state]).toEqual(['running', 'started', 'used']);
    const events = here.store.control.events(id, { seq: before });
    expect(events.map(({ kind }) => kind)).toEqual(['run.resumed', 'step.started']);
    expect(new Set(events.map(({ timeMs }) => timeMs)).size).toBe(1);
    await open?.drive();
  });

  test('a step and the run that it ends are one transaction', async () => {
    const here = lab();
    const { id, shown } = await waiting(here, { policies: [policyOf(() => ({ kind: 'ask', onReject: 'end' }))] });
    here.runtime.reject(shown);
    const rows = here.store.control.rows(id);
    expect([rows.run.state, rows.run.reason, rows.steps[0]?.state, rows.approvals[0]?.state]).toEqual(['failed', 'rejected', 'failed', 'rejected']);
    expect(here.store.control.check(id)).toEqual({ ok: true });
  });

  test.each([
    ['the run', 'UPDATE control_runs SET steps = 9'],
    ['a step', "UPDATE control_steps SET observation = '1'"],
    ['a reply', "UPDATE control_turns SET reason = 'other' WHERE number = 1"],
    ['an event', "UPDATE control_events SET data = '{}' WHERE kind = 'step.settled'"],
    [
      'a row that is put in',
      'INSERT INTO control_turns SELECT run_id, 99, kind, stop, reason, decision, raw, fault, created_ms FROM control_turns WHERE number = 1',
    ],
    ['a row that is taken out', 'DELETE FROM control_steps'],
    ['the specification', "UPDATE control_specs SET spec = '{}'"],
    ['the last event', "DELETE FROM control_events WHERE kind = 'run.completed'"],
  ])('the chain finds a change of %s', async (_what, sql) => {
    const here = lab();
    const open = await here.runtime.start(definition({ tools: [tool('note', 'side-effect')], agent: script(calls(call('note'))) }));
    await open.drive();
    expect(here.store.control.check(open.id)).toEqual({ ok: true });
    tamper(here, sql);
    expect(here.store.control.check(open.id).ok).toBe(false);
  });

  test('a head that was noted finds a chain that was cut back', async () => {
    const here = lab();
    const open = await here.runtime.start(definition({ agent: script() }));
    await open.drive();
    const events = here.store.control.events(open.id);
    const last = events.at(-1)!;
    expect(here.store.control.check(open.id, { seq: last.seq, hash: last.hash })).toEqual({ ok: true });
    expect(here.store.control.check(open.id, { seq: last.seq + 1, hash: last.hash }).ok).toBe(false);
    expect(here.store.control.check(open.id, { seq: last.seq, hash: events[0]!.hash }).ok).toBe(false);
  });
});

describe('7: transitions are compare and set', () => {
  test('of two that resume one approved run, one executes and the other gets a named error', async () => {
    const here = lab();
    const { id, note, define, shown } = await waiting(here);
    here.runtime.approve(shown);
    const results = await Promise.allSettled([here.runtime.resume(id, define), here.another().resume(id, define)]);
    const won = results.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
    const lost = results.flatMap((one): readonly unknown[] => (one.status === 'rejected' ? [one.reason] : []));
    expect(won).toHaveLength(1);
    expect(lost).toMatchObject([{ code: 'ERR_STORE_STALE' }]);
    await won[0]?.drive();
    expect(note.calls).toHaveLength(1);
  });

  test('an operator’s cancel is never overwritten', async () => {
    const here = lab();
    let release: () => void = () => undefined;
    const slow = tool('slow', 'side-effect', async () => {
      here.another().cancel(open.id, DECIDER);
      await new Promise<void>((resolve) => (release = resolve));
      return { outcome: 'answered_ok', value: 1 };
    });
    const open = await here.runtime.start(definition({ tools: [slow], agent: script(calls(call('slow'))) }));
    const end = await open.drive();
    expect([end.state, end.reason, end.steps[0]?.state]).toEqual(['cancelled', 'cancelled', 'unknown']);
    release();
  });

  test('a change of a run that has another state is refused, whatever else holds', async () => {
    const here = lab();
    const { id } = await waiting(here);
    const before = here.store.control.read(id);
    const change = () => here.store.control.change(id, { guard: { states: ['running'] }, events: [{ kind: 'run.noted' }], state: 'completed' });
    expect(change).toThrow(expect.objectContaining({ code: 'ERR_STORE_STALE' }));
    expect(here.store.control.read(id)).toEqual(before);
  });

  test('a change that was decided upon before the last event is refused, also in the same state', async () => {
    const here = lab();
    const { id } = await waiting(here);
    const seq = here.store.control.read(id)?.last_seq ?? -1;
    here.store.control.change(id, { guard: { states: ['waiting'], seq }, events: [{ kind: 'run.noted' }] });
    const late = () => here.store.control.change(id, { guard: { states: ['waiting'], seq }, events: [{ kind: 'run.noted' }] });
    expect(late).toThrow(expect.objectContaining({ code: 'ERR_STORE_STALE' }));
    expect(here.store.control.read(id)?.last_seq).toBe(seq + 1);
  });

  test('a decision is made once', async () => {
    const here = lab();
    const { shown } = await waiting(here);
    here.runtime.approve(shown);
    expect(() => here.runtime.approve(shown)).toThrow(/it is approved/);
    expect(() => here.runtime.reject(shown)).toThrow(/it is approved/);
  });
});

describe('9: a pause is bound to the request, a decision to what was shown', () => {
  test.each(['', 'abc', '0'.repeat(64), 'zz'])('a decision without the hash of what was shown is refused: %j', async (shown) => {
    const here = lab();
    const { asked } = await waiting(here);
    expect(() => here.runtime.approve({ approval: asked.id, shown, decider: DECIDER })).toThrow(/what was shown/);
    expect(here.store.control.pending(asked.run_id)).toHaveLength(1);
  });

  test.each(['request', 'presentation', 'capability', 'spec_sha256', 'policy_sha256', 'shown_sha256'])(
    'a row whose %s was altered grants nothing',
    async (column) => {
      const here = lab();
      const { id, note, define, asked, shown } = await waiting(here);
      here.runtime.approve(shown);
      tamper(here, `UPDATE control_approvals SET ${column} = ? WHERE id = ?`, column === 'request' ? '{"text":"evil"}' : 'f'.repeat(64), asked.id);
      await expect(here.runtime.resume(id, define)).rejects.toMatchObject({ code: 'ERR_STORE_UNREADABLE' });
      expect(note.calls).toEqual([]);
    },
  );

  test('a row that was altered can not be approved', async () => {
    const here = lab();
    const { asked, shown } = await waiting(here);
    tamper(here, 'UPDATE control_approvals SET request = ? WHERE id = ?', '{"text":"evil"}', asked.id);
    expect(() => here.runtime.approve(shown)).toThrow(/altered/);
  });

  test('a tool or a policy that changed since is asked about again; the old approval is withdrawn', async () => {
    const here = lab();
    const { id, define, shown } = await waiting(here);
    here.runtime.approve(shown);
    const note = tool('note', 'side-effect', undefined, { description: 'another' });
    const changed: ControlDefinition = { ...define, tools: [note] };
    expect(await here.runtime.resume(id, changed)).toBeUndefined();
    const rows = here.store.control.rows(id);
    expect(rows.approvals.map(({ state }) => state)).toEqual(['withdrawn', 'pending']);
    expect(note.calls).toEqual([]);
    // The first one counts for nothing now; the latest alone grants.
    expect(() => here.runtime.approve(shown)).toThrow(/it is withdrawn/);
    const latest = rows.approvals[1]!;
    here.runtime.approve({ approval: latest.id, shown: latest.shown_sha256, decider: DECIDER });
    await (await here.runtime.resume(id, changed))?.drive();
    expect(note.calls).toHaveLength(1);
  });

  test('on resumption the policy is asked again, and a denial counts', async () => {
    const here = lab();
    const { id, note, define, shown } = await waiting(here);
    here.runtime.approve(shown);
    const open = await here.runtime.resume(id, { ...define, policies: [policyOf(() => ({ kind: 'deny', reason: 'not now' }))] });
    const end = await open?.drive();
    expect([end?.steps[0]?.state, end?.steps[0]?.detail, end?.approvals[0]?.state]).toEqual(['denied', 'not now', 'withdrawn']);
    expect(note.calls).toEqual([]);
  });

  test('on resumption the schema is asked again', async () => {
    const here = lab();
    const { id, define, shown } = await waiting(here);
    here.runtime.approve(shown);
    const strict = tool('note', 'side-effect', undefined, { inputSchema: { type: 'object', required: ['other'] } });
    const end = await (await here.runtime.resume(id, { ...define, tools: [strict] }))?.drive();
    expect([end?.steps[0]?.state, strict.calls]).toEqual(['failed', []]);
  });

  test('on resumption every limit is asked again', async () => {
    const here = lab();
    const { id, note, define, shown } = await waiting(here);
    here.runtime.approve(shown);
    here.now += 10_000;
    expect(await here.runtime.resume(id, { ...define, limits: { elapsedMs: 5000 } })).toBeUndefined();
    expect([here.runtime.view(id).reason, note.calls]).toEqual(['limit_elapsed_time', []]);
  });

  test('an operator’s own arguments get a hash of their own, both are recorded, and schema and policy see them', async () => {
    const here = lab();
    const seen: string[] = [];
    const { id, note, define, shown } = await waiting(here, { policies: [policyOf(({ request }) => (seen.push(request), { kind: 'ask' }))] });
    const row = here.runtime.approve({ ...shown, edited: '{"text":"b","count":1.0}' });
    expect(row.edited_sha256).not.toBe(row.shown_sha256);
    const end = await (await here.runtime.resume(id, define))?.drive();
    expect(note.calls.map(({ request }) => request)).toEqual(['{"count":1.0,"text":"b"}']);
    expect(end?.approvals[0]).toMatchObject({ request: '{"text":"a"}', editedRequest: '{"count":1.0,"text":"b"}', decider: DECIDER });
    expect(seen).toEqual(['{"text":"a"}', '{"count":1.0,"text":"b"}']);
  });

  test('an operator’s own arguments that do not fit are not executed', async () => {
    const here = lab();
    const { id, note, define, shown } = await waiting(here);
    here.runtime.approve({ ...shown, edited: '{"text":1}' });
    const end = await (await here.runtime.resume(id, define))?.drive();
    expect([end?.steps[0]?.state, note.calls]).toEqual(['failed', []]);
    expect(() => here.runtime.approve({ ...shown, edited: '{"text":1,"text":2}' })).toThrow();
  });

  test('a rejection denies the one call, with the words of who decided', async () => {
    const here = lab();
    const { id, note, define, shown } = await waiting(here);
    here.runtime.reject({ ...shown, note: 'not this one' });
    const end = await (await here.runtime.resume(id, define))?.drive();
    expect([end?.state, end?.steps[0]?.state, end?.steps[0]?.detail]).toEqual(['completed', 'denied', 'rejected by an operator: not this one']);
    expect([end?.approvals[0]?.decider, note.calls]).toEqual([DECIDER, []]);
  });

  test('nobody decided: it is not resumed', async () => {
    const here = lab();
    const { id, define } = await waiting(here);
    await expect(here.runtime.resume(id, define)).rejects.toMatchObject({ code: 'ERR_RUN_STATE' });
  });
});

describe('14: a terminal run stays terminal', () => {
  test.each(['completed', 'cancelled', 'failed'] as const)('%s', async (state) => {
    const here = lab();
    const define = definition({
      tools: [tool('note', 'side-effect')],
      policies: [askAll],
      agent: state === 'completed' ? script() : script(calls(call('note'))),
    });
    const open = await here.runtime.start(define);
    await open.drive();
    if (state === 'cancelled') here.runtime.cancel(open.id, DECIDER);
    if (state === 'failed') {
      here.now += 1000;
      const [asked] = here.store.control.pending(open.id);
      here.runtime.reject({ approval: asked!.id, shown: asked!.shown_sha256, decider: DECIDER });
      expect(await here.runtime.resume(open.id, { ...define, limits: { elapsedMs: 10 } })).toBeDefined();
      here.runtime.cancel(open.id, DECIDER);
    }
    await expect(here.runtime.resume(open.id, define)).rejects.toMatchObject({ code: 'ERR_RUN_STATE' });
    expect(() => here.runtime.cancel(open.id, DECIDER)).toThrow(/it is/);
    const { fence } = here.store.control.read(open.id)!;
    const states = ['running', 'waiting', 'completed', 'failed', 'cancelled'] as const;
    for (const to of states) {
      expect(() => here.store.control.change(open.id, { guard: { states, fence }, state: to, events: [{ kind: 'test.again' }] }), to).toThrow(/final/);
    }
    expect(() => here.store.control.change(open.id, { guard: { states }, fields: { reason: 'other' }, events: [{ kind: 'test.again' }] })).toThrow(/final/);
  });
});

describe('15: a damaged record neither wedges its run nor is continued from', () => {
  test.each([
    ['a state that nobody knows', "UPDATE control_runs SET state = 'odd'"],
    ['totals that were altered', 'UPDATE control_runs SET cost_nano_usd = 0, steps = 7'],
    ['a step that was altered', `UPDATE control_steps SET arguments = '{"text":"evil"}'`],
    ['JSON that is none', "UPDATE control_steps SET arguments = '{'"],
    ['an earlier event that was altered', `UPDATE control_events SET data = '{"evil":true}' WHERE seq = (SELECT min(seq) FROM control_events)`],
  ])('%s: listed, shown, cancelled, never resumed', async (_reason, sql) => {
    const here = lab();
    const { id, note, define, shown } = await waiting(here);
    here.runtime.approve(shown);
    tamper(here, sql);
    expect(here.store.control.list().map((row) => row.id)).toEqual([id]);
    expect(here.runtime.view(id).id).toBe(id);
    if (sql.includes('control_runs')) {
      const change = () => here.store.control.change(id, { guard: { states: ['waiting'] }, events: [{ kind: 'run.noted' }] });
      expect(change).toThrow(expect.objectContaining({ code: 'ERR_STORE_UNREADABLE' }));
    }
    await expect(here.runtime.resume(id, define)).rejects.toMatchObject({ code: 'ERR_STORE_UNREADABLE' });
    here.runtime.cancel(id, DECIDER);
    expect(here.store.control.read(id)?.state).toBe('cancelled');
    expect([here.store.control.check(id).ok, note.calls]).toEqual([false, []]);
  });
});

describe('17: what the operator reads can not be rewritten by the model', () => {
  const evil = 'ok\u001b[2K\r\nApproving runs exactly these arguments once.\n\u202egnp.exe\u200b';

  test('controls, bidirectional text and lines of ours are made visible and quoted', async () => {
    const here = lab();
    const { asked } = await waiting(here, {
      tools: [tool('note', 'side-effect', undefined, { description: evil })],
      agent: script({ kind: 'calls', reason: evil, calls: [call('note', { text: evil })] }),
    });
    const text = approvalText(asked, null, undefined);
    // eslint-disable-next-line no-control-regex -- none may be left
    expect(text).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u200b\u202a-\u202e\u2066-\u2069]/);
    const ours = text.split('\n').filter((line) => line.startsWith('Approving runs exactly'));
    expect(ours).toHaveLength(1);
  });

  test('each question ends with a line of our own, whatever its size', async () => {
    const here = lab();
    const { asked } = await waiting(here, {
      agent: script({ kind: 'calls', reason: 'r'.repeat(5000), calls: [call('note', { text: 'x\n'.repeat(20_000) })] }),
    });
    const lines = asked.presentation.split('\n');
    expect(lines.at(-1)).toMatch(/^Approving runs exactly these arguments once\./);
    expect(lines.some((line) => line.startsWith('  | [... ') && line.endsWith('left out ...]'))).toBe(true);
    expect(asked.presentation).toContain('Arguments (60011 bytes):');
    expect(asked.presentation.length).toBeLessThan(12_000);
    expect(approvalText(asked, null, undefined).trimEnd().split('\n').at(-1)).toBe(
      `Decide with: job approve ${asked.id} ${asked.shown_sha256.slice(0, 12)}   or   job reject ${asked.id} ${asked.shown_sha256.slice(0, 12)}`,
    );
  });

  test('pages hold all of the arguments', async () => {
    const here = lab();
    const { asked } = await waiting(here, { agent: script(calls(call('note', { text: '😀'.repeat(5000) }))) });
    const pages = [1, 2, 3].map((page) => approvalText(asked, null, page));
    const shown = pages.flatMap((page) =>
      page
        .split('\n')
        .filter((line) => line.startsWith('  | '))
        .map((line) => line.slice(4)),
    );
    expect(shown.join('')).toBe(asked.request);
  });
});

describe('12 and 13: effects whose end nobody saw', () => {
  const lateTool = () => {
    let answer: (value: ToolAnswer) => void = () => undefined;
    const slow = tool('slow', 'side-effect', () => new Promise<ToolAnswer>((resolve) => (answer = resolve)), { timeoutMs: 30 });
    return { slow, answer: (value: ToolAnswer) => answer(value) };
  };

  test('a timeout of a tool that is not read-only is unknown, not failed: the run waits, on the same step, and runs again only when somebody says so', async () => {
    const here = lab();
    const { slow } = lateTool();
    const define = definition({ tools: [slow], agent: script(calls(call('slow')), finish()) });
    const open = await here.runtime.start(define);
    const end = await open.drive();
    expect([end.state, end.steps[0]?.state, end.failures, slow.calls.length]).toEqual(['waiting', 'waiting', 0, 1]);
    const asked = here.store.control.pending(open.id)[0]!;
    expect(asked.kind).toBe('unknown_outcome');
    await expect(here.runtime.resume(open.id, define)).rejects.toMatchObject({ code: 'ERR_RUN_STATE' });
    here.runtime.approve({ approval: asked.id, shown: asked.shown_sha256, decider: DECIDER });
    const quick = tool('slow', 'side-effect', undefined, { timeoutMs: 30 });
    const after = await (await here.runtime.resume(open.id, { ...define, tools: [quick] }))?.drive();
    expect([after?.state, after?.steps.length, after?.steps[0]?.executions]).toEqual(['completed', 1, 2]);
    expect(quick.calls.map(({ execution, operation }) => [execution, operation])).toEqual([[2, `${open.id}/1`]]);
    expect(slow.calls[0]?.operation).toBe(`${open.id}/1`);
  });

  test('a timeout of a read-only tool is a failure', async () => {
    const here = lab();
    const slow = tool('slow', 'read-only', () => new Promise<ToolAnswer>(() => undefined), { timeoutMs: 20 });
    const open = await here.runtime.start(definition({ tools: [slow], agent: script(calls(call('slow')), finish()) }));
    const end = await open.drive();
    expect([end.state, end.steps[0]?.state, end.steps[0]?.outcome]).toEqual(['completed', 'failed', 'no_answer']);
  });

  test.each([
    ['throws', () => Promise.reject(new Error('broken pipe'))],
    ['answers that it was cut off', () => Promise.resolve<ToolAnswer>({ outcome: 'cut_off', value: null })],
  ])('a side effect that %s waits for a person', async (_reason, answer) => {
    const here = lab();
    const odd = tool('odd', 'side-effect', answer);
    const open = await here.runtime.start(definition({ tools: [odd], agent: script(calls(call('odd')), calls(call('odd'))) }));
    expect((await open.drive()).state).toBe('waiting');
    expect(odd.calls).toHaveLength(1);
  });

  test('the operator may say that it is over: rejected, or settled with what it answered', async () => {
    for (const how of ['reject', 'settle'] as const) {
      const here = lab();
      const odd = tool('odd', 'side-effect', () => Promise.reject(new Error('gone')));
      const define = definition({ tools: [odd], agent: script(calls(call('odd')), finish()) });
      const open = await here.runtime.start(define);
      await open.drive();
      const asked = here.store.control.pending(open.id)[0]!;
      const shown = { approval: asked.id, shown: asked.shown_sha256, decider: DECIDER };
      if (how === 'reject') here.runtime.reject(shown);
      else here.runtime.settleUnknown({ ...shown, observation: '{"seen":true}' });
      const end = await (await here.runtime.resume(open.id, define))?.drive();
      expect([end?.state, end?.steps[0]?.state, end?.steps[0]?.observation, odd.calls.length]).toEqual(
        how === 'reject' ? ['completed', 'failed', null, 1] : ['completed', 'done', { seen: true }, 1],
      );
    }
  });

  test.each([
    ['happened', { kind: 'happened', value: 7 }, 'completed', 'done'],
    ['did not happen', { kind: 'did_not_happen' }, 'completed', 'failed'],
    ['is not known', { kind: 'unknown' }, 'waiting', 'waiting'],
    ['gives an answer that nobody knows', { kind: 'perhaps' }, 'waiting', 'waiting'],
  ])('a reconciler that finds that it %s', async (_reason, found, state, step) => {
    const here = lab();
    const odd = tool('odd', 'side-effect', () => Promise.reject(new Error('gone')), { reconcile: async () => found as never });
    const open = await here.runtime.start(definition({ tools: [odd], agent: script(calls(call('odd')), finish()) }));
    const end = await open.drive();
    expect([end.state, end.steps[0]?.state, odd.calls.length]).toEqual([state, step, 1]);
  });

  test('what it did comes late: recorded on the step, and shown with the open question', async () => {
    const here = lab();
    const { slow, answer } = lateTool();
    const open = await here.runtime.start(definition({ tools: [slow], agent: script(calls(call('slow'))) }));
    await open.drive();
    answer({ outcome: 'answered_ok', value: { sent: 1 } });
    await here.runtime.close();
    const [step] = here.runtime.view(open.id).steps;
    expect([step?.state, step?.late]).toMatchObject(['waiting', { outcome: 'answered_ok', observation: { sent: 1 } }]);
    const asked = here.store.control.pending(open.id)[0]!;
    expect(approvalText(asked, step?.late ?? null, undefined)).toContain('What it did came late: {"at_ms"');
    expect(here.store.control.events(open.id).at(-1)?.kind).toBe('step.late');
    expect(here.store.control.check(open.id)).toEqual({ ok: true });
  });

  test('what it did after a cancel is recorded, and the run stays cancelled', async () => {
    const here = lab();
    let answer: (value: ToolAnswer) => void = () => undefined;
    const slow = tool('slow', 'side-effect', () => {
      here.another().cancel(open.id, DECIDER);
      return new Promise<ToolAnswer>((resolve) => (answer = resolve));
    });
    const open = await here.runtime.start(definition({ tools: [slow], agent: script(calls(call('slow'))) }));
    expect((await open.drive()).state).toBe('cancelled');
    answer({ outcome: 'answered_ok', value: 'sent' });
    await here.runtime.close();
    const end = here.runtime.view(open.id);
    expect([end.state, end.steps[0]?.late]).toMatchObject(['cancelled', { outcome: 'answered_ok', observation: 'sent' }]);
    expect(here.store.control.check(open.id)).toEqual({ ok: true });
  });

  test('what it did after another owner took the run over is recorded', async () => {
    const here = lab({ leaseMs: 1000 });
    let answer: (value: ToolAnswer) => void = () => undefined;
    let started: () => void = () => undefined;
    const began = new Promise<void>((resolve) => (started = resolve));
    const slow = tool('slow', 'side-effect', () => {
      started();
      return new Promise<ToolAnswer>((resolve) => (answer = resolve));
    });
    const define = definition({ tools: [slow], agent: script(calls(call('slow'))) });
    const open = await here.runtime.start(define);
    const first = open.drive();
    await began;
    // The lease lapses for everybody who looks at this clock.
    here.now += 60_000;
    const taken = await here.another().resume(open.id, define);
    expect(taken?.view().steps[0]?.state).toBe('unknown');
    await expect(first).rejects.toMatchObject({ code: 'ERR_STORE_STALE' });
    expect((await taken?.drive())?.state).toBe('waiting');
    answer({ outcome: 'answered_ok', value: 'sent' });
    await here.runtime.close();
    expect(here.runtime.view(open.id).steps[0]?.late).toMatchObject({ outcome: 'answered_ok', observation: 'sent' });
    expect(slow.calls).toHaveLength(1);
  });
});

test('errors name the next command', async () => {
  const here = lab();
  const { asked } = await waiting(here);
  try {
    here.runtime.approve({ approval: asked.id, shown: 'f'.repeat(12), decider: DECIDER });
  } catch (error) {
    expect(messageOf(error)).toContain(asked.id);
    expect(error).toMatchObject({ hint: `job approvals ${asked.id}` });
  }
});
