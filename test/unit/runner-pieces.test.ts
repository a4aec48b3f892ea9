import { PassThrough, Writable } from 'node:stream';
import { describe, expect, test, vi } from 'vitest';
import { perDimension } from '../../src/core/dimension.ts';
import type { Ending } from '../../src/core/run.ts';
import type { Session } from '../../src/executor/executor.ts';
import { commandControl } from '../../src/runner/command-control.ts';
import { exitCodeOf } from '../../src/runner/exit-code.ts';
import { firstCause } from '../../src/runner/first-cause.ts';
import type { KeptOutput } from '../../src/runner/kept-output.host.ts';
import { startTimer } from '../../src/runner/long-timer.ts';
import { pumpOutput } from '../../src/runner/output-pump.host.ts';
import { gateWords, limitBehind, lostDimensions, stateOf } from '../../src/runner/run-ending.ts';
import { parseStageRecord } from '../../src/runner/stage-record.ts';
import { runPaths, stateDirectoryOf } from '../../src/runner/state-directory.ts';

const TIMEOUT: Ending = { kind: 'timeout', afterMs: 10 };
const KILLED: Ending = { kind: 'signal', signal: 'SIGKILL', number: 9 };

describe('first cause', () => {
  test('the first that is settled stays', async () => {
    const cause = firstCause();
    expect(cause.current()).toBeUndefined();
    expect(cause.settle(TIMEOUT)).toBe(true);
    expect(cause.settle(KILLED)).toBe(false);
    expect(cause.current()).toBe(TIMEOUT);
    expect(await cause.settled).toBe(TIMEOUT);
  });
});

describe('exit codes and states', () => {
  test.each<[Ending | null, boolean, number, string]>([
    [{ kind: 'exit', code: 0 }, true, 0, 'finished'],
    [{ kind: 'exit', code: 255 }, true, 255, 'finished'],
    [KILLED, true, 137, 'finished'],
    [{ kind: 'signal', signal: 'SIGINT', number: 2 }, false, 130, 'failed'],
    [TIMEOUT, true, 124, 'finished'],
    [{ kind: 'limit', limit: 'memory' }, true, 204, 'finished'],
    [{ kind: 'not_found', errno: 'ENOENT' }, true, 127, 'finished'],
    [{ kind: 'not_executable', errno: 'EACCES' }, true, 126, 'finished'],
    [{ kind: 'refused', detail: '' }, false, 200, 'refused'],
    [{ kind: 'evidence_missing', detail: '' }, false, 201, 'failed'],
    [{ kind: 'control_lost', detail: '' }, true, 202, 'failed'],
    [{ kind: 'launch_failed', detail: '' }, false, 203, 'failed'],
    [{ kind: 'interrupted', detail: '' }, true, 209, 'interrupted'],
  ])('%j, released %s: %i, %s', (ending, released, code, state) => {
    expect(exitCodeOf(ending)).toBe(code);
    if (ending !== null) expect(stateOf(ending, released)).toBe(state);
  });

  test('an end that nobody saw is internal', () => {
    expect(exitCodeOf(null)).toBe(209);
  });
});

describe('limits behind a signal', () => {
  const signal = (name: string): Ending => ({ kind: 'signal', signal: name, number: 1 });
  test.each<[string, Ending, object, string[], Ending['kind']]>([
    ['processor time that was limited', signal('SIGXCPU'), { cpuTimeMs: 1 }, [], 'limit'],
    ['SIGXCPU without such a limit', signal('SIGXCPU'), {}, [], 'signal'],
    ['a file size that was limited', signal('SIGXFSZ'), { fileSizeBytes: 1 }, [], 'limit'],
    ['memory that was seen to run out', signal('SIGKILL'), {}, ['memory'], 'limit'],
    ['SIGKILL from somebody', signal('SIGKILL'), { memoryBytes: 1 }, [], 'signal'],
    ['SIGTERM although memory ran out', signal('SIGTERM'), {}, ['memory'], 'signal'],
    ['an exit although memory ran out', { kind: 'exit', code: 137 }, {}, ['memory'], 'exit'],
  ])('%s', (_reason, ending, limits, hits, kind) => {
    expect(limitBehind(ending, limits, hits).kind).toBe(kind);
  });
});

