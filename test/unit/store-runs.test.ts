import Database from 'better-sqlite3';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { newRunId, type RunId } from '../../src/core/ids.ts';
import { RUN_STATES, STAGE_STATES, TERMINAL_STATES } from '../../src/core/run.ts';
import { currentOwner, livenessOf, openStore, type Owner, type Store } from '../../src/store/index.ts';
import { parseStat } from '../../src/store/owner.host.ts';
import { mayMove, mayRestage } from '../../src/store/transitions.ts';
import { finish, record, sampleRun, SUMMARY } from '../support/store-run.ts';
import { containing, matching } from '../support/matching.ts';
import { temporaryDirectories } from '../support/temporary.ts';

const directory = temporaryDirectories();
let store: Store;
let state: string;
let now: number;

beforeEach(() => {
  now = 1_000;
  state = join(directory(), 'state');
  store = openStore(state, () => now);
});
afterEach(() => {
  store.close();
});

/** Writes past the store, as a damaged disk or another program would. */
function tamper(sql: string, ...values: readonly unknown[]): void {
  const db = new Database(store.file);
  db.pragma('ignore_check_constraints = ON');
  db.prepare(sql).run(...values);
  db.close();
}

describe('recording', () => {
  it('keeps everything', () => {
    const run = sampleRun({ name: 'unit', plan: { dimensions: { file_read: [1.5, null, 'é'] } } });
    store.recordRun(run, [{ kind: 'run.recorded', data: { a: 1 } }]);
    expect(store.readRun(run.id)).toEqual({
      ...{ id: run.id, name: 'unit', workspace: run.workspace, state: 'recorded', stageState: 'none', mode: 'safe', executor: 'native', argv: ['npm', 'test'] },
      ...{ createdMs: 1_000, startedMs: null, endedMs: null, ending: null, plan: run.plan, bundle: null, stagedSummary: null },
      ...{ lease: { owner: currentOwner(), expiresMs: 5_000 }, fence: 1, lastSeq: 1, chain: matching(/^[0-9a-f]{64}$/), damaged: null },
    });
    expect(store.events(run.id)).toEqual([
      { runId: run.id, seq: 1, timeMs: 1_000, kind: 'run.recorded', data: { a: 1 }, rowSha256: matching(/./), hash: store.readRun(run.id)?.chain },
    ]);
  });

  it('takes a refused job as a run that is over', () => {
    const run = sampleRun({
      executor: null,
      plan: null,
      state: { kind: 'refused', ending: { kind: 'refused', detail: 'no executor' }, bundle: { path: 'b', sha256: 'c' } },
    });
    expect(store.recordRun(run, [{ kind: 'run.refused' }])).toMatchObject({
      state: 'refused',
      endedMs: 1_000,
      ending: { kind: 'refused', detail: 'no executor' },
      lease: null,
      bundle: { path: 'b', sha256: 'c' },
    });
    expect(() => store.transition(run.id, { from: ['refused'], to: 'finished', events: [{ kind: 'x.y' }], fence: 1 })).toThrow(/never becomes/);
  });

  it.each(['last', 'run-1', 'RUN-X', '', 'a b', '-x', 'a\nb', 'x'.repeat(65), '../x'])('refuses the name %j', (name) => {
    expect(() => record(store, { name })).toThrow(expect.objectContaining({ code: 'ERR_USAGE' }));
    expect(store.listRuns()).toEqual([]);
  });

  it.each([
    ['a plan with half a surrogate', { plan: '\ud800' }],
    ['a plan that is not a number', { plan: Number.NaN }],
    ['an argument with half a surrogate', { argv: ['\ud800'] }],
  ])('fails the write for %s', (_reason, more) => {
    expect(() => record(store, more)).toThrow(expect.objectContaining({ code: 'ERR_JSON' }));
    expect(store.listRuns()).toEqual([]);
  });

  it('leaves nothing of a write whose event is refused', () => {
    expect(() => store.recordRun(sampleRun(), [{ kind: 'run.recorded' }, { kind: 'NOT A KIND' }])).toThrow(/dotted lower case/);
    expect(() => store.recordRun(sampleRun(), [])).toThrow(/without an event/);
    expect(store.listRuns()).toEqual([]);
  });

  it('refuses the same id twice', () => {
    const run = record(store);
    expect(() => record(store, { id: run.id })).toThrow(/UNIQUE/);
    expect(store.events(run.id)).toHaveLength(1);
  });
});

