import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { nodeFor } from '../support/job-command.host.ts';
import { NativeLab, type LabRun } from '../support/native-lab.host.ts';
import { outcomes } from '../support/native-attack.host.ts';
import { describeUsers } from '../support/users.host.ts';

/** `tcp ADDRESS` or `udp ADDRESS`, and how it ended. */
const DIAL = `
const [port, udp, ...addresses] = process.argv.slice(1);
const tries = addresses.flatMap((address) => [
  new Promise((done) => {
    const socket = require('node:net').connect(Number(port), address);
    socket.setTimeout(3000, () => socket.destroy(Object.assign(new Error(), { code: 'TIMEOUT' })));
    socket.once('connect', () => { console.log('tcp ' + address + ' ok'); socket.destroy(); done(); });
    socket.once('error', (error) => { console.log('tcp ' + address + ' ' + error.code); done(); });
  }),
  new Promise((done) => {
    const socket = require('node:dgram').createSocket(address.includes(':') ? 'udp6' : 'udp4');
    socket.once('error', (error) => { console.log('udp ' + address + ' ' + error.code); done(); });
    socket.send('hello', Number(udp), address, (error) => { console.log('udp ' + address + ' ' + (error ? error.code : 'ok')); socket.close(); done(); });
  }),
]);
Promise.all(tries);`;

describeUsers('a closed network', (user) => {
  const lab = new NativeLab(user);
  const server = createServer((socket) => socket.on('error', () => undefined).end());
  const listener = createSocket('udp4');
  let connections = 0;
  const heard: string[] = [];
  server.on('connection', () => connections++);
  listener.on('message', (text) => heard.push(text.toString()));
  let ports: readonly string[] = [];
  beforeAll(async () => {
    server.listen(0, '0.0.0.0');
    listener.bind(0, '0.0.0.0');
    await Promise.all([once(server, 'listening'), once(listener, 'listening')]);
    ports = [String((server.address() as AddressInfo).port), String(listener.address().port)];
  });
  afterAll(async () => {
    server.close();
    listener.close();
    await lab.dispose();
  });
  /** This machine by its loopback and by every address that it has. */
  const own = [
    '127.0.0.1',
    '127.0.0.2',
    ...Object.values(networkInterfaces())
      .flat()
      .flatMap((one) => (one?.family === 'IPv4' && !one.internal ? [one.address] : [])),
  ];
  const dial = async (addresses: readonly string[], options: LabRun = {}): Promise<Readonly<Record<string, string>>> => {
    const report = await lab.run([nodeFor(user), '-e', DIAL, ...ports, ...addresses], { allowRead: [nodeFor(user)], ...options });
    if (report.error !== undefined) throw new Error(report.error.message);
    expect(report.stderr).toBe('');
    return outcomes(report.stdout);
  };

  test('reaches neither this machine nor any other, by no protocol', async () => {
    const far = ['192.0.2.1', '169.254.169.254', '10.0.0.1', '224.0.0.1', '255.255.255.255'];
    const met = await dial([...own, ...far]);
    for (const address of own) {
      expect([`tcp ${address}`, ['ECONNREFUSED', 'ENETUNREACH', 'EHOSTUNREACH']]).toEqual([`tcp ${address}`, expect.arrayContaining([met[`tcp ${address}`]])]);
    }
    for (const address of far) expect([address, met[`tcp ${address}`]]).not.toEqual([address, 'ok']);
    for (const address of far.slice(0, 3)) expect([address, met[`udp ${address}`]]).toEqual([address, 'ENETUNREACH']);
    expect([connections, heard]).toEqual([0, []]);
  });

  test('control arm: without a network namespace the same program reaches this machine', async () => {
    const arrived = once(listener, 'message');
    const met = await dial(own, { mode: 'default', alterations: ['network_namespace: no network namespace is made'] });
    for (const address of own) expect([address, met[`tcp ${address}`], met[`udp ${address}`]]).toEqual([address, 'ok', 'ok']);
    await arrived;
    expect(connections).toBeGreaterThan(0);
  });

  test('control arm: a job with a public network reaches it as well', async () => {
    const before = connections;
    expect((await dial(['127.0.0.1'], { network: 'public', mode: 'default' }))['tcp 127.0.0.1']).toBe('ok');
    expect(connections).toBe(before + 1);
  });

  test('has a loopback of its own, where a job serves itself', async () => {
    const script = `const s = require('node:net').createServer((c) => c.end('mine')).listen(0, '127.0.0.1', () => require('node:net').connect(s.address().port, '127.0.0.1').on('data', (d) => { console.log(String(d)); s.close(); }))`;
    expect((await lab.run([nodeFor(user), '-e', script], { allowRead: [nodeFor(user)] })).stdout).toBe('mine\n');
    expect(
      (
        await lab.run(['/bin/sh', '-c', 'tail -n +3 /proc/net/dev | cut -d: -f1; cat /proc/net/route | tail -n +2; cat /proc/net/tcp | tail -n +2'])
      ).stdout.trim(),
    ).toBe('lo');
  });
});
