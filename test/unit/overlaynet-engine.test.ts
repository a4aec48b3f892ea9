import { createServer as createTcpServer, type Socket } from 'node:net';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import { describe, expect, test } from 'vitest';
import { listen, open, openLab, readAll, readUntil, useCleanup, type Lab, type LabOptions } from '../support/overlay-lab.host.ts';
import { selfSigned } from '../support/tls-material.host.ts';

const cleanup = useCleanup();
const material = selfSigned(['good.test', 'evil.test']);

function closing(server: { close(done: () => void): unknown }): void {
  cleanup(() => new Promise<void>((resolve) => void server.close(() => resolve())));
}

/** A TLS server that says which name it was asked for. */
async function tlsServer(): Promise<number> {
  const server = createTlsServer(material, (socket) => {
    socket.on('error', () => undefined);
    socket.on('data', (data: Buffer) => socket.end(`you asked ${String(socket.servername)}: ${data.toString()}`));
  });
  const port = await listen(server);
  closing(server);
  return port;
}

/** A server that echoes, and ends when its client does. */
async function echoServer(greeting = ''): Promise<number> {
  const server = createTcpServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => undefined);
    if (greeting !== '') socket.write(greeting);
    socket.pipe(socket);
  });
  const port = await listen(server);
  closing(server);
  return port;
}

function lab(port: number, more: Partial<LabOptions> = {}): Promise<Lab> {
  return openLab(
    {
      names: ['good.test'],
      ports: [port],
      allow: [{ host: 'good.test', ports: [port], private: true }],
      zone: { 'good.test': ['127.0.0.1'], 'evil.test': ['127.0.0.1'] },
      ...more,
    },
    cleanup,
  );
}

function overTls(socket: Socket, servername: string | undefined, text: string): Promise<string> {
  return new Promise((resolve) => {
    const secure = connectTls({ socket, rejectUnauthorized: false, ...(servername === undefined ? {} : { servername }) });
    let all = '';
    secure.on('secureConnect', () => secure.write(text));
    secure.on('data', (data: Buffer) => (all += data.toString()));
    secure.on('error', (error: Error) => resolve(`error ${error.message}`));
    secure.on('end', () => {
      secure.end();
      resolve(all);
    });
    secure.on('close', () => resolve(all));
  });
}

describe('TLS', () => {
  test('passes untouched when the name agrees', async () => {
    const port = await tlsServer();
    const { dial, row } = await lab(port);
    expect(await overTls(await dial('good.test', port), 'good.test', 'hi')).toBe('you asked good.test: hi');
    expect(row('good.test', port)).toMatchObject({ allowed: 1, denied: 0, failed: 0, rule: `job.yaml:7 allow good.test:${String(port)}` });
    expect(row('good.test', port)?.bytesIn).toBeGreaterThan(500);
  });

  test('is refused when the name is another', async () => {
    const port = await tlsServer();
    const { dial, row } = await lab(port);
    expect(await overTls(await dial('good.test', port), 'evil.test', 'hi')).toMatch(/^error .*unrecognized name/);
    expect(row('good.test', port)).toMatchObject({ allowed: 0, denied: 1, bytesOut: 0, rule: 'SNI evil.test is not good.test' });
  });

  test('without SNI the name is that of the address', async () => {
    const port = await tlsServer();
    const { dial } = await lab(port);
    expect(await overTls(await dial('good.test', port), undefined, 'hi')).toBe('you asked false: hi');
  });
});

