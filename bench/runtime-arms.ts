/** What bench/runtime.mjs measures; bundled by it. */
import Database from 'better-sqlite3';
import { join } from 'node:path';
import type { Agent, Tool } from '../src/runtime/contract.ts';
import { functionPolicy } from '../src/runtime/policy.ts';
import { openRuntime, type ControlRuntime, type NewControl } from '../src/runtime/runtime.host.ts';
import { openStore, type Store } from '../src/store/index.ts';

export interface BenchPlan {
  readonly state: string;
  readonly steps: number;
  readonly list: number;
  readonly open: number;
}

/** Lines to print. */
export async function measure(plan: BenchPlan): Promise<readonly string[]> {
  const lines: string[] = [];
  lines.push(...(await steps(join(plan.state, 'steps'), plan.steps)));
  lines.push(...list(join(plan.state, 'list'), plan.list));
  lines.push(...(await many(join(plan.state, 'open'), plan.open)));
  return lines;
}

function agentOf(turns: number): Agent {
  return {
    decide: async (view) =>
      view.turns.length < turns
        ? { kind: 'calls', reason: 'next', calls: [{ id: 'c', tool: 'note', arguments: `{"n":${view.turns.length}}` }] }
        : { kind: 'finish', reason: 'done', result: null },
  };
}

const NOTE: Tool = {
  spec: {
    name: 'note',
    description: 'nothing',
    effect: 'side-effect',
    timeoutMs: 60_000,
    inputSchema: { type: 'object', properties: { n: { type: 'integer' } } },
  },
  execute: async () => ({ outcome: 'answered_ok', value: { ok: true } }),
};

function definition(turns: number, decide: () => { readonly kind: 'allow' | 'ask' } = () => ({ kind: 'allow' })): NewControl {
  return { agentName: 'bench', task: 'bench', workspace: '/w', agent: agentOf(turns), tools: [NOTE], policies: [functionPolicy('bench', '1', decide)] };
}

/** Commits of the same size by the same library, nothing else: one row of 2 KiB changed and one inserted. */
function bareCommits(file: string, count: number): number {
  const db = new Database(file);
  db.exec(
    'PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE IF NOT EXISTS bare (id INTEGER PRIMARY KEY, data TEXT); CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, data TEXT);',
  );
  db.prepare('INSERT OR REPLACE INTO bare VALUES (1, ?)').run('x'.repeat(1000));
  const update = db.prepare('UPDATE bare SET data = ? WHERE id = 1');
  const insert = db.prepare('INSERT INTO log (data) VALUES (?)');
  const data = 'y'.repeat(1000);
  const began = performance.now();
  for (let at = 0; at < count; at += 1) {
    db.transaction(() => {
      update.run(data);
      insert.run(data);
    }).immediate();
  }
  const took = performance.now() - began;
  db.close();
  return took;
}

async function steps(state: string, count: number): Promise<readonly string[]> {
  const store = openStore(state, Date.now);
  const runtime = openRuntime({ store });
  await (await runtime.start(definition(20))).drive();
  // In turns, so that whatever slows the machine slows both arms.
  const rounds = 5;
  let own = 0;
  let bare = 0;
  let commits = 0;
  let id = '';
  for (let round = 0; round < rounds; round += 1) {
    const turns = Math.ceil(count / rounds);
    const open = await runtime.start(definition(turns));
    ({ id } = open);
    let began = performance.now();
    await open.drive();
    own += performance.now() - began;
    // One for the reply, one for the start, one for the outcome; and the end.
    const made = 3 * turns + 1;
    commits += made;
    began = performance.now();
    bare += bareCommits(join(state, 'bare.db'), made);
  }
  const total = rounds * Math.ceil(count / rounds);
  const events = store.control.events(id).length;
  const began = performance.now();
  let checks = 0;
  while (performance.now() - began < 1000) {
    if (!store.control.check(id).ok) throw new Error('the chain is broken');
    checks += 1;
  }
  const seconds = (performance.now() - began) / 1000;
  await runtime.close();
  store.close();
  const perStep = (own / total) * 1000;
  const barePerStep = (bare / total) * 1000;
  return [
    `steps a second                ${(1000 / (own / total)).toFixed(0)}   (${total} steps, three commits with fsync each)`,
    `microseconds a step           ${perStep.toFixed(0)}`,
    `  of which bare commits       ${barePerStep.toFixed(0)}   (${commits} commits of another table, the same rounds)`,
    `  of which the runtime        ${(perStep - barePerStep).toFixed(0)}   ${((perStep - barePerStep) / barePerStep).toFixed(2)} x its commits`,
    `chain verify, events a second ${((events * checks) / seconds).toFixed(0)}   (a run of ${events} events)`,
  ];
}