describe('transitions', () => {
  it('go forward, may leave out steps, and set fields with the state', () => {
    const { id } = record(store);
    now = 2_000;
    store.transition(id, {
      from: ['recorded'],
      to: 'running',
      events: [{ kind: 'run.gate' }, { kind: 'run.running' }],
      fields: { startedMs: 1_500 },
      fence: 1,
    });
    now = 3_000;
    const done = store.transition(id, {
      from: ['running'],
      to: 'finished',
      events: [{ kind: 'run.finished' }],
      fields: { ending: { kind: 'signal', signal: 'SIGTERM', number: 15 }, stageState: 'staged', stagedSummary: SUMMARY },
      fence: 1,
    });
    expect(done).toMatchObject({
      state: 'finished',
      startedMs: 1_500,
      endedMs: 3_000,
      ending: { kind: 'signal', signal: 'SIGTERM', number: 15 },
      stageState: 'staged',
      stagedSummary: SUMMARY,
      lease: null,
      lastSeq: 4,
    });
    expect(store.readRun(id)).toEqual(done);
    expect(store.events(id, { seq: 1 }).map((event) => [event.seq, event.kind, event.timeMs])).toEqual([
      [2, 'run.gate', 2_000],
      [3, 'run.running', 2_000],
      [4, 'run.finished', 3_000],
    ]);
  });

  it.each([
    ['another state', { from: ['running'], to: 'finished', fence: 1 }, /it is recorded, expected running/],
    ['another owner', { from: ['recorded'], to: 'running', fence: 2 }, /another process owns it/],
    ['a step back', { from: ['recorded'], to: 'recorded', fence: 1 }, /recorded never becomes recorded/],
    ['refused after the start', { from: ['recorded'], to: 'refused', fence: 1 }, /never becomes refused/],
  ] as const)('from %s change nothing', (_reason, change, message) => {
    const before = record(store);
    expect(() => store.transition(before.id, { ...change, events: [{ kind: 'x.y' }] })).toThrow(message);
    expect(() => store.transition(before.id, { ...change, events: [{ kind: 'x.y' }] })).toThrow(expect.objectContaining({ code: 'ERR_STORE_STALE' }));
    expect(store.readRun(before.id)).toEqual(before);
    expect(store.events(before.id)).toHaveLength(1);
  });

  it('never leave an end', () => {
    for (const from of TERMINAL_STATES) for (const to of RUN_STATES) expect([from, to, mayMove(from, to)]).toEqual([from, to, false]);
    const { id } = record(store);
    const done = finish(store, id);
    for (const to of RUN_STATES) expect(() => store.transition(id, { from: RUN_STATES, to, events: [{ kind: 'x.y' }], fence: 1 })).toThrow(/ERR|never becomes/);
    expect(store.readRun(id)).toEqual(done);
  });

  it('of an unknown run are not found', () => {
    expect(() => store.transition(newRunId(), { from: ['recorded'], to: 'running', events: [{ kind: 'x.y' }], fence: 1 })).toThrow(
      expect.objectContaining({ code: 'ERR_RUN_NOT_FOUND' }),
    );
  });
});

describe('the stage state', () => {
  it('goes to applied in parts', () => {
    const { id } = record(store);
    finish(store, id);
    expect(
      store.setStageState(id, { from: ['staged'], to: 'partly_applied', events: [{ kind: 'stage.applied' }], stagedSummary: { ...SUMMARY, added: 1 } }),
    ).toMatchObject({ stageState: 'partly_applied', stagedSummary: { added: 1 } });
    store.setStageState(id, { from: ['staged', 'partly_applied'], to: 'partly_applied', events: [{ kind: 'stage.applied' }] });
    store.setStageState(id, { from: ['partly_applied'], to: 'applied', events: [{ kind: 'stage.applied' }] });
    for (const to of ['none', 'applied', 'dropped'] as const) {
      expect(() => store.setStageState(id, { from: STAGE_STATES, to, events: [{ kind: 'x.y' }] })).toThrow(expect.objectContaining({ code: 'ERR_RUN_STATE' }));
    }
  });

  it('is left alone while the run lives, and by a wrong expectation', () => {
    const { id } = record(store);
    expect(() => store.setStageState(id, { from: ['none'], to: 'dropped', events: [{ kind: 'x.y' }] })).toThrow(/it is recorded/);
    finish(store, id);
    expect(() => store.setStageState(id, { from: ['partly_applied'], to: 'dropped', events: [{ kind: 'x.y' }] })).toThrow(
      /its stage is staged, expected partly_applied/,
    );
  });

  it('never comes from nothing, and comes back from an apply only', () => {
    for (const from of STAGE_STATES) for (const to of STAGE_STATES) if (mayRestage(from, to)) expect(['staged', 'partly_applied', 'applied']).toContain(from);
    expect(STAGE_STATES.filter((to) => mayRestage('applied', to))).toEqual(['staged', 'partly_applied']);
    expect(STAGE_STATES.filter((to) => mayRestage('dropped', to))).toEqual([]);
  });
});