describe('words of the gate and of the end', () => {
  test('per dimension the first receipts that are missing or differ', () => {
    const outcome = (id: string, status: 'missing' | 'differs') => ({ id, control: 'c', phase: 'gate' as const, kind: 'fact' as const, status });
    const missing = ['a', 'b', 'c', 'd', 'e'].map((id) => ({ dimension: 'network' as const, outcome: outcome(id, 'missing') }));
    expect(gateWords({ kind: 'refuse', missing: [...missing, { dimension: 'file_read', outcome: outcome('mount.table', 'differs') }] })).toBe(
      'network: a is missing, b is missing, c is missing, d is missing and 1 more; file_read: mount.table differs',
    );
  });

  test('a cooperative dimension that is needed is lost', () => {
    const dimensions = perDimension((dimension) => ({
      level: dimension === 'network' ? ('cooperative' as const) : ('enforced' as const),
      scope: '',
      outcomes: [],
    }));
    expect(lostDimensions(['network', 'file_read'], { contract: 1, executor: 'x', dimensions, requirements: [], receipts: [] })).toEqual(['network']);
  });
});

describe('control of a command', () => {
  const session = (heard: string[]): Session => ({ signal: (name: string) => heard.push(name) }) as unknown as Session;

  test('before the release a signal is the ending and cancels the launch; one that ends nothing does not', () => {
    const cause = firstCause();
    const control = commandControl(cause);
    control.signal('SIGWINCH');
    control.signal('SIGCONT');
    expect([cause.current(), control.abort.aborted]).toEqual([undefined, false]);
    control.signal('SIGHUP');
    expect(cause.current()).toEqual({ kind: 'signal', signal: 'SIGHUP', number: 1 });
    expect(control.abort.aborted).toBe(true);
  });

  test('afterwards it is the command that hears, until it has ended', () => {
    const heard: string[] = [];
    const control = commandControl(firstCause());
    control.attach(session(heard));
    control.signal('SIGUSR1');
    control.kill();
    control.detach();
    control.signal('SIGTERM');
    expect(heard).toEqual(['SIGUSR1', 'SIGKILL']);
  });

  test('stop asks first, kills after the grace, and not at all when the command went', () => {
    vi.useFakeTimers();
    try {
      const heard: string[] = [];
      const control = commandControl(firstCause());
      control.attach(session(heard));
      control.stop(1000);
      vi.advanceTimersByTime(999);
      expect(heard).toEqual(['SIGTERM']);
      vi.advanceTimersByTime(1);
      expect(heard).toEqual(['SIGTERM', 'SIGKILL']);
      control.stop(1000, 'SIGHUP');
      control.detach();
      vi.advanceTimersByTime(5000);
      expect(heard).toEqual(['SIGTERM', 'SIGKILL', 'SIGHUP']);
    } finally {
      vi.useRealTimers();
    }
  });
});

describe('timers', () => {
  test('a delay longer than setTimeout knows does not fire at once', () => {
    vi.useFakeTimers();
    try {
      const done = vi.fn();
      const days = 60 * 86_400_000;
      startTimer(days, done);
      vi.advanceTimersByTime(days - 1);
      expect(done).not.toHaveBeenCalled();
      vi.advanceTimersByTime(1);
      expect(done).toHaveBeenCalledOnce();
      const cancelled = vi.fn();
      startTimer(days, cancelled)();
      vi.advanceTimersByTime(2 * days);
      expect(cancelled).not.toHaveBeenCalled();
    } finally {
      vi.useRealTimers();
    }
  });
});

describe('places', () => {
  test.each([
    [{ XDG_STATE_HOME: '/var/state' }, '/var/state/proofrun'],
    [{ XDG_STATE_HOME: '/var/x/../state/' }, '/var/state/proofrun'],
    [{ XDG_STATE_HOME: 'relative' }, '/home/ann/.local/state/proofrun'],
    [{}, '/home/ann/.local/state/proofrun'],
    [{ HOME: '/home/eve', PROOFRUN_STATE_DIR: '/tmp/planted' }, '/home/ann/.local/state/proofrun'],
  ])('%j', (env, expected) => {
    expect(stateDirectoryOf({ env, home: '/home/ann' })).toBe(expected);
  });

  test('of a run', () => {
    expect(runPaths('/s', 'run-1')).toEqual({
      directory: '/s/runs/run-1',
      bundleRelative: 'runs/run-1/run-bundle.json',
      stage: '/s/runs/run-1/stage',
      scratch: '/s/runs/run-1/scratch',
      attempt: '/s/runs/run-1/attempt.json',
    });
  });
});

