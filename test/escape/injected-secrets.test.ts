import { createServer } from 'node:net';
import { describe, expect, test } from 'vitest';
import { createSecretInjector, type InjectedSecret, type SecretInjector } from '../../src/overlaynet/injection.ts';
import { listen, openLab, useCleanup, type Lab } from '../support/overlay-lab.host.ts';

const cleanup = useCleanup();
const PLACEHOLDER = 'proofrun-placeholder-00112233445566778899aabbccddeeff';
const VALUE = 'real-value-CANARY-7Zq31x';
const SECRET: InjectedSecret = { name: 'TOKEN', host: 'good.test', header: 'authorization', format: 'Bearer {}', placeholder: PLACEHOLDER, value: VALUE };

interface World {
  readonly lab: Lab;
  readonly port: number;
  readonly injector: SecretInjector;
  /** Every byte that reached a server, of either host. */
  readonly seen: () => string;
}

/** Two hosts that are allowed, on one server; the secret is for good.test. */
async function world(): Promise<World> {
  const chunks: Buffer[] = [];
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    let tail = '';
    socket.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      tail = (tail + chunk.toString('latin1')).slice(-4000);
      if (!tail.includes('\r\n\r\n')) return;
      tail = '';
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
    });
    cleanup(() => void socket.destroy());
  });
  const port = await listen(server);
  cleanup(() => void server.close());
  const injector = createSecretInjector([SECRET], Date.now);
  const allow = ['good.test', 'other.test'].map((host) => ({ host, ports: [port], private: true }));
  const zone = { 'good.test': ['127.0.0.1'], 'other.test': ['127.0.0.1'] };
  const lab = await openLab({ names: ['good.test', 'other.test'], ports: [port], allow, zone, secrets: injector }, cleanup);
  return { lab, port, injector, seen: () => Buffer.concat(chunks).toString('latin1') };
}

/** `{port}` stands for the port. */
async function send({ lab, port }: World, host: string, text: string): Promise<string> {
  const ended = await lab.send(host, port, text.replaceAll('{port}', String(port)));
  return ended.text;
}

const END = 'Connection: close\r\n\r\n';
const good = (headers: string, method = 'GET', target = '/'): string => `${method} ${target} HTTP/1.1\r\nHost: good.test:{port}\r\n${headers}${END}`;

describe('a placeholder at its own host, in its own header (the control arm)', () => {
  test.each([
    ['in the format', `Authorization: Bearer ${PLACEHOLDER}\r\n`],
    ['alone', `Authorization: ${PLACEHOLDER}\r\n`],
    ['in another case of the name', `aUTHORIZATION: Bearer ${PLACEHOLDER}\r\n`],
  ])('%s becomes the value', async (_what, header) => {
    const all = await world();
    expect(await send(all, 'good.test', good(header))).toMatch(/^HTTP\/1.1 200 /);
    expect(all.seen()).toMatch(new RegExp(`authorization: Bearer ${VALUE}\r\n`, 'i'));
    expect(all.seen()).not.toContain(PLACEHOLDER);
    expect(all.injector.use('TOKEN', 'good.test')).toMatchObject({
      uses: 1,
      refused: 0,
      firstMs: expect.any(Number) as number,
      lastMs: expect.any(Number) as number,
    });
  });

  test('on each request of a connection', async () => {
    const all = await world();
    const one = `GET / HTTP/1.1\r\nHost: good.test:{port}\r\nAuthorization: ${PLACEHOLDER}\r\n\r\n`;
    await send(all, 'good.test', one + good(`Authorization: ${PLACEHOLDER}\r\n`));
    expect(all.seen().split(VALUE)).toHaveLength(3);
  });

  test('a request without it is left alone', async () => {
    const all = await world();
    await send(all, 'good.test', good('Authorization: Bearer own\r\n'));
    expect(all.seen()).toMatch(/authorization: Bearer own/i);
    expect(all.injector.use('TOKEN', 'good.test')).toEqual({ uses: 0, refused: 0, firstMs: null, lastMs: null });
  });
});