describe('selectors', () => {
  const id = (tail: string): RunId => `run-01KC4Q8Z${tail.padEnd(18, '0')}` as RunId;

  it('find by id, prefix, name and last', () => {
    const a = record(store, { id: id('A1'), name: 'unit' });
    now += 1;
    const b = record(store, { id: id('A2') });
    now += 1;
    const other = record(store, { id: id('B1'), workspace: '/elsewhere', name: 'lint' });
    const find = (text: string): string => store.findRun(text, '/home/ana/shop').id;
    expect(find(a.id)).toBe(a.id);
    expect(find('run-01KC4Q8ZA1')).toBe(a.id);
    expect(find('01kc4q8za2')).toBe(b.id);
    expect(find('unit')).toBe(a.id);
    expect(find('lint')).toBe(other.id);
    expect(find('last')).toBe(b.id);
    expect(store.findRun('last', '/elsewhere').id).toBe(other.id);
  });

  it('prefer the newest of a name here', () => {
    record(store, { id: id('A1'), name: 'unit' });
    now += 1;
    const here = record(store, { id: id('A2'), name: 'unit' });
    now += 1;
    record(store, { id: id('A3'), name: 'unit', workspace: '/elsewhere' });
    expect(store.findRun('unit', '/home/ana/shop').id).toBe(here.id);
  });

  it('say what is ambiguous and what is not there', () => {
    record(store, { id: id('A1') });
    record(store, { id: id('A2'), name: '01KC4Q8ZA1' });
    const find = (text: string): unknown => store.findRun(text, '/home/ana/shop');
    expect(() => find('run-01KC')).toThrow(expect.objectContaining({ code: 'ERR_RUN_AMBIGUOUS', message: containing(`${id('A1')}, ${id('A2')}`) }));
    expect(() => find('run-')).toThrow(expect.objectContaining({ code: 'ERR_RUN_AMBIGUOUS' }));
    expect(() => find('01KC4Q8ZA1')).toThrow(expect.objectContaining({ code: 'ERR_RUN_AMBIGUOUS' }));
    for (const text of ['run-01ZZ', 'nothing', '', 'run-%', "x' OR 1=1", '\x1b[2J', id('C')]) {
      expect(() => find(text)).toThrow(expect.objectContaining({ code: 'ERR_RUN_NOT_FOUND' }));
    }
    expect(() => store.findRun('last', '/nowhere')).toThrow(expect.objectContaining({ code: 'ERR_RUN_NOT_FOUND', hint: 'job ls --all' }));
    expect(() => find('\x1b[2J')).toThrow(/^no run matches '\\x1b\[2J'$/);
  });
});

describe('listing', () => {
  it('is newest first and filters', () => {
    const a = record(store, { name: 'a' });
    now += 10;
    const b = record(store);
    finish(store, b.id);
    now += 10;
    const c = record(store, { workspace: '/elsewhere' });
    const ids = (filter: Parameters<Store['listRuns']>[0]): readonly string[] => store.listRuns(filter).map((run) => run.id);
    expect(ids({})).toEqual([c.id, b.id, a.id]);
    expect(ids({ workspace: '/home/ana/shop' })).toEqual([b.id, a.id]);
    expect(ids({ states: ['finished', 'failed'] })).toEqual([b.id]);
    expect(ids({ stageStates: ['staged'] })).toEqual([b.id]);
    expect(ids({ name: 'a' })).toEqual([a.id]);
    expect(ids({ endedBeforeMs: 1_011 })).toEqual([b.id]);
    expect(ids({ endedBeforeMs: 1_010 })).toEqual([]);
    expect(ids({ limit: 2 })).toEqual([c.id, b.id]);
    expect(ids({ states: [] })).toEqual([]);
  });
});

