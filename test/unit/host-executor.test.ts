import { readFileSync, readdirSync, watch } from 'node:fs';
import { once } from 'node:events';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, describe, expect, test } from 'vitest';
import { HOST_SCOPES, createHostExecutor, hostCapabilities } from '../../executors/host/index.ts';
import { membersOf, parseStat, type ProcessRow } from '../../executors/host/process-table.ts';
import { admit } from '../../src/admission/admit.ts';
import { CONTAINMENT_DIMENSIONS, DIMENSIONS } from '../../src/core/dimension.ts';
import { Bench, collect, lineReader } from '../conformance/backends.host.ts';
import { networkServiceFor } from '../../src/runner/run-network.host.ts';
import { plainNetwork } from '../support/plain-network.host.ts';
import { plainJob } from '../support/conformance-job.ts';

const capabilities = hostCapabilities('user', '0.0.0-test');
const benches: Bench[] = [];
function newBench(): Bench {
  const bench = new Bench(createHostExecutor({ version: '0.0.0-test' }), capabilities);
  benches.push(bench);
  return bench;
}
afterEach(async () => {
  for (const bench of benches.splice(0)) await bench.dispose();
});
const job = plainJob({ argv: ['true'], workspace: '/w', cwd: '/w', home: '/h', environment: {} }, 'host');

describe('what it claims', () => {
  test.each(['safe', 'strict'] as const)('--%s refuses it, naming the four containment dimensions', (mode) => {
    // A network that is open whole is not among what --safe needs.
    const permissions = { ...job.permissions, network: { ...job.permissions.network, kind: 'deny' as const } };
    const admission = admit({ ...job, mode, permissions }, [capabilities]);
    expect(admission.kind).toBe('refused');
    if (admission.kind === 'refused') {
      expect(admission.refusal.rows.map(({ dimension }) => dimension)).toEqual(expect.arrayContaining([...CONTAINMENT_DIMENSIONS]));
    }
  });

  test('the default mode admits it with nothing planned, and a stage that is unsupported', () => {
    const admission = admit(job, [capabilities]);
    expect(admission.kind).toBe('admitted');
    if (admission.kind !== 'admitted') return;
    const levels = Object.fromEntries(DIMENSIONS.map((dimension) => [dimension, admission.plan.dimensions[dimension].level]));
    expect(Object.values(levels)).not.toContain('planned');
    expect([levels['file_write'], levels['credentials']]).toEqual(['unsupported', 'cooperative']);
  });

  test('observes nothing but unenforced dimensions, each with its scope: no receipt, no level', async () => {
    const { closing } = await newBench().run(['/bin/true']);
    const levels = new Set(DIMENSIONS.map((dimension) => closing.observations.dimensions[dimension].level));
    expect([...levels]).toEqual(['unenforced']);
    for (const dimension of DIMENSIONS) expect(closing.observations.dimensions[dimension].scope).toBe(HOST_SCOPES[dimension]);
    expect([closing.observations.receipts, closing.observations.requirements, closing.discarded]).toEqual([[], [], null]);
  });
});

describe('a network with rules', () => {
  const rules = { allow: [{ kind: 'name', host: 'localhost', ports: [80], private: true, origin: { layer: 'flag', name: 'test' } }] } as const;
  const selective = (mode: 'default' | 'safe') => ({
    ...job,
    mode,
    permissions: { ...job.permissions, network: { ...job.permissions.network, ...rules, requested: true, kind: 'selective' as const, defaultAllow: false } },
  });

  test('--safe refuses it, as it is no more than asked for', () => {
    const admission = admit(selective('safe'), [capabilities]);
    expect(admission.kind === 'refused' && admission.refusal.rows.find(({ dimension }) => dimension === 'network')?.planned).toBe('cooperative');
  });

  test('offers the rules of a network as a proxy, reads back that it listens, and calls it cooperative', async () => {
    const admission = admit(selective('default'), [capabilities]);
    if (admission.kind !== 'admitted') throw new Error('refused');
    expect(admission.plan.dimensions.network).toMatchObject({ level: 'cooperative', controls: ['proxy_offered'] });
    const bench = newBench();
    const program = `fetch('http://x').catch(() => 0); require('node:http').get({ host: '127.0.0.1', port: new URL(process.env.http_proxy).port, path: 'http://denied.test/', headers: { host: 'denied.test' } }, (r) => { console.log(r.statusCode, process.env.HTTPS_PROXY === process.env.http_proxy, process.env.NO_PROXY); r.resume(); });`;
    const plan = { ...admission.plan, job: { ...admission.plan.job, argv: [process.execPath, '-e', program] as const, cwd: '/', workspace: '/' } };
    const session = await createHostExecutor({ version: '0.0.0-test' }).launch({
      plan,
      stage: [],
      scratch: bench.workspace,
      hidden: [],
      stateDirectory: bench.root,
      io: { kind: 'pipes', stdin: 'none' },
      network: networkServiceFor(plan.job, {}, Date.now) ?? plainNetwork({}),
    });
    const stdout = collect(session.stdout);
    await session.release();
    await session.exited;
    expect(String(await stdout)).toBe('403 true localhost,127.0.0.1,::1\n');
    const { observations, network } = await session.close();
    expect(observations.dimensions.network.level).toBe('cooperative');
    expect(network?.counters.destinations.map(({ host, denied }) => [host, denied])).toEqual([['denied.test', 1]]);
    expect(DIMENSIONS.filter((dimension) => dimension !== 'network' && observations.dimensions[dimension].level !== 'unenforced')).toEqual([]);
  });
});