describe('other protocols', () => {
  test('a server that speaks first', async () => {
    const port = await echoServer('220 hello\r\n');
    const { dial } = await lab(port);
    const socket = await dial('good.test', port);
    expect(await readUntil(socket, /\n/)).toBe('220 hello\r\n');
    socket.write('EHLO x\r\n');
    expect(await readUntil(socket, /\n/)).toBe('EHLO x\r\n');
  });

  test('a client that speaks first, in lines without an end, is answered all the same', async () => {
    const port = await echoServer();
    const { dial, row } = await lab(port);
    const socket = await dial('good.test', port);
    const began = performance.now();
    socket.write('AUTH secret');
    expect(await readUntil(socket, /secret/)).toBe('AUTH secret');
    expect(performance.now() - began).toBeLessThan(2_000);
    socket.write(' and more');
    expect(await readUntil(socket, /more/)).toBe(' and more');
    expect(row('good.test', port)).toMatchObject({ allowed: 1, denied: 0, failed: 0 });
  });

  test.each([
    ['in pieces', 'GET /a', ' HTTP/1.1\r\nHost: evil.test\r\n\r\n'],
    ['cut in its version', 'GET /a HTT', 'P/1.1\r\nHost: evil.test\r\n\r\n'],
  ])('a first line that begins as a request is waited for, and judged when it is whole: %s', async (_how, first, second) => {
    let heard = '';
    const server = createTcpServer((socket) => socket.on('error', () => undefined).on('data', (data: Buffer) => (heard += data.toString())));
    const port = await listen(server);
    closing(server);
    const { dial, row } = await lab(port);
    const socket = await dial('good.test', port);
    socket.write(first);
    // Longer than a line waits that doesn't begin so.
    await new Promise((resolve) => setTimeout(resolve, 400));
    socket.write(second);
    expect(await readUntil(socket, /\r\n\r\n/)).toMatch(/^HTTP\/1\.1 4\d\d /);
    expect(heard).toBe('');
    expect(row('good.test', port)).toMatchObject({ denied: 1 });
  });

  test.each([
    ['in pieces that tell nothing at first', 'GE', 'T /a HTTP/1.1\r\nHost: evil.test\r\n\r\n'],
    ['longer than any that is waited for', `GET /${'a'.repeat(9000)}`, ' HTTP/1.1\r\nHost: evil.test\r\n\r\n'],
  ])('a request that comes after its first line was let go on is ended before it is whole: %s', async (_how, first, second) => {
    const heard: Buffer[] = [];
    const server = createTcpServer((socket) => {
      socket.on('error', () => undefined);
      socket.on('data', (data: Buffer) => {
        heard.push(data);
        socket.write('.');
      });
    });
    const port = await listen(server);
    closing(server);
    const { dial, row } = await lab(port);
    const socket = await dial('good.test', port);
    socket.write(first);
    expect(await readUntil(socket, /\./)).toMatch(/^\.+$/);
    socket.write(second);
    await readAll(socket);
    expect(Buffer.concat(heard).toString()).toBe(first);
    expect(row('good.test', port)).toMatchObject({ allowed: 1, denied: 1 });
  });

  test('a request whose first line stops after its version is judged as a request', async () => {
    // The connection that was made ahead is given up once it is known what is spoken.
    let givenUp = (): void => undefined;
    const server = createTcpServer(
      (socket) =>
        void socket
          .on('error', () => undefined)
          .on('close', () => givenUp())
          .resume(),
    );
    const port = await listen(server);
    closing(server);
    const { dial } = await lab(port);
    const socket = await dial('good.test', port);
    givenUp = () => void socket.write('\r\nHost: evil.test\r\n\r\n');
    socket.write('GET /a HTTP/1.1');
    expect(await readUntil(socket, /\r\n\r\n/)).toMatch(/^HTTP\/1\.1 4\d\d /);
  });

  test('half-close: what the server sends after the client has ended still comes', async () => {
    const port = await echoServer();
    const { dial, row } = await lab(port);
    const socket = await dial('good.test', port);
    socket.end('\x00binary');
    expect(await readAll(socket)).toMatchObject({ text: '\x00binary', reset: false });
    expect(row('good.test', port)).toMatchObject({ allowed: 1, bytesOut: 7, bytesIn: 7 });
  });

  test('a connection that no rule allows is reset', async () => {
    const port = await echoServer();
    const { send, row } = await lab(port, { literals: ['127.0.0.9'] });
    expect(await send('127.0.0.9', port, 'x')).toMatchObject({ text: '', reset: true });
    expect(row('127.0.0.9', port)).toMatchObject({ allowed: 0, denied: 1, rule: 'default_action: deny' });
  });
});

describe('explicit proxy', () => {
  test('CONNECT, with TLS inside', async () => {
    const port = await tlsServer();
    const { proxy } = await lab(port);
    const socket = await open('127.0.0.1', await proxy(), cleanup);
    socket.write(`CONNECT good.test:${String(port)} HTTP/1.1\r\nHost: good.test:${String(port)}\r\n\r\n`);
    expect(await readUntil(socket, /\r\n\r\n/)).toMatch(/^HTTP\/1.1 200 /);
    expect(await overTls(socket, 'good.test', 'hi')).toBe('you asked good.test: hi');
  });

  test('SOCKS5 by name', async () => {
    const port = await echoServer();
    const { proxy } = await lab(port);
    const socket = await open('127.0.0.1', await proxy(), cleanup);
    const name = Buffer.from('good.test');
    socket.write(Buffer.from([5, 1, 0]));
    socket.write(Buffer.concat([Buffer.from([5, 1, 0, 3, name.length]), name, Buffer.from([port >> 8, port & 255])]));
    expect(await readUntil(socket, /^[^]{12}/)).toBe('\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00');
    socket.write('\x01ping');
    expect(await readUntil(socket, /ping/)).toBe('\x01ping');
  });
});