describe('leases', () => {
  const self = currentOwner();

  it.each([
    ['itself', self, 'alive'],
    ['a process that is gone', { ...self, pid: 2 ** 22 + 1 }, 'dead'],
    ['another process of that number', { ...self, startTicks: self.startTicks + 1 }, 'dead'],
    ['an earlier boot', { ...self, bootId: '00000000-0000-0000-0000-000000000000' }, 'dead'],
    ['another pid namespace', { ...self, pidNamespace: 'pid:[1]' }, 'unknown'],
  ] as const)('%s', (_who, owner, liveness) => {
    expect(livenessOf(owner)).toBe(liveness);
  });

  it('read the start time behind any name', () => {
    expect(parseStat(`7 (a) b) (c ) S 1 ${'0 '.repeat(17)}4242 0\n`)).toEqual({ state: 'S', startTicks: 4242 });
    expect(parseStat('garbage')).toBeUndefined();
  });

  it('tell which runs lost their owner', () => {
    const owned = (owner: Owner, expiresMs: number): RunId => record(store, { state: { kind: 'recorded', lease: { owner, expiresMs } } }).id;
    owned(self, 0);
    const gone = owned({ ...self, startTicks: self.startTicks + 1 }, 99_999);
    const expired = owned({ ...self, pidNamespace: 'pid:[1]' }, 999);
    owned({ ...self, pidNamespace: 'pid:[1]' }, 1_001);
    finish(store, owned({ ...self, pid: 2 ** 22 + 1 }, 0));
    expect(
      store
        .reconcilable()
        .map((run) => run.id)
        .sort(),
    ).toEqual([gone, expired].sort());
  });

  it('are taken over once; the old owner is refused from then on', () => {
    const { id } = record(store, { state: { kind: 'recorded', lease: { owner: { ...self, startTicks: 1 }, expiresMs: 0 } } });
    const lease = { owner: self, expiresMs: 9_000 };
    expect(store.takeOver(id, 1, lease, [{ kind: 'lease.taken' }])).toMatchObject({ fence: 2, lease });
    expect(() => store.takeOver(id, 1, lease, [{ kind: 'lease.taken' }])).toThrow(expect.objectContaining({ code: 'ERR_STORE_STALE' }));
    expect(() => store.transition(id, { from: ['recorded'], to: 'finished', events: [{ kind: 'x.y' }], fence: 1 })).toThrow(/another process owns it/);
    expect(() => store.renewLease(id, 1, 10_000)).toThrow(expect.objectContaining({ code: 'ERR_STORE_STALE' }));
    store.renewLease(id, 2, 10_000);
    expect(store.readRun(id)?.lease?.expiresMs).toBe(10_000);
    store.transition(id, { from: ['recorded'], to: 'interrupted', events: [{ kind: 'run.interrupted' }], fence: 2 });
    expect(() => store.renewLease(id, 2, 11_000)).toThrow(expect.objectContaining({ code: 'ERR_STORE_STALE' }));
    expect(() => store.takeOver(id, 2, lease, [{ kind: 'lease.taken' }])).toThrow(/it is interrupted/);
    expect(store.checkChain(id)).toEqual({ ok: true });
  });
});