/** Resolves when the file is there and has a whole line. */
async function lineOf(directory: string, name: string): Promise<string> {
  const watcher = watch(directory);
  try {
    for (;;) {
      try {
        const text = readFileSync(join(directory, name), 'utf8');
        if (text.endsWith('\n')) return text.trim();
      } catch {
        // not yet
      }
      await once(watcher, 'change');
    }
  } finally {
    watcher.close();
  }
}

describe('processes', () => {
  test("a terminal is inherited: no streams, and no session of the command's own", async () => {
    const bench = newBench();
    const session = await bench.launch(['/bin/sh', '-c', 'cut -d" " -f6 /proc/self/stat > sid; exit 4'], { io: { kind: 'terminal' } });
    expect([session.stdout, session.stderr, session.stdin]).toEqual([undefined, undefined, undefined]);
    await session.release();
    expect(await session.exited).toEqual({ kind: 'exit', code: 4 });
    await session.close();
    expect(Number(await lineOf(bench.workspace, 'sid'))).toBe(parseStat(readFileSync('/proc/self/stat', 'utf8'))?.session);
  });

  test('on a terminal descendants are found by their parents', async () => {
    const bench = newBench();
    const session = await bench.launch(['/bin/sh', '-c', 'sleep 600 & sh -c "sleep 600 & wait" & echo on > ready; wait'], { io: { kind: 'terminal' } });
    await session.release();
    await lineOf(bench.workspace, 'ready');
    session.signal('SIGKILL');
    expect(await session.exited).toEqual({ kind: 'signal', signal: 'SIGKILL', number: 9 });
    await session.close();
    expect(bench.marked()).toEqual([]);
  });

  test('the limit that the scope names: what left its session and lost its parent lives on, and holds nothing up', async () => {
    const bench = newBench();
    const script = '(setsid /usr/bin/perl -e \'$| = 1; print "$$\\n"; sleep 600\' &)';
    const before = readdirSync('/proc/self/fd').length;
    const session = await bench.launch(['/bin/sh', '-c', script]);
    const lines = lineReader(session.stdout);
    const errors = collect(session.stderr);
    await session.release();
    const pid = Number(await lines.next());
    expect((await session.exited).kind).toBe('exit');
    await session.close();
    try {
      expect(bench.marked()).toEqual([`${pid} perl`]);
      // It still holds both pipes; the streams end all the same.
      expect((await errors).length).toBe(0);
      await expect(lines.next()).rejects.toThrow(/the stream ended/);
      await new Promise(setImmediate);
      expect(readdirSync('/proc/self/fd').length).toBe(before);
    } finally {
      process.kill(pid, 'SIGKILL');
    }
    expect(HOST_SCOPES.subprocess).toMatch(/session of its own and whose parent has ended is not found/);
  });
});

describe('the process table', () => {
  const row = (pid: number, parent: number, group: number, session: number, state = 'S'): ProcessRow => ({
    pid,
    name: `p${pid}`,
    state,
    parent,
    group,
    session,
  });
  const pids = (rows: readonly ProcessRow[]): readonly number[] => rows.map(({ pid }) => pid);

  test('a name may hold spaces, parentheses and newlines', () => {
    expect(parseStat('42 (a) (b\n c)) S 7 42 41 0 -1')).toEqual({ pid: 42, name: 'a) (b\n c)', state: 'S', parent: 7, group: 42, session: 41 });
    expect(parseStat('')).toBeUndefined();
    expect(parseStat('x (y) S 1 2 3')).toBeUndefined();
    fc.assert(
      fc.property(fc.string(), (text) => {
        parseStat(text);
      }),
    );
  });

  const table = [
    row(1, 0, 1, 1),
    row(10, 1, 10, 10),
    row(11, 10, 11, 10),
    row(12, 1, 12, 10),
    row(13, 11, 13, 13),
    row(14, 10, 10, 10, 'Z'),
    row(20, 1, 20, 20),
  ];

  test('session, group and descendants belong to the tree; zombies and strangers do not', () => {
    expect(pids(membersOf({ leader: 10, ownSession: true, leaderEnded: false }, table))).toEqual([10, 11, 12, 13]);
    expect(pids(membersOf({ leader: 10, ownSession: false, leaderEnded: false }, table))).toEqual([10, 11, 13]);
  });

  test("after the leader was waited for, its number may be somebody else's", () => {
    const rest = table.filter(({ pid }) => pid !== 10);
    expect(pids(membersOf({ leader: 10, ownSession: true, leaderEnded: true }, rest))).toEqual([11, 12, 13]);
    expect(membersOf({ leader: 10, ownSession: true, leaderEnded: true }, table)).toEqual([]);
    expect(membersOf({ leader: 10, ownSession: false, leaderEnded: true }, rest)).toEqual([]);
  });
});
