import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { nodeFor } from '../support/job-command.host.ts';
import { NativeLab } from '../support/native-lab.host.ts';
import { describeUsers } from '../support/users.host.ts';

describeUsers('a network that is open for chosen hosts', (user) => {
  const lab = new NativeLab(user);
  const web = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n'));
  });
  let port = 0;
  beforeAll(async () => {
    web.listen(0, '127.0.0.1');
    await once(web, 'listening');
    port = (web.address() as AddressInfo).port;
  });
  afterAll(async () => {
    web.close();
    await lab.dispose();
  });

  test('a client without proxy variables reaches a listed name, and its sockets belong to the host', async () => {
    const report = await lab.run(['/usr/bin/curl', '-sS', '--max-time', '5', 'http://allowed.test/'], {
      network: { allow: [{ host: 'allowed.test' }] },
      names: { 'allowed.test': port },
    });
    expect(report.error).toBeUndefined();
    expect(report.unmet).toEqual([]);
    expect([report.stdout, report.stderr]).toEqual(['hello\n', '']);
    expect(report.levels?.network).toBe('enforced');
  });
});
