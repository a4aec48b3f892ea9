import { readFileSync } from 'node:fs';
import { once } from 'node:events';
import { createServer } from 'node:net';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { countersSince } from '../../executors/native/counters-since.ts';
import { deniedTarget, OVERLAY_V4, overlayFiles, planListeners, planOverlay } from '../../executors/shim/overlay-plan.ts';
import { ownSockets, waitingSockets } from '../../executors/shim/own-sockets.host.ts';
import { parseSocketTable } from '../../executors/shim/socket-table.ts';
import { learnedProfile, recordedNetwork } from '../../src/cli/report/learned.ts';
import { proxyVariables } from '../../src/admission/proxy-variables.ts';
import { effectiveJob, type SelectiveNetwork } from '../support/native-job.ts';
import { decideHost } from '../../src/policy/decide.ts';
import { sampleBody } from '../support/sample-bundle.ts';

const network = (rules: SelectiveNetwork) => effectiveJob({ argv: ['x'], workspace: '/w', home: '/h', mode: 'safe', network: rules }).permissions.network;
const shown = (rules: SelectiveNetwork, ipv6 = true): readonly string[] =>
  planListeners(network(rules), ipv6).map(({ kind, address, port }) => `${kind} ${address} ${port}`);
const ALWAYS = ['tcp 0.0.0.0 80', 'tcp :: 80', 'tcp 0.0.0.0 443', 'tcp :: 443'];
const OWN = ['tcp 198.18.0.2 17817', 'tcp 198.18.0.2 53', 'udp 198.18.0.2 53'];

describe('listeners of a network for chosen hosts', () => {
  test.each<[string, SelectiveNetwork, readonly string[]]>([
    ['no rule: the usual ports, the resolver and the proxy', {}, [...ALWAYS, ...OWN]],
    ['a name takes its ports everywhere', { allow: [{ host: 'a.test', ports: [22] }] }, ['tcp 0.0.0.0 22', 'tcp :: 22', ...ALWAYS, ...OWN]],
    ['a block as well', { allow: [{ host: '10.0.0.0/8', ports: [22] }] }, ['tcp 0.0.0.0 22', 'tcp :: 22', ...ALWAYS, ...OWN]],
    ['one address takes its ports there alone', { allow: [{ host: '10.0.0.1', ports: [22] }] }, [...ALWAYS, 'tcp 10.0.0.1 22', ...OWN]],
    ['one address of IPv6', { allow: [{ host: '2001:db8::1', ports: [22] }] }, [...ALWAYS, 'tcp 2001:db8::1 22', ...OWN]],
    [
      'a port that is taken everywhere isn’t taken once more',
      {
        allow: [
          { host: 'a.test', ports: [22] },
          { host: '10.0.0.1', ports: [22] },
        ],
        hostPorts: [22],
      },
      ['tcp 0.0.0.0 22', 'tcp :: 22', ...ALWAYS, ...OWN],
    ],
    ['ports of the host on the job’s loopback', { hostPorts: [5432] }, [...ALWAYS, 'tcp 127.0.0.1 5432', 'tcp ::1 5432', ...OWN]],
  ])('%s', (_, rules, expected) => {
    expect([...shown(rules)].sort()).toEqual([...expected].sort());
  });

  test('without IPv6 there is none of it', () => {
    expect(shown({ allow: [{ host: '2001:db8::1', ports: [22] }], hostPorts: [5432] }, false).filter((one) => one.includes('::'))).toEqual([]);
    expect(planOverlay(network({}), false)).toMatchObject({ local: ['v4'], addresses: ['127.0.0.1/8 lo', '198.18.0.2/32 lo'] });
  });

  test('what a probe dials is denied by the rules, or a port that nobody answers', () => {
    const port = fc.integer({ min: 1, max: 65535 });
    const host = fc.constantFrom(
      'a.test',
      '*.b.test',
      '192.0.2.1',
      '192.0.2.0/24',
      '0.0.0.0/0',
      '::/0',
      '169.254.169.254',
      '198.51.100.0/24',
      '169.254.0.0/16',
    );
    const rule = fc.record({ host, ports: fc.uniqueArray(port, { minLength: 1, maxLength: 4 }), private: fc.boolean() });
    fc.assert(
      fc.property(fc.array(rule, { maxLength: 6 }), fc.constantFrom('v4', 'v6', 'metadata'), (allow, of) => {
        const rules = network({ allow });
        const listeners = planListeners(rules, true);
        const target = deniedTarget(rules, of, listeners);
        const answered = listeners.some((one) => one.port === target.port && ['0.0.0.0', '::', target.address].includes(one.address));
        expect(!answered || !decideHost(rules, target.address, target.port).allowed).toBe(true);
      }),
    );
  });

  test('files and variables', () => {
    expect(overlayFiles('laptop').get('/etc/resolv.conf')).toBe(`nameserver ${OVERLAY_V4}\n`);
    expect(overlayFiles('laptop').get('/etc/hosts')).toContain('127.0.0.1 localhost laptop\n');
    expect(overlayFiles('a b\nnameserver 8.8.8.8').get('/etc/hosts')).not.toContain('nameserver');
    const variables = proxyVariables('http://p:1');
    expect(Object.keys(variables).sort()).toEqual(['ALL_PROXY', 'HTTPS_PROXY', 'HTTP_PROXY', 'NO_PROXY', 'all_proxy', 'http_proxy', 'https_proxy', 'no_proxy']);
    expect(variables['no_proxy']).toBe('localhost,127.0.0.1,::1');
  });
});