/** Rows put in by SQL: what is measured is the page. */
function list(state: string, count: number): readonly string[] {
  const store = openStore(state, Date.now);
  const made = store.control.create(
    {
      id: 'ctl-00000000000000000000000000',
      name: null,
      workspace: '/w',
      agent: 'bench',
      spec: '{}',
      deadlineMs: null,
      lease: { owner: { pid: 1, startTicks: 1, bootId: 'b', pidNamespace: 'p' }, leaseId: 'l', expiresMs: 1 },
    },
    [{ kind: 'run.started' }],
  );
  const db = new Database(join(state, 'proofrun.db'));
  const columns = Object.keys(made.run).filter((column) => column !== 'id' && column !== 'created_ms');
  const insert = db.prepare(
    `INSERT INTO control_runs (id, created_ms, ${columns.join(', ')}) SELECT ?, ?, ${columns.join(', ')} FROM control_runs WHERE id = ?`,
  );
  db.transaction(() => {
    for (let at = 1; at < count; at += 1) insert.run(`ctl-${String(at).padStart(26, '0')}`, made.run.created_ms + at, made.run.id);
  })();
  db.close();
  const time = (body: () => unknown): string => {
    const all: number[] = [];
    for (let round = 0; round < 21; round += 1) {
      const began = performance.now();
      body();
      all.push(performance.now() - began);
    }
    return `${(all.sort((a, b) => a - b)[10] ?? 0).toFixed(2)} ms`;
  };
  const page = store.control.list({ workspace: '/w', limit: 20 });
  const middle = store.control.read(`ctl-${String(Math.floor(count / 2)).padStart(26, '0')}`);
  const lines = [
    `a page of 20 of ${count} runs    ${time(() => store.control.list({ workspace: '/w', limit: 20 }))}`,
    `  of every workspace          ${time(() => store.control.list({ limit: 20 }))}`,
    `  in the middle               ${time(() => store.control.list({ workspace: '/w', limit: 20, ...(middle === undefined ? {} : { before: middle }) }))}`,
    `  1,000 runs at once          ${time(() => store.control.list({ workspace: '/w', limit: 1000 }))}`,
  ];
  if (page.length !== 20) throw new Error('no page');
  store.close();
  return lines;
}

/** So many runs of one process open at once, each at a question. */
async function many(state: string, count: number): Promise<readonly string[]> {
  const store: Store = openStore(state, Date.now);
  const runtime: ControlRuntime = openRuntime({ store });
  const before = process.memoryUsage().rss;
  let began = performance.now();
  const open = await Promise.all(Array.from({ length: count }, () => runtime.start(definition(1))));
  const started = performance.now() - began;
  const grown = (process.memoryUsage().rss - before) / 2 ** 20;
  began = performance.now();
  const ends = await Promise.all(open.map((one) => one.drive()));
  const driven = performance.now() - began;
  if (!ends.every(({ state: end }) => end === 'completed')) throw new Error('a run did not complete');
  await runtime.close();
  store.close();
  return [
    `${count} runs open at once       ${(started / count).toFixed(2)} ms to open each, ${grown.toFixed(0)} MiB more`,
    `  one step and the end each   ${driven.toFixed(0)} ms in all`,
  ];
}
