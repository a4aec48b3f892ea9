import { beforeAll, describe, expect, test } from 'vitest';
import { ProofrunError } from '../../src/core/errors.ts';
import type { RunId } from '../../src/core/ids.ts';
import type { CliContext } from '../../src/cli/context.ts';
import { doctorText } from '../../src/cli/report/doctor.ts';
import { errorJson, errorText } from '../../src/cli/report/error.ts';
import { eventLines } from '../../src/cli/report/events.ts';
import { jsonLine, reviewJson, runJson, summaryJson } from '../../src/cli/report/json.ts';
import { columnsOf } from '../../src/cli/report/layout.ts';
import { listText, uniqueIds } from '../../src/cli/report/list.ts';
import { PLAIN, paletteFor } from '../../src/cli/report/palette.ts';
import { statusText } from '../../src/cli/report/status.ts';
import { countWords, durationWords, endingClause, sizeWords } from '../../src/cli/report/words.ts';
import type { StoredRun } from '../../src/store/index.ts';
import { shopBundle, HOME, WORKSPACE } from '../support/bundle-fixture.ts';

beforeAll(() => {
  process.env['TZ'] = 'UTC';
});

const NOW = Date.UTC(2026, 11, 1, 10, 0, 0);

function stored(more: Partial<StoredRun> = {}): StoredRun {
  return {
    id: 'run-01KC4Q8ZV5J4Q7W9X2N6T8R3MA' as RunId,
    name: null,
    workspace: WORKSPACE,
    state: 'finished',
    stageState: 'staged',
    mode: 'safe',
    executor: 'native',
    argv: ['npm', 'test'],
    createdMs: NOW - 3_600_000,
    startedMs: NOW - 3_599_000,
    endedMs: NOW - 3_590_000,
    ending: { kind: 'exit', code: 1 },
    plan: null,
    bundle: null,
    stagedSummary: { added: 4, modified: 2, deleted: 1, other: 0, conflicts: 0, addedLines: 118, removedLines: 37 },
    lease: null,
    fence: 1,
    lastSeq: 3,
    chain: '0'.repeat(64),
    damaged: null,
    ...more,
  };
}

describe('job ls', () => {
  test('one line a run, ids only as long as they have to be', () => {
    const runs = [
      stored(),
      stored({ id: 'run-01KC4Q8ZV6AAAAAAAAAAAAAAAA' as RunId, state: 'running', ending: null, stageState: 'none', name: 'unit' }),
      stored({ id: 'run-01KB000000AAAAAAAAAAAAAAAA' as RunId, damaged: 'argv: x', argv: [], mode: 'default', executor: 'host', stageState: 'dropped' }),
    ];
    const text = listText({ runs, workspaces: false, home: HOME, nowMs: NOW, width: 80, palette: PLAIN });
    expect(text.split('\n')).toEqual([
      'RUN             END      STAGED   AGE  MODE         COMMAND',
      'run-01KC4Q8ZV5  exit 1   7        1 h  safe native  npm test',
      'run-01KC4Q8ZV6  running  -        1 h  safe native  [unit] npm test',
      'run-01KB0000    damaged  dropped  1 h  host',
      '',
    ]);
    for (const line of text.split('\n')) expect(columnsOf(line)).toBeLessThanOrEqual(80);
  });

  test('a long or hostile command is cut, on one line', () => {
    const text = listText({
      runs: [stored({ argv: ['sh', '-c', `echo ${'x'.repeat(300)}\n\x1b[2J`] })],
      workspaces: true,
      home: HOME,
      nowMs: NOW,
      width: 80,
      palette: PLAIN,
    });
    expect(text.trimEnd().split('\n')).toHaveLength(2);
    expect(text).toContain('~/src/shop');
    for (const line of text.split('\n')) expect(columnsOf(line)).toBeLessThanOrEqual(80);
  });

  test('an empty list says so, and prefixes tell ids apart', () => {
    expect(listText({ runs: [], workspaces: false, home: undefined, nowMs: NOW, width: 80, palette: PLAIN })).toBe('no runs\n');
    expect(uniqueIds(['run-01KC4Q8ZAAAA', 'run-01KC4Q8ZAAAB'])).toEqual(['run-01KC4Q8ZAAAA', 'run-01KC4Q8ZAAAB']);
  });
});