const other = (headers: string): string => `GET / HTTP/1.1\r\nHost: other.test:{port}\r\n${headers}${END}`;
const BEARER = `Authorization: Bearer ${PLACEHOLDER}\r\n`;

/** Number, what is tried, the host that is dialled, what is sent, and whether the placeholder's own count tells it. */
const ATTACKS: readonly (readonly [number, string, string, string, boolean])[] = [
  [1, 'another host that is allowed', 'other.test', other(BEARER), true],
  [2, 'another host, Host names its own', 'other.test', good(BEARER), false],
  [3, 'its own host, Host names another', 'good.test', other(BEARER), false],
  [4, 'another header', 'good.test', good(`X-Echo: ${PLACEHOLDER}\r\n`), true],
  [5, 'its own header and another', 'good.test', good(`${BEARER}X-Echo: ${PLACEHOLDER}\r\n`), true],
  [6, 'its own header twice', 'good.test', good(BEARER + BEARER), true],
  [7, 'beside a header of the same name', 'good.test', good(`Authorization: Basic eA==\r\n${BEARER}`), true],
  [8, 'within more text', 'good.test', good(`Authorization: Bearer ${PLACEHOLDER}, x=${PLACEHOLDER}\r\n`), true],
  [9, 'the target', 'good.test', good('', 'GET', `/?token=${PLACEHOLDER}`), true],
  [10, 'the target, percent-encoded', 'good.test', good('', 'GET', `/?t=%70${PLACEHOLDER.slice(1)}`), true],
  [11, 'the target of another host', 'other.test', `GET /${PLACEHOLDER} HTTP/1.1\r\nHost: other.test:{port}\r\n${END}`, true],
  [12, 'TRACE, whose answer holds the request', 'good.test', good(BEARER, 'TRACE'), true],
  [13, 'a name of a header', 'good.test', good(`${PLACEHOLDER}: x\r\n`), true],
  [14, 'a folded header', 'good.test', good(`Authorization: Bearer\r\n ${PLACEHOLDER}\r\n`), false],
  [15, 'a bare CR before it', 'good.test', good(`Authorization: x\rAuthorization: ${PLACEHOLDER}\r\n`), false],
  [
    16,
    'a smuggled request behind two lengths',
    'good.test',
    `POST / HTTP/1.1\r\nHost: good.test:{port}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${other(BEARER)}`,
    false,
  ],
  [17, 'a kept-alive connection, the second request to another Host', 'good.test', `GET / HTTP/1.1\r\nHost: good.test:{port}\r\n\r\n${other(BEARER)}`, false],
  [18, 'an absolute target to another host', 'good.test', `GET http://other.test:{port}/ HTTP/1.1\r\nHost: good.test:{port}\r\n${BEARER}${END}`, false],
  [
    19,
    'a WebSocket at another host',
    'other.test',
    `GET / HTTP/1.1\r\nHost: other.test:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n${BEARER}\r\n`,
    true,
  ],
  [20, 'a body', 'good.test', `POST / HTTP/1.1\r\nHost: good.test:{port}\r\nContent-Length: ${String(PLACEHOLDER.length)}\r\n${END}${PLACEHOLDER}`, true],
  [
    21,
    'a body in chunks that cut it',
    'other.test',
    `POST / HTTP/1.1\r\nHost: other.test:{port}\r\nTransfer-Encoding: chunked\r\n${END}a\r\n${PLACEHOLDER.slice(0, 10)}\r\n${(PLACEHOLDER.length - 10).toString(16)}\r\n${PLACEHOLDER.slice(10)}\r\n0\r\n\r\n`,
    true,
  ],
];

describe('a placeholder anywhere else', () => {
  test.each(ATTACKS)('%i: %s', async (_number, _what, host, text, counted) => {
    const all = await world();
    await send(all, host, text);
    expect(all.seen()).not.toContain(VALUE);
    const use = all.injector.use('TOKEN', 'good.test');
    expect(use.uses).toBe(0);
    if (counted) expect(use.refused).toBe(1);
    expect(all.lab.row(host, all.port)?.denied).toBeGreaterThan(0);
  });
});
