import { mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { callOwner } from '../../src/runner/control-client.host.ts';
import { formatLine, lineCutter, parseAnswer, parseRequest, type ControlAnswer } from '../../src/runner/control-protocol.ts';
import { serveControl, type ControlledRun } from '../../src/runner/control-server.host.ts';
import { CONTROL_SOCKET } from '../../src/runner/control-socket.host.ts';

let top: string;
beforeEach(() => {
  top = mkdtempSync(join(tmpdir(), 'proofrun-control-'));
});
afterEach(() => {
  rmSync(top, { recursive: true, force: true });
});

function deferred(): { readonly promise: Promise<void>; readonly resolve: () => void } {
  let resolve: () => void = () => undefined;
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}

function controlled(directory: string, calls: string[]): ControlledRun {
  return {
    directory,
    signal: (name) => {
      if (name === 'SIGUSR2') throw new Error('the command has ended');
      calls.push(name);
    },
    kill: () => calls.push('kill'),
    stop: (graceMs) => calls.push(`stop ${graceMs}`),
    kept: (stream) => (stream === 'stdout' ? { stream, head: Buffer.from('beginning '), tail: Buffer.from(' end'), bytesTotal: 100 } : undefined),
  };
}

describe('control socket', () => {
  test('a signal, a stop and a kill reach the run, and a refusal comes back', async () => {
    const calls: string[] = [];
    const server = await serveControl(controlled(top, calls));
    expect(await callOwner(top, { request: { op: 'signal', signal: 'SIGINT' } })).toEqual({ kind: 'done' });
    expect(await callOwner(top, { request: { op: 'stop', graceMs: 5 } })).toEqual({ kind: 'done' });
    expect(await callOwner(top, { request: { op: 'kill' } })).toEqual({ kind: 'done' });
    expect(await callOwner(top, { request: { op: 'signal', signal: 'SIGUSR2' } })).toEqual({ kind: 'refused', message: 'the command has ended' });
    expect(calls).toEqual(['SIGINT', 'stop 5', 'kill']);
    await server.end();
  });

  test('only the owner of the directory may use it', async () => {
    const server = await serveControl(controlled(top, []));
    expect(statSync(join(top, CONTROL_SOCKET)).mode & 0o777).toBe(0o600);
    await server.end();
  });

  test('a follower gets what was kept, the gap, what comes, and the end', async () => {
    const server = await serveControl(controlled(top, []));
    const seen: ControlAnswer[] = [];
    const begun = deferred();
    const follow = callOwner(top, {
      request: { op: 'follow', streams: ['stdout', 'stderr'] },
      onOutput: (answer) => {
        seen.push(answer);
        if (seen.length === 3) begun.resolve();
      },
    });
    await begun.promise;
    server.publish('stderr', Buffer.from('live'));
    await server.end();
    expect(await follow).toEqual({ kind: 'done' });
    expect(seen).toEqual([
      { kind: 'output', stream: 'stdout', data: Buffer.from('beginning ').toString('base64') },
      { kind: 'gap', stream: 'stdout', bytes: 100 - 14 },
      { kind: 'output', stream: 'stdout', data: Buffer.from(' end').toString('base64') },
      { kind: 'output', stream: 'stderr', data: Buffer.from('live').toString('base64') },
    ]);
  });

  test('a follower that does not read holds nothing up: what it missed is counted', async () => {
    const server = await serveControl({ ...controlled(top, []), kept: (stream) => ({ stream, head: Buffer.from('x'), tail: Buffer.alloc(0), bytesTotal: 1 }) });
    const begun = deferred();
    const go = deferred();
    let received = 0;
    let missed = 0;
    const follow = callOwner(top, {
      request: { op: 'follow', streams: ['stdout'] },
      onOutput: async (answer) => {
        begun.resolve();
        await go.promise;
        if (answer.kind === 'output') received += Buffer.from(answer.data, 'base64').length;
        else missed += answer.bytes;
      },
    });
    const chunk = Buffer.alloc(1 << 20);
    let sent = 1;
    await begun.promise;
    for (let round = 0; round < 64; round += 1) {
      server.publish('stdout', chunk);
      sent += chunk.length;
    }
    go.resolve();
    await server.end();
    expect(await follow).toEqual({ kind: 'done' });
    expect(received + missed).toBe(sent);
    expect(missed).toBeGreaterThan(0);
  });

  test('a wait ends when the run is committed, and tells an owner that went away', async () => {
    const server = await serveControl(controlled(top, []));
    const wait = callOwner(top, { request: { op: 'wait' } });
    expect(await callOwner(top, { request: { op: 'signal', signal: 'SIGINT' } })).toEqual({ kind: 'done' });
    await server.end();
    expect(await wait).toEqual({ kind: 'done' });
    expect(await callOwner(top, { request: { op: 'wait' } })).toEqual({ kind: 'absent' });
    expect(await callOwner(join(top, 'nowhere'), { request: { op: 'wait' } })).toEqual({ kind: 'absent' });
  });

  test('a path that is too long for a socket address works', async () => {
    const deep = join(top, 'd'.repeat(120));
    mkdirSync(deep);
    const calls: string[] = [];
    const server = await serveControl(controlled(deep, calls));
    expect(await callOwner(deep, { request: { op: 'kill' } })).toEqual({ kind: 'done' });
    await server.end();
    expect(calls).toEqual(['kill']);
    expect(statSync(join(deep, CONTROL_SOCKET), { throwIfNoEntry: false })).toBeUndefined();
  });
});

describe('control lines', () => {
  test.each([['{}'], ['[]'], ['{"op":"signal","signal":"rm -rf"}'], ['{"op":"stop","graceMs":-1}'], ['not json'], ['null']])('%s is no request', (line) => {
    expect(() => parseRequest(line)).toThrow(/does not know/);
  });

  test('an answer survives its line, and an unknown one is refused', () => {
    const answer: ControlAnswer = { kind: 'output', stream: 'stderr', data: 'eA==' };
    expect(parseAnswer(formatLine(answer).trim())).toEqual(answer);
    expect(() => parseAnswer('{"kind":"output","stream":"x","data":""}')).toThrow();
  });

  test('a line without an end is refused before it fills the memory', () => {
    const cutter = lineCutter();
    expect(cutter.feed('a\nb')).toEqual(['a']);
    expect(cutter.feed('c\n')).toEqual(['bc']);
    expect(() => cutter.feed('x'.repeat(2 << 20))).toThrow();
  });
});
