import { createServer as createHttpServer, type Server as HttpServer } from 'node:http';
import { createServer, type Server, type Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { createCounters } from '../../src/overlaynet/counters.ts';
import { listen, openLab, readAll, readUntil, useCleanup, type Lab, type LabOptions } from '../support/overlay-lab.host.ts';

const cleanup = useCleanup();

async function serve(server: Server | HttpServer): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => sockets.delete(socket));
  });
  const port = await listen(server);
  cleanup(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise<void>((resolve) => void server.close(() => resolve()));
  });
  return port;
}

function lab(port: number, more: Partial<LabOptions> = {}): Promise<Lab> {
  return openLab(
    { names: ['good.test'], ports: [port], allow: [{ host: 'good.test', ports: [port], private: true }], zone: { 'good.test': ['127.0.0.1'] }, ...more },
    cleanup,
  );
}

/** Resolves once `ready` holds; the event loop turns in between. */
async function until(ready: () => boolean): Promise<void> {
  while (!ready()) await new Promise((resolve) => setTimeout(resolve, 5));
}

describe('limits', () => {
  test('connections of the job: one more is reset', async () => {
    const port = await serve(createServer((socket) => void socket.write('hello')));
    const { dial, net, send } = await lab(port, { limits: { total: { connections: 2 } } });
    const first = await dial('good.test', port);
    const second = await dial('good.test', port);
    await Promise.all([readUntil(first, /hello/), readUntil(second, /hello/)]);
    expect(await send('good.test', port, 'x')).toMatchObject({ text: '', reset: true });
    expect(net.counters()).toMatchObject({ open: 2, mostOpen: 2 });
    first.destroy();
    await until(() => net.counters().open === 1);
    expect(await readUntil(await dial('good.test', port), /hello/)).toBe('hello');
  });

  test('connections of one rule', async () => {
    const port = await serve(createServer((socket) => void socket.write('hello')));
    const { dial, row, send } = await lab(port, { limits: { perRule: { connections: 1 } } });
    await readUntil(await dial('good.test', port), /hello/);
    expect(await send('good.test', port, '\0')).toMatchObject({ text: '', reset: true });
    expect(row('good.test', port)).toMatchObject({ allowed: 2, failed: 1 });
  });

  test('bytes: the connection that goes beyond is cut off', async () => {
    const port = await serve(createServer((socket) => void socket.write(Buffer.alloc(300_000))));
    const { dial, row } = await lab(port, { limits: { total: { bytes: 100_000 } } });
    const ended = await readAll(await dial('good.test', port));
    expect(ended.bytes.length).toBeLessThanOrEqual(100_000);
    expect(row('good.test', port)?.failed).toBe(1);
  });

  test('bytes of HTTP answers count as well', async () => {
    const port = await serve(createHttpServer((_request, response) => void response.end(Buffer.alloc(300_000))));
    const { send, row } = await lab(port, { limits: { perRule: { bytes: 100_000 } } });
    const ended = await send('good.test', port, 'GET / HTTP/1.1\r\nHost: good.test\r\n\r\n');
    expect(ended.bytes.length).toBeLessThan(250_000);
    expect(row('good.test', port)?.failed).toBe(1);
  });

  test('bandwidth: what is sent takes its time', async () => {
    const port = await serve(createServer((socket) => void socket.end(Buffer.alloc(300_000))));
    const { dial } = await lab(port, { limits: { total: { bytesPerSecond: 200_000 } } });
    const before = performance.now();
    const ended = await readAll(await dial('good.test', port));
    expect(ended.bytes.length).toBe(300_000);
    // A second's worth is free, and the last piece isn't waited for.
    expect(performance.now() - before).toBeGreaterThan(150);
  });
});