describe('the record of a stage', () => {
  const whole = {
    version: 1,
    markers: 'user',
    hidden: [{ path: '/w/.env', rule: 'x' }],
    present: [],
    roots: [{ root: '/w', upper: 'root-0/upper', work: 'root-0/work', preimage: 'root-0/preimage' }],
  };

  test('paths of the layers become absolute', () => {
    expect(parseStageRecord(Buffer.from(JSON.stringify(whole)), '/s').roots[0]).toEqual({
      root: '/w',
      upper: '/s/root-0/upper',
      work: '/s/root-0/work',
      preimage: '/s/root-0/preimage',
    });
  });

  test.each([
    ['{}'],
    ['[]'],
    ['not json'],
    [JSON.stringify({ ...whole, markers: 'other' })],
    [JSON.stringify({ ...whole, roots: [{ root: '/w' }] })],
    [JSON.stringify({ ...whole, hidden: [1] })],
    [JSON.stringify(whole).slice(0, -1)],
  ])('damaged: %s', (text) => {
    expect(() => parseStageRecord(Buffer.from(text), '/s')).toThrow();
  });
});

describe('the pump', () => {
  const counter = (): KeptOutput & { readonly seen: () => string } => {
    const parts: Uint8Array[] = [];
    const seen = (): string => Buffer.concat(parts).toString();
    return { stream: 'stdout', total: () => seen().length, write: (chunk) => void parts.push(chunk), fault: () => undefined, finish: () => undefined, seen };
  };

  test('everything reaches the kept output, the sink and the listener', async () => {
    const source = new PassThrough();
    const sink = new PassThrough();
    const kept = counter();
    let heard = '';
    const pump = pumpOutput(source, { kept, sink, onChunk: (stream, chunk) => (heard += `${stream}:${Buffer.from(chunk).toString()} `) });
    source.write('one');
    source.end('two');
    await pump.ended;
    expect(kept.seen()).toBe('onetwo');
    expect(Buffer.from(sink.read() as Uint8Array).toString()).toBe('onetwo');
    expect(heard.replaceAll('stdout:', '').replaceAll(' ', '')).toBe('onetwo');
  });

  test('a slow sink holds the source back, and hurry lets it go', async () => {
    const source = new PassThrough({ highWaterMark: 4 });
    const held: (() => void)[] = [];
    const sink = new Writable({ highWaterMark: 1, write: (_chunk, _encoding, done) => void held.push(done) });
    const kept = counter();
    const pump = pumpOutput(source, { kept, sink, onChunk: () => undefined });
    source.write('aaaa');
    await new Promise((resolve) => setImmediate(resolve));
    source.write('bbbb');
    source.end('cccc');
    await new Promise((resolve) => setImmediate(resolve));
    expect(kept.seen()).toBe('aaaa');
    pump.hurry();
    await pump.ended;
    expect(kept.seen()).toBe('aaaabbbbcccc');
    expect(sink.writableLength).toBe(12);
    for (let done = held.shift(); done !== undefined; done = held.shift()) done();
  });

  test('a sink that breaks is left alone, and the rest is kept', async () => {
    const source = new PassThrough();
    const sink = new Writable({ write: (_chunk, _encoding, done) => done(new Error('EPIPE')) });
    sink.on('error', () => undefined);
    const kept = counter();
    const pump = pumpOutput(source, { kept, sink, onChunk: () => undefined });
    source.write('one');
    await new Promise((resolve) => sink.once('close', resolve));
    source.end('two');
    await pump.ended;
    expect(kept.seen()).toBe('onetwo');
  });

  test('a source that breaks is one that ended; none at all ends at once', async () => {
    const source = new PassThrough();
    const kept = counter();
    const pump = pumpOutput(source, { kept, sink: undefined, onChunk: () => undefined });
    source.write('one');
    await new Promise((resolve) => setImmediate(resolve));
    source.destroy(new Error('ECONNRESET'));
    await pump.ended;
    expect(kept.seen()).toBe('one');
    await pumpOutput(undefined, { kept, sink: undefined, onChunk: () => undefined }).ended;
  });
});
