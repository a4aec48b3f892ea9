import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Server } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { nodeFor } from '../support/job-command.host.ts';
import { NativeDriver, NativeLab, type LabRun } from '../support/native-lab.host.ts';
import { describeUsers } from '../support/users.host.ts';

const ALLOWED = { network: { allow: [{ host: 'allowed.test' }] } } as const satisfies LabRun;

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Everything that comes over a connection, until its end. */
async function everything(port: number, say = ''): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  let text = '';
  socket.on('error', (error) => (text += `<${String((error as NodeJS.ErrnoException).code)}>`));
  socket.on('data', (part) => (text += part.toString()));
  socket.once('connect', () => socket.end(say));
  // events.once would reject at an error that comes before.
  await new Promise((resolve) => socket.once('close', resolve));
  return text;
}

describeUsers('a network that is open for chosen hosts', (user) => {
  const lab = new NativeLab(user);
  const web: Server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n'));
  });
  let names: Readonly<Record<string, number>> = {};
  beforeAll(async () => {
    web.listen(0, '127.0.0.1');
    await once(web, 'listening');
    names = { 'allowed.test': (web.address() as AddressInfo).port };
  });
  afterAll(async () => {
    web.close();
    await lab.dispose();
  });
  const run = async (argv: readonly [string, ...string[]], options: LabRun = {}) => {
    const report = await lab.run(argv, { ...ALLOWED, names, allowRead: [nodeFor(user)], ...options });
    expect(report.error).toBeUndefined();
    expect(report.unmet).toEqual([]);
    return report;
  };
  const node = async (script: string, options: LabRun = {}) => {
    const { stdout, stderr } = await run([nodeFor(user), '-e', script], options);
    return stderr === '' ? stdout.trim() : stderr;
  };

  test('a client without proxy variables reaches a listed name, and what listens belongs to the host', async () => {
    const report = await run(['/usr/bin/curl', '-sS', '--noproxy', '*', '--max-time', '5', 'http://allowed.test/']);
    expect([report.stdout, report.stderr]).toEqual(['hello\n', '']);
    expect(report.levels?.network).toBe('enforced');
    const listeners = report.receipts.find((one) => one.id === 'net.listeners')?.value;
    expect(listeners).toEqual([
      'tcp 0.0.0.0:443',
      'tcp 0.0.0.0:80',
      'tcp 198.18.0.2:17817',
      'tcp 198.18.0.2:53',
      'tcp [::]:443',
      'tcp [::]:80',
      'udp 198.18.0.2:53',
    ]);
    expect(report.network?.counters.destinations.map(({ host, allowed, denied }) => [host, allowed, denied])).toEqual([['allowed.test', 1, 0]]);
  });

  test('what the probes met is not counted as the command’s', async () => {
    expect((await run(['/bin/true'])).network).toMatchObject({ counters: { destinations: [] }, kernelRefused: 0 });
  });

  test('ports that no rule names are refused by the kernel, and counted in total', async () => {
    const tries = ['192.0.2.7', '2001:db8::7'].map((address) => `['${address}', 8081]`).join();
    const script = `for (const [host, port] of [${tries}]) require('node:net').connect(port, host).on('error', (e) => console.log(e.code));`;
    const report = await run([nodeFor(user), '-e', script]);
    expect(report.stdout).toBe('ECONNREFUSED\nECONNREFUSED\n');
    expect(report.network?.kernelRefused).toBe(2);
  });

  test('the resolver’s file and the names of the machine itself are ours, whatever the host has', async () => {
    const { stdout } = await run([
      '/bin/sh',
      '-c',
      'cat /etc/resolv.conf; head -1 /etc/hosts; test -L /etc/resolv.conf && echo link; getent ahosts allowed.test | head -1',
    ]);
    expect(stdout).toMatch(/^nameserver 198\.18\.0\.2\n127\.0\.0\.1 localhost( [^\n]+)?\n198\.18\.1\.1 +STREAM/);
  });

  test('the job serves itself on its own loopback, also on a port that a rule names for a single address', async () => {
    const own = (port: number) =>
      `require('node:net').createServer((c) => c.end('mine')).listen(${port}, '127.0.0.1', function () { require('node:net').connect(${port}, '127.0.0.1').on('data', (d) => { console.log(String(d)); this.close(); }); }).on('error', (e) => console.log(e.code))`;
    expect(await node(own(3000))).toBe('mine');
    expect(await node(own(8443), { network: { allow: [{ host: '203.0.113.9', ports: [8443] }] } })).toBe('mine');
    // A rule for names takes its ports everywhere.
    expect(await node(own(8443), { network: { allow: [{ host: 'allowed.test', ports: [8443] }] } })).toBe('EADDRINUSE');
  });

  test('a port of the host’s loopback is taken on the job’s loopback alone', async () => {
    const { receipts } = await run(['/bin/true'], { network: { hostPorts: [5432] } });
    expect(receipts.find((one) => one.id === 'net.listeners')?.value).toEqual([
      'tcp 0.0.0.0:443',
      'tcp 0.0.0.0:80',
      'tcp 127.0.0.1:5432',
      'tcp 198.18.0.2:17817',
      'tcp 198.18.0.2:53',
      'tcp [::1]:5432',
      'tcp [::]:443',
      'tcp [::]:80',
      'udp 198.18.0.2:53',
    ]);
  });

  describe('published ports', () => {
    const SERVE = (port: number, address: string): string =>
      `require('node:net').createServer((c) => { let t = ''; c.on('data', (d) => (t += d)); c.on('end', () => c.end('job says ' + t)); }).listen(${port}, '${address}', () => console.log('ready'))`;

    test.each(['127.0.0.1', '0.0.0.0', '::1'])('a port of the job at %s is reached at 127.0.0.1 of the host', async (address) => {
      const hostPort = await freePort();
      const base = lab.nextBase();
      const report = await lab.run(
        [nodeFor(user), '-e', SERVE(3000, address)],
        { ...ALLOWED, network: { publish: [{ hostPort, jobPort: 3000 }] }, allowRead: [nodeFor(user)], stop: 'line' },
        lab.shared,
        base,
      );
      expect([report.error, report.stdout]).toEqual([undefined, 'ready\n']);
      const sent = 'x'.repeat(300_000);
      const many = await Promise.all(Array.from({ length: 20 }, () => everything(hostPort, sent)));
      expect(new Set(many)).toEqual(new Set([`job says ${sent}`]));
      const closed = await lab.shared.then('close', base);
      expect(closed.unmet).toEqual([]);
      expect(closed.receipts.find((one) => one.id === 'net.published')?.value).toEqual([`tcp 127.0.0.1:${hostPort}`]);
      expect(await everything(hostPort)).toBe('<ECONNREFUSED>');
    });

    test('another job reaches neither its addresses nor its listeners, its published port or its abstract socket', async () => {
      const hostPort = await freePort();
      const base = lab.nextBase();
      const abstract = `proofrun-other-${String(hostPort)}`;
      const serve = `const net = require('node:net'); const say = (c) => { c.on('error', () => {}); c.end('the other'); };
        net.createServer(say).listen(3000, '::', () => net.createServer(say).listen('\\0${abstract}', () => console.log('ready')));`;
      const attack = (own: boolean): string => `const net = require('node:net'); const say = (c) => c.end('the other');
        const targets = [...['127.0.0.1', '198.18.0.1', '198.18.0.2', '198.18.1.1', '::1', '10.0.0.1', '203.0.113.5'].map((host) => ({ host, port: 3000 })),
          { host: '127.0.0.1', port: ${String(hostPort)} }, { host: '198.18.0.2', port: ${String(hostPort)} }, { path: '\\0${abstract}' }];
        const dial = (to) => new Promise((done) => { let text = ''; net.connect(to).on('data', (d) => (text += d)).on('error', (e) => done(e.code)).on('close', () => done(text)); });
        const all = async () => { console.log(JSON.stringify(await Promise.all(targets.map(dial)))); process.exit(); };
        ${own ? `net.createServer(say).listen(3000, '::', () => net.createServer(say).listen('\\0${abstract}', all));` : 'all();'}`;
      const other = await lab.run(
        [nodeFor(user), '-e', serve],
        { ...ALLOWED, network: { publish: [{ hostPort, jobPort: 3000 }] }, allowRead: [nodeFor(user)], stop: 'line' },
        lab.shared,
        base,
      );
      expect([other.error, other.stdout]).toEqual([undefined, 'ready\n']);
      expect(await everything(hostPort)).toBe('the other');
      const refused = 'ECONNREFUSED';
      const met = Array.from({ length: 10 }, () => refused);
      expect(JSON.parse(await node(attack(false)))).toEqual(met);
      // The control arm: the same program meets such servers where they are its own.
      const control = JSON.parse(await node(attack(true))) as unknown[];
      expect([...control.slice(0, 7), control[9]]).toEqual(Array.from({ length: 8 }, () => 'the other'));
      expect((await lab.shared.then('close', base)).unmet).toEqual([]);
    });

    test('a port that the job doesn’t serve is reset, and nothing hangs', async () => {
      const hostPort = await freePort();
      const base = lab.nextBase();
      await lab.run(['/bin/sh', '-c', 'echo ready; sleep 60'], { network: { publish: [{ hostPort, jobPort: 3000 }] }, stop: 'line' }, lab.shared, base);
      expect(await everything(hostPort)).toMatch(/ECONNRESET|^$/);
      expect((await lab.shared.then('close', base)).unmet).toEqual([]);
    });

    test('a port that another program has fails the launch with the reason', async () => {
      const taken = createServer().listen(0, '127.0.0.1');
      await once(taken, 'listening');
      const { port } = taken.address() as AddressInfo;
      const report = await lab.run(['/bin/true'], { network: { publish: [{ hostPort: port, jobPort: 3000 }] } });
      taken.close();
      expect(report.error).toMatchObject({
        code: 'ERR_LAUNCH',
        message: `port ${port} of this machine can't be published for port 3000 of the job: EADDRINUSE`,
      });
    });
  });

  test('a data path that lets everything through is noticed before the command starts', async () => {
    const report = await lab.run(['/bin/echo', 'started'], { ...ALLOWED, names, parameters: { network: 'everything' } });
    expect([report.error, report.stdout, report.decision?.kind, report.levels?.network]).toEqual([undefined, '', 'refuse', 'unenforced']);
    const noticing = ['probe.net.tcp4', 'probe.net.tcp6', 'probe.net.metadata', 'probe.net.name'].map((id) => `network ${id} differs`);
    expect([...report.unmet].sort()).toEqual(noticing.sort());
  });

  test('SIGKILL of the host: connections break, nothing answers, and no process and no listener is left', async () => {
    const driver = new NativeDriver(user);
    const hostPort = await freePort();
    const base = lab.nextBase();
    const script = `require('node:net').createServer((c) => c.write('hello')).listen(3000, () => console.log('ready'))`;
    const report = await lab.run(
      [nodeFor(user), '-e', script],
      { network: { allow: [{ host: 'allowed.test' }], publish: [{ hostPort, jobPort: 3000 }] }, names, allowRead: [nodeFor(user)], stop: 'line' },
      driver,
      base,
    );
    expect(report.stdout).toBe('ready\n');
    const open = connect(hostPort, '127.0.0.1');
    open.on('error', () => undefined);
    await once(open, 'data');
    const broken = new Promise((resolve) => open.once('close', resolve));
    await driver.kill();
    await broken;
    const left = (): readonly number[] =>
      report.hostPids.filter((pid) => {
        try {
          return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
        } catch {
          return false;
        }
      });
    await expect.poll(left, { timeout: 10_000 }).toEqual([]);
    expect(await everything(hostPort)).toBe('<ECONNREFUSED>');
  });
});