describe('ends', () => {
  test('a client that does not read holds its server back, and not our memory', async () => {
    let sent = 0;
    const port = await serve(
      createServer((socket) => {
        const more = (): void => {
          while (socket.write(Buffer.alloc(65_536))) sent += 65_536;
          sent += 65_536;
        };
        socket.on('drain', more);
        more();
      }),
    );
    const { dial } = await lab(port);
    const socket = await dial('good.test', port);
    socket.pause();
    let last = -1;
    while (last !== sent) {
      last = sent;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    expect(sent).toBeLessThan(40_000_000);
    expect(process.memoryUsage().external).toBeLessThan(200_000_000);
  });

  test('a server that is not there: the client is reset, and the failure counted', async () => {
    const closed = createServer();
    const port = await listen(closed);
    await new Promise<void>((resolve) => void closed.close(() => resolve()));
    const { send, row } = await lab(port);
    expect(await send('good.test', port, '\0')).toMatchObject({ text: '', reset: true });
    expect(row('good.test', port)).toMatchObject({ allowed: 1, denied: 0, failed: 1, bytesIn: 0, bytesOut: 0 });
    const ended = await send('good.test', port, 'GET / HTTP/1.1\r\nHost: good.test\r\n\r\n');
    expect(ended.text).toMatch(/^HTTP\/1\.1 502 [^]*ECONNREFUSED/);
  });

  test('a server that dies half way: the client does not take what it has for the whole', async () => {
    const port = await serve(
      createServer((socket) => {
        socket.once('data', () => {
          socket.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf');
          setImmediate(() => socket.destroy());
        });
      }),
    );
    const { send } = await lab(port);
    const ended = await send('good.test', port, 'GET / HTTP/1.1\r\nHost: good.test\r\n\r\n');
    expect(ended.text.length).toBeLessThan(400);
  });

  test.each([
    'HTTP/1.1 001 X\r\n\r\n',
    'HTTP/1.1 200 \x01\x02\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 999 OK\r\nX\x80: a\r\n\r\n',
    '\x00\x01\x02',
    'HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nbytes',
    'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde',
  ])('a hostile answer harms nobody: %j', async (answer) => {
    const port = await serve(createServer((socket) => void socket.once('data', () => socket.end(Buffer.from(answer, 'latin1')))));
    const { send, net } = await lab(port);
    await send('good.test', port, 'GET / HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n');
    expect(net.counters().open).toBe(0);
  });

  test('close ends every connection and every listener', async () => {
    const port = await serve(createServer((socket) => void socket.write('hello')));
    const { dial, net, addressOf } = await lab(port);
    const sockets = await Promise.all(Array.from({ length: 20 }, () => dial('good.test', port)));
    await Promise.all(sockets.map((socket) => readUntil(socket, /hello/)));
    const ended = Promise.all(sockets.map((socket) => new Promise((resolve) => socket.once('close', resolve))));
    await net.close();
    await ended;
    await net.close();
    await expect(dial('good.test', port)).rejects.toThrow(/ECONNREFUSED/);
    expect(addressOf('good.test')).toBe('127.64.1.0');
  });
});

describe('many', () => {
  test('500 connections at once, each with bytes both ways', async () => {
    const port = await serve(createServer((socket) => void socket.pipe(socket)));
    const { dial, net, row } = await lab(port);
    const sockets = await Promise.all(Array.from({ length: 500 }, () => dial('good.test', port)));
    await Promise.all(
      sockets.map((socket, index) => {
        const answer = readUntil(socket, /\n/);
        socket.write(`\0${index}\n`);
        return answer.then((text) => expect(text).toBe(`\0${index}\n`));
      }),
    );
    expect(net.counters().open).toBe(500);
    expect(row('good.test', port)).toMatchObject({ allowed: 500, denied: 0, failed: 0 });
  });

  // http-proxy leaks sockets of requests that their client gave up (PROOFRUN_TEST_ABORTS=10000 for the long form).
  test('requests that are given up leave no handle and no memory behind', async () => {
    const count = Number(process.env['PROOFRUN_TEST_ABORTS'] ?? 600);
    let arrived = 0;
    const port = await serve(
      createHttpServer((_request, response) => {
        arrived += 1;
        if (arrived % 2 === 0) response.write('half');
      }),
    );
    const { dial, net } = await lab(port);
    const abortMany = async (many: number): Promise<void> => {
      for (let left = many; left > 0; left -= 50) {
        await Promise.all(
          Array.from({ length: Math.min(50, left) }, async (_, index) => {
            const socket = await dial('good.test', port);
            const before = arrived;
            socket.write('POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 10\r\n\r\nhalf');
            if (index % 3 === 0) await until(() => arrived > before);
            socket.destroy();
          }),
        );
        await until(() => net.counters().open === 0);
      }
    };
    const handles = (): number => process.getActiveResourcesInfo().filter((name) => name.startsWith('TCP')).length;
    await abortMany(100);
    const [before, memory] = [handles(), process.memoryUsage().heapUsed];
    await abortMany(count);
    await until(() => handles() <= before + 5);
    expect(handles()).toBeLessThanOrEqual(before + 5);
    expect(process.memoryUsage().heapUsed - memory).toBeLessThan(60_000_000);
  }, 300_000);
});

test('counters: null is kept apart from 0, the list is bounded, the first denial is named', () => {
  let now = 5;
  const counters = createCounters(() => now, 2);
  counters.tally('a.test', 443).count('allowed', 'rule 1');
  now = 9;
  counters.tally('a.test', 443).count('denied', 'SNI b.test is not a.test');
  counters.tally('a.test', 443).count('denied', 'another');
  counters.tally('b.test', null).count('denied', 'default_action: deny');
  counters.tally('c.test', 443).count('denied', 'default_action: deny');
  const source = { bytesRead: 3, bytesWritten: 4 };
  const done = counters.tally('a.test', 443).follow(source);
  source.bytesRead = 10;
  expect(counters.read().destinations[0]).toMatchObject({ bytesIn: 10, bytesOut: 4 });
  done();
  done();
  source.bytesRead = 99;
  expect(counters.read()).toEqual({
    destinations: [
      { host: 'a.test', port: 443, allowed: 1, denied: 2, failed: 0, bytesOut: 4, bytesIn: 10, firstMs: 5, lastMs: 9, rule: 'SNI b.test is not a.test' },
      { host: 'b.test', port: null, allowed: 0, denied: 1, failed: 0, bytesOut: 0, bytesIn: 0, firstMs: 9, lastMs: 9, rule: 'default_action: deny' },
    ],
    unlisted: 1,
  });
});
