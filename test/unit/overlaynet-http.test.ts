import { createServer, type IncomingMessage } from 'node:http';
import { describe, expect, test } from 'vitest';
import { listen, openLab, readAll, readUntil, useCleanup, type Lab } from '../support/overlay-lab.host.ts';

const cleanup = useCleanup();

interface Seen {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

async function world(): Promise<{ readonly lab: Lab; readonly port: number; readonly seen: Seen[] }> {
  const seen: Seen[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      seen.push({ method: request.method ?? '', url: request.url ?? '', headers: request.headers, body: Buffer.concat(chunks).toString() });
      response.end(`served ${request.url ?? ''}`);
    });
  });
  const port = await listen(server);
  cleanup(
    () =>
      new Promise<void>((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  );
  const lab = await openLab(
    { names: ['good.test'], ports: [port], allow: [{ host: 'good.test', ports: [port], private: true }], zone: { 'good.test': ['127.0.0.1'] } },
    cleanup,
  );
  return { lab, port, seen };
}

describe('plain HTTP', () => {
  test('a request goes through', async () => {
    const { lab, port, seen } = await world();
    const socket = await lab.dial('good.test', port);
    socket.write(`GET /a/../b?x=%2e HTTP/1.1\r\nHost: good.test:${String(port)}\r\nConnection: close\r\n\r\n`);
    expect((await readAll(socket)).text).toMatch(/^HTTP\/1.1 200 OK[^]*served \/a\/\.\.\/b\?x=%2e/);
    expect(seen).toHaveLength(1);
    expect(lab.row('good.test', port)).toMatchObject({ allowed: 1, denied: 0, failed: 0 });
  });

  test('two requests on one connection, the second for another host', async () => {
    const { lab, port, seen } = await world();
    const socket = await lab.dial('good.test', port);
    socket.write(`GET /1 HTTP/1.1\r\nHost: good.test\r\n\r\n`);
    await readUntil(socket, /served \/1/);
    socket.write(`GET /2 HTTP/1.1\r\nHost: evil.test\r\n\r\n`);
    expect((await readAll(socket)).text).toMatch(/^HTTP\/1.1 421 /);
    expect(seen.map(({ url }) => url)).toEqual(['/1']);
  });
});
