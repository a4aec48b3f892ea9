import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import fc from 'fast-check';
import { afterEach, describe, expect, test } from 'vitest';
import { isLoopback, sendKeyed } from '../../src/runtime/keyed-request.host.ts';
import { redaction } from '../../src/runtime/redact.ts';

const KEY = 'sk-test-Zq8!w+/x==0123456789';
const servers: Server[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) {
    server.close();
    await once(server, 'close');
  }
});

async function serve(status: number, location?: string): Promise<{ readonly port: number; readonly keys: (string | undefined)[] }> {
  const keys: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    keys.push(request.headers['x-key']?.toString());
    response.writeHead(status, location === undefined ? {} : { location }).end('ok');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  servers.push(server);
  return { port: (server.address() as AddressInfo).port, keys };
}

const send = async (url: string) =>
  await sendKeyed({ url, method: 'POST', headers: {}, key: { header: 'x-key', value: KEY }, body: '{}', signal: new AbortController().signal });

describe('18: keys go where they were meant to', () => {
  test('to this machine over plain http, by address and by name', async () => {
    const { port, keys } = await serve(200);
    for (const host of ['127.0.0.1', 'localhost']) {
      const response = await send(`http://${host}:${port}/`).catch((error: unknown) => error as Error);
      // A machine whose localhost is ::1 alone has nobody there.
      if (response instanceof Error) expect(response.message).toMatch(/ECONNREFUSED/);
      else response.resume();
    }
    expect(keys).toContain(KEY);
  });

  test.each([301, 302, 303, 307, 308])('no redirect is followed: %i', async (status) => {
    const target = await serve(200);
    const { port, keys } = await serve(status, `http://127.0.0.1:${target.port}/`);
    await expect(send(`http://127.0.0.1:${port}/`)).rejects.toMatchObject({ code: 'ERR_USAGE' });
    expect([keys, target.keys]).toEqual([[KEY], []]);
  });

  test.each(['http://192.0.2.1/', 'http://[2001:db8::1]/', 'http://10.0.0.1/', 'http://0.0.0.0/', 'ftp://127.0.0.1/', 'http://user:pw@127.0.0.1/', 'nonsense'])(
    'not to %s',
    async (url) => {
      await expect(send(url)).rejects.toMatchObject({ code: 'ERR_USAGE' });
    },
  );

  test.each([
    ['elsewhere', [{ address: '192.0.2.1', family: 4 }]],
    [
      'here and elsewhere',
      [
        { address: '127.0.0.1', family: 4 },
        { address: '192.0.2.1', family: 4 },
      ],
    ],
    ['nowhere', []],
  ])('not over plain http to a name that leads %s: the dialled address is judged', async (_where, addresses) => {
    const plan = { url: 'http://models.test/', method: 'POST' as const, headers: {}, key: { header: 'x-key', value: KEY }, body: '{}' };
    const abort = new AbortController();
    // What is dialled in spite of it would hang: then the time is over, with another error.
    const timer = setTimeout(() => abort.abort(), 3000);
    await expect(sendKeyed({ ...plan, signal: abort.signal, resolve: (_name, _options, callback) => callback(null, addresses) })).rejects.toMatchObject({
      code: 'ERR_USAGE',
    });
    clearTimeout(timer);
  });

  test.each([
    ['127.0.0.1', true],
    ['127.255.0.9', true],
    ['::1', true],
    ['::ffff:127.0.0.1', true],
    ['128.0.0.1', false],
    ['::ffff:10.0.0.1', false],
    ['0.0.0.0', false],
    ['localhost', false],
  ])('%s is a loopback address: %s', (address, expected) => expect(isLoopback(address)).toBe(expected));

  test('no message holds the key', async () => {
    const message = await send(`http://127.0.0.1:1/?k=${encodeURIComponent(KEY)}`).catch((error: unknown) => (error as Error).message);
    expect(message).not.toContain(KEY);
  });

  test('a key is taken out of every encoding', () => {
    const redact = redaction([KEY]);
    const bytes = Buffer.from(KEY);
    const middle = [0, 1, 2].map((shift) => Buffer.concat([Buffer.from('abc'.slice(0, shift)), bytes, Buffer.from('tail')]));
    for (const text of [
      KEY,
      encodeURIComponent(KEY),
      bytes.toString('hex'),
      bytes.toString('hex').toUpperCase(),
      JSON.stringify({ key: KEY }),
      ...middle.map((one) => one.toString('base64')),
      ...middle.map((one) => one.toString('base64url')),
    ]) {
      const left = redact(`before ${text} after`);
      expect(left).toMatch(/^before .*\[key taken out\].* after$/s);
    }
  });

  test('whatever stands before and after it in base64', () => {
    const redact = redaction([KEY]);
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 20 }), fc.uint8Array({ maxLength: 20 }), (before, after) => {
        const text = Buffer.concat([before, Buffer.from(KEY), after]).toString('base64');
        expect(redact(text)).toContain('[key taken out]');
      }),
    );
  });

  test('other text is left as it is', () => {
    const redact = redaction([KEY, 'short']);
    fc.assert(
      fc.property(fc.string(), (text) => {
        expect(redact(text)).toBe(text);
      }),
    );
  });
});