describe('damage', () => {
  it.each([
    ['argv', '{', { argv: [] }],
    ['argv', '[1]', { argv: [] }],
    ['ending', '{"kind":"exit"}', { ending: null }],
    ['ending', '{"kind":"exit","code":0,"extra":1}', { ending: null }],
    ['plan', '{"a":1,"a":2}', { plan: null }],
    ['staged_summary', '[]', { stagedSummary: null }],
    ['bundle_sha256', 'x', { bundle: null }],
    ['state', 'flying', { state: 'interrupted' }],
    ['mode', 'mild', { mode: 'default' }],
  ])('of %s to %s is listed and shown, and never continued from', (column, text, shown) => {
    const { id } = record(store);
    tamper(`UPDATE runs SET ${column} = ? WHERE id = ?`, text, id);
    expect(store.listRuns()).toMatchObject([{ id, ...shown, damaged: matching(/./) }]);
    expect(store.checkChain(id)).toMatchObject({ ok: false, seq: 1, fact: containing('row') });
    if (column === 'state') return;
    expect(() => store.transition(id, { from: ['recorded'], to: 'running', events: [{ kind: 'x.y' }], fence: 1 })).toThrow(
      expect.objectContaining({ code: 'ERR_STORE_UNREADABLE' }),
    );
    expect(store.transition(id, { from: ['recorded'], to: 'failed', events: [{ kind: 'run.failed' }], fence: 1, fields: { stageState: 'staged' } }).state).toBe(
      'failed',
    );
    expect(() => store.setStageState(id, { from: ['staged'], to: 'applied', events: [{ kind: 'x.y' }] })).toThrow(/damaged/);
    expect(store.setStageState(id, { from: ['staged'], to: 'dropped', events: [{ kind: 'stage.dropped' }] }).stageState).toBe('dropped');
  });

  it('that only the chain shows stops a run as well, and is never washed off', () => {
    const { id } = record(store);
    tamper('UPDATE runs SET workspace = ? WHERE id = ?', '/etc', id);
    expect(() => store.transition(id, { from: ['recorded'], to: 'running', events: [{ kind: 'x.y' }], fence: 1 })).toThrow(/the row was altered/);
    store.transition(id, { from: ['recorded'], to: 'failed', events: [{ kind: 'run.failed' }], fence: 1, fields: { stageState: 'staged' } });
    expect(store.events(id).map((event) => event.kind)).toEqual(['run.recorded', 'store.damaged', 'run.failed']);
    expect(store.checkChain(id)).toMatchObject({ ok: false, seq: 2 });
    expect(() => store.setStageState(id, { from: ['staged'], to: 'applied', events: [{ kind: 'x.y' }] })).toThrow(/damaged/);
    expect(() => store.beginApply({ runId: id, workspace: '/etc', owner: currentOwner(), selection: null, paths: [] })).toThrow(/damaged/);
    expect(store.setStageState(id, { from: ['staged'], to: 'dropped', events: [{ kind: 'stage.dropped' }] }).stageState).toBe('dropped');
  });

  it('of an event is shown', () => {
    const { id } = record(store);
    tamper('UPDATE events SET data = ? WHERE run_id = ?', 'nonsense', id);
    expect(store.events(id)[0]?.data).toMatchObject({ unreadable: containing('JSON') });
  });
});

describe('the event chain', () => {
  const changes: readonly (readonly [string, string])[] = [
    ['an event changed', "UPDATE events SET data = '{}' WHERE seq = 2"],
    ['a time changed', 'UPDATE events SET time_ms = 1 WHERE seq = 2'],
    ['a kind changed', "UPDATE events SET kind = 'run.other' WHERE seq = 1"],
    ['an event gone from the middle', 'DELETE FROM events WHERE seq = 2'],
    ['the last event gone', 'DELETE FROM events WHERE seq = 3'],
    ['all events gone', 'DELETE FROM events'],
    ['a hash changed', "UPDATE events SET hash = 'x' WHERE seq = 2"],
    ['the row changed', "UPDATE runs SET argv = '[]'"],
    ['the state changed', "UPDATE runs SET state = 'failed'"],
    ['the stage changed', "UPDATE runs SET stage_state = 'dropped'"],
    ['the bundle changed', "UPDATE runs SET bundle_sha256 = 'x'"],
    ['a batch slipped in', "INSERT INTO applies SELECT 'apply-x', id, '/w', 'done', 0, 0, '{}', '{}', 1, 1, '', '' FROM runs"],
  ];

  it.each(changes)('notices %s', (_reason, sql) => {
    const { id } = record(store);
    store.appendEvents(id, [{ kind: 'run.note', data: { a: 1 } }]);
    finish(store, id);
    expect(store.checkChain(id)).toEqual({ ok: true });
    tamper(sql);
    expect(store.checkChain(id)).toMatchObject({ ok: false });
  });

  it('is pinned: hashes of stored events never change', () => {
    const id = 'run-01KC4Q8Z000000000000000000' as RunId;
    record(store, { id });
    expect(store.readRun(id)?.chain).toBe('c8ec855498655c70080b9c86c7d9fc8182ea4cb7917fdd0d262acf0d3ab5681d');
  });
});

describe('removal', () => {
  it('takes a run with its events, and never a living run or an unapplied stage', () => {
    const { id } = record(store);
    expect(() => store.deleteRun(id, { staged: true })).toThrow(expect.objectContaining({ code: 'ERR_RUN_STATE' }));
    finish(store, id);
    expect(() => store.deleteRun(id, { staged: false })).toThrow(/its stage is staged/);
    store.deleteRun(id, { staged: true });
    expect(store.readRun(id)).toBeUndefined();
    expect(store.events(id)).toEqual([]);
    expect(() => store.deleteRun(id, { staged: true })).toThrow(expect.objectContaining({ code: 'ERR_RUN_NOT_FOUND' }));
  });
});