describe('job status', () => {
  test('of a finished run', () => {
    expect(statusText({ run: stored(), bundle: shopBundle(), selector: 'last', nowMs: NOW, width: 80, palette: PLAIN })).toBe(
      [
        'run-01KC4Q8Z  npm test  exit 1  9.0 s  2026-12-01 09:00  --safe on native',
        '  state      finished',
        '  workspace  /home/ana/src/shop',
        '  enforced   file reads, file writes, network, subprocesses, credentials,',
        '             resources',
        '  staged     7 changes, neither applied nor dropped',
        '  next       job status --review last',
        '',
      ].join('\n'),
    );
  });

  test('of a live one, without a bundle', () => {
    const run = stored({
      state: 'running',
      ending: null,
      endedMs: null,
      startedMs: NOW - 5000,
      stageState: 'none',
      lease: { owner: { pid: 41, startTicks: 1, bootId: 'b', pidNamespace: 'p' }, expiresMs: NOW },
    });
    const text = statusText({ run, bundle: undefined, selector: 'last', nowMs: NOW, width: 80, palette: PLAIN });
    expect(text).toContain('state      running (process 41)');
    expect(text).toContain('  5.0 s  ');
    expect(text).toContain('job logs last --follow, or job stop last');
  });
});

describe('job events', () => {
  test('one line an event, the date once a day, data safe for a screen', () => {
    const event = { runId: 'run-x', rowSha256: '', hash: '' };
    const lines = eventLines(
      [
        { ...event, seq: 1, timeMs: Date.UTC(2026, 11, 1, 23, 59, 59), kind: 'run.recorded', data: { mode: 'safe', argv: ['a', '\x1b'] } },
        { ...event, seq: 2, timeMs: Date.UTC(2026, 11, 2, 0, 0, 1), kind: 'run.running', data: {} },
      ],
      80,
    );
    expect(lines).toEqual(['2026-12-01', '   1  23:59:59  run.recorded          mode=safe  argv=["a","\\u001b"]', '2026-12-02', '   2  00:00:01  run.running']);
  });
});

describe('errors', () => {
  test('message, then hint; several lines stay lines', () => {
    const error = new ProofrunError('ERR_USAGE', { message: 'one\ntwo\x1b[2J', hint: 'do\nthis' });
    expect(errorText(error)).toBe('job: one\ntwo\\x1b[2J\n     do\n     this\n');
  });

  test('a fault of ours says what to do, and keeps the place', () => {
    const text = errorText(new TypeError('boom'));
    expect(text).toMatch(/^job: a fault of Proofrun itself: boom\n {4}at /);
    expect(text).toContain('`job ls` cleans up');
    expect(errorText('just text')).toContain('just text');
  });

  test('as JSON', () => {
    expect(errorJson(new ProofrunError('ERR_STAGE_CONFLICT', { message: 'm', hint: 'h', data: { paths: [{ path: 'a', stagedSha256: null }] } }))).toEqual({
      error: { code: 'ERR_STAGE_CONFLICT', kind: 'conflict', message: 'm', hint: 'h', exit_code: 205, data: { paths: [{ path: 'a', staged_sha256: null }] } },
    });
    expect(errorJson(new Error('x'))).toMatchObject({ error: { code: 'ERR_INTERNAL', exit_code: 209, data: null } });
    // Data that has no JSON form costs the data, not the error.
    expect(errorJson(new ProofrunError('ERR_USAGE', { message: 'm', data: { 'a b': 1 } }))).toMatchObject({ error: { message: 'm', data: null } });
  });
});