describe('socket tables', () => {
  test('addresses, states and inodes', () => {
    const text = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0200A8C0:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1500        0 4711 1
   1: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 01 00000000:00000000 00:00000000 00000000 0 0 12 1
   2: broken
`;
    expect(parseSocketTable('tcp', text)).toEqual([
      { kind: 'tcp', address: '192.168.0.2', port: 80, waits: true, inode: 4711 },
      { kind: 'tcp', address: '::1', port: 8080, waits: false, inode: 12 },
    ]);
    fc.assert(fc.property(fc.string(), (any) => void parseSocketTable('udp', any)));
  });

  test('a listener of this process is found with its inode, and is ours', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const line = waitingSockets('self').find((one) => address !== null && typeof address !== 'string' && one.port === address.port && one.kind === 'tcp');
    expect(line?.address).toBe('127.0.0.1');
    expect(ownSockets().has(line?.inode ?? -1)).toBe(true);
    server.close();
    expect(readFileSync('/proc/self/net/tcp', 'utf8')).toContain('local_address');
  });
});

describe('counters', () => {
  const row = { host: 'a.test', port: 443, allowed: 3, denied: 1, failed: 0, bytesOut: 10, bytesIn: 20, firstMs: 1, lastMs: 2, rule: 'r' };
  const all = (destinations: readonly (typeof row)[]) => ({
    destinations,
    unlisted: 0,
    lookups: { queries: 2, names: 1, refused: 1, dropped: 0 },
    open: 0,
    mostOpen: 1,
  });

  test('what probes met is taken off', () => {
    const { destinations, lookups } = countersSince(
      all([row]),
      all([
        { ...row, allowed: 5 },
        { ...row, host: 'b.test' },
      ]),
    );
    expect(destinations).toEqual([
      { ...row, allowed: 2, denied: 0, bytesOut: 0, bytesIn: 0 },
      { ...row, host: 'b.test' },
    ]);
    expect(lookups?.queries).toBe(0);
    expect(countersSince(all([row]), all([row])).destinations).toEqual([]);
  });
});

describe('learning', () => {
  test('a network that nobody restricted is closed and recorded; rules stay as they are', () => {
    const open = effectiveJob({ argv: ['x'], workspace: '/w', home: '/h', mode: 'default', network: 'public' });
    expect(recordedNetwork(open).permissions.network).toMatchObject({ kind: 'selective', defaultAllow: false, allow: [] });
    const ruled = effectiveJob({ argv: ['x'], workspace: '/w', home: '/h', mode: 'safe', network: { allow: [{ host: 'a.test' }] } });
    expect(recordedNetwork(ruled)).toBe(ruled);
  });

  test('hosts by name, port and number of times; what is no rule is a comment, whatever it holds', () => {
    const bundle = sampleBody();
    const row = { allowed: 0, failed: 0, bytesOut: 0, bytesIn: 0, firstMs: 1, lastMs: 2, rule: null };
    const destinations = [
      { ...row, host: 'a.test', port: null, denied: 2 },
      { ...row, host: 'a.test', port: 8443, denied: 1 },
      { ...row, host: '2001:db8::1', port: 22, denied: 1 },
      { ...row, host: 'x\nversion: 2', port: 1, denied: 1 },
      { ...row, host: 'fine.test', port: 443, denied: 0 },
    ];
    const { text, hosts } = learnedProfile({ ...bundle, network: { ...bundle.network, destinations } });
    expect(hosts).toBe(2);
    expect(text.split('\n').filter((line) => !line.startsWith('#'))).toEqual([
      'version: 1',
      'name: learned',
      'permissions:',
      '  network:',
      '    allow:',
      '      - "[2001:db8::1/128]:22" # once',
      '      - "a.test:80,443,8443" # 3 times',
      expect.stringMatching(/^ {6}# no rule can name "x.*version: 2"$/),
      '',
    ]);
  });
});