describe('JSON', () => {
  test('is one line, and hides nothing from a terminal', () => {
    const line = jsonLine({ a: 'x\u202ey\x9b\u200bz\n' });
    expect(line).toBe('{"a":"x\\u202ey\\u009b\\u200bz\\n"}\n');
    expect(JSON.parse(line)).toEqual({ a: 'x\u202ey\x9b\u200bz\n' });
  });

  test('keys are snake_case throughout', () => {
    const keys = (value: unknown): string[] =>
      Array.isArray(value)
        ? value.flatMap(keys)
        : typeof value === 'object' && value !== null
          ? Object.entries(value).flatMap(([key, inner]) => [key, ...keys(inner)])
          : [];
    const bundle = shopBundle();
    for (const value of [
      runJson(stored()),
      summaryJson(bundle, { appliedFiles: null, bundlePath: '/x' }),
      reviewJson({ bundle, verification: { ok: true, problems: [] }, changes: bundle.changes, stage: 'staged' }),
    ]) {
      for (const key of keys(value)) expect(key).toMatch(/^[a-z][a-z0-9]*(_[a-z0-9]+)*$/);
    }
    expect(runJson(stored())).toMatchObject({ id: 'run-01KC4Q8ZV5J4Q7W9X2N6T8R3MA', exit_code: 1, stage_state: 'staged', owner: null });
    expect(summaryJson(bundle, { appliedFiles: null, bundlePath: null })).toMatchObject({
      exit_code: 1,
      staged: { files: 7, added: 4 },
      executes_on_host: [{ path: '.husky/pre-commit' }],
    });
  });
});

describe('job doctor', () => {
  test('names what is missing with its remedy, and keeps a remedy of several lines as it is', () => {
    const text = doctorText({
      version: '0.1.0',
      checks: [{ name: 'shim', ok: false, found: 'not built', remedy: 'node scripts/build-shim.mjs' }],
      executors: [
        {
          executor: 'native',
          available: false,
          reason: 'user namespaces are off',
          remedy: 'profile x {\n  userns,\n}',
          version: '0.8.0',
          user: 'user',
          controls: [],
          network: { public: false, deny: false, selective: false },
          subprocess: { contained: false, listed: false, none: false },
          limits: { memory: false, cpus: false, processes: false, swap: false },
          cooperative: [],
        },
      ],
      passSafe: [],
      width: 80,
      palette: PLAIN,
    });
    expect(text).toContain('--safe is refused here');
    expect(text).toContain('  remedy       node scripts/build-shim.mjs');
    expect(text).toContain('  remedy       profile x {\n                 userns,\n               }');
  });
});

describe('colour', () => {
  const context = (env: Record<string, string>, terminal: boolean): CliContext => ({
    env,
    cwd: '/',
    stdout: process.stdout,
    stderr: process.stderr,
    isTerminal: { stdin: terminal, stdout: terminal, stderr: terminal },
    columns: 80,
    clock: () => 0,
  });

  test.each([
    ['on a terminal', {}, true, true],
    ['not in a pipe', {}, false, false],
    ['not with NO_COLOR', { NO_COLOR: '1' }, true, false],
    ['with an empty NO_COLOR', { NO_COLOR: '' }, true, true],
    ['not on a dumb terminal', { TERM: 'dumb' }, true, false],
  ] as const)('%s', (_, env, terminal, coloured) => {
    expect(paletteFor(context(env, terminal), 'stdout').bad('x') !== 'x').toBe(coloured);
  });
});

describe('words', () => {
  test.each([
    [0, '0 ms'],
    [999, '999 ms'],
    [14_200, '14.2 s'],
    [59_949, '59.9 s'],
    [59_950, '1 m'],
    [200_000, '3 m 20 s'],
    [3_600_000, '1 h'],
    [7_500_000, '2 h 5 m'],
    [90_000_000, '1 d 1 h'],
  ])('%i ms is %s', (ms, words) => {
    expect(durationWords(ms)).toBe(words);
  });

  test.each([
    [0, '0 B'],
    [1023, '1023 B'],
    [1024, '1.0 KiB'],
    [19_293_798, '18.4 MiB'],
    [1024 * 1024 - 1, '1.0 MiB'],
  ])('%i bytes are %s', (bytes, words) => {
    expect(sizeWords(bytes)).toBe(words);
  });

  test('counts have separators, endings are clauses', () => {
    expect([0, 999, 1204, 1_000_000].map(countWords)).toEqual(['0', '999', '1,204', '1,000,000']);
    expect(endingClause({ kind: 'exit', code: 0 }, 1500)).toBe('exited 0 after 1.5 s');
    expect(endingClause({ kind: 'timeout', afterMs: 300_000 }, 300_100)).toBe('was ended by its time limit of 5 m');
    expect(endingClause(null, null)).toBe('has no recorded end');
  });
});
