import { describe, expect, test } from 'vitest';
import { decide, decideAddress, nameCanBeAllowed, type OverlayRules } from '../../src/overlaynet/decide.ts';
import { canonicalHost } from '../../src/policy/decide.ts';
import type { RawHost } from '../../src/policy/layer.ts';
import { addressForms, isSpecialBlock, specialRange } from '../../src/policy/special-address.ts';
import { hostRule } from '../support/overlay-lab.host.ts';

function rules(allow: readonly (RawHost | string)[], deny: readonly (RawHost | string)[] = [], more: Partial<OverlayRules> = {}): OverlayRules {
  return { allow: allow.map((one) => hostRule(one, 'allow')), deny: deny.map((one) => hostRule(one, 'deny')), defaultAllow: false, hostPorts: [], ...more };
}

function ask(set: OverlayRules, host: string, port = 443, claim?: string, protocol: 'tcp' | 'tls' | 'http' = claim === undefined ? 'tcp' : 'tls') {
  const destination = canonicalHost(host);
  if (destination === undefined) throw new Error(`${host} is no host`);
  return decide(set, { destination, port, protocol, claim });
}

describe('decide', () => {
  test.each([
    ['a name', ['a.test'], [], 'a.test', 443, true],
    ['a port that is not in the rule', ['a.test'], [], 'a.test', 22, false],
    ['a port that is', ['a.test:22'], [], 'a.test', 22, true],
    ['a name below a wildcard', ['*.a.test'], [], 'b.a.test', 443, true],
    ['the name of a wildcard itself', ['*.a.test'], [], 'a.test', 443, false],
    ['a denial beats a grant', ['*.a.test'], ['b.a.test'], 'b.a.test', 443, false],
    ['a denial of one port', ['*.a.test'], ['b.a.test:80'], 'b.a.test', 443, true],
    ['a name ends like another', ['a.test'], [], 'xa.test', 443, false],
    ['a public address', ['93.184.216.0/24'], [], '93.184.216.34', 443, true],
    ['a mapped address is the address', ['93.184.216.0/24'], [], '::ffff:93.184.216.34', 443, true],
    ['an address in a denied block', ['93.184.216.0/24'], ['93.184.216.34'], '93.184.216.34', 443, false],
    ['NAT64 of a denied address', ['64:ff9b::/96'], ['93.184.216.34'], '64:ff9b::5db8:d822', 443, false],
    ['a private address in a block of such addresses', ['10.0.0.0/8'], [], '10.1.2.3', 443, true],
    ['a private address in a block of all addresses', ['0.0.0.0/0'], [], '10.1.2.3', 443, false],
    ['a mapped private address in a block of all', ['::/0'], [], '::ffff:10.1.2.3', 443, false],
    ['a private address, all of them opened', [{ host: '0.0.0.0/0', private: true }], [], '10.1.2.3', 443, true],
    ['this host is never connected to', [{ host: '0.0.0.0/0', private: true }], [], '0.0.0.0', 443, false],
    ['multicast is never connected to', [{ host: '0.0.0.0/0', private: true }], [], '224.0.0.1', 443, false],
    ['a name rule does not match an address', ['a.test'], [], '93.184.216.34', 443, false],
  ] as const)('%s', (_why, allow, deny, host, port, allowed) => {
    expect(ask(rules(allow, deny), host, port).allowed).toBe(allowed);
  });

  test.each([
    ['agrees', 'a.test', true],
    ['agrees in another case, with a dot', 'A.Test.', true],
    ['is another', 'b.test', false],
    ['is below it', 'x.a.test', false],
    ['is no host', 'a_test', false],
    ['has NUL', 'a.test\0', false],
    ['is an address', '93.184.216.34', false],
  ])('SNI that %s', (_why, claim, allowed) => {
    expect(ask(rules(['a.test', 'b.test']), 'a.test', 443, claim).allowed).toBe(allowed);
  });

  test.each([
    ['with the port', 'a.test:8080', true],
    ['without it', 'a.test', true],
    ['with another port', 'a.test:80', false],
    ['in brackets', '[a.test]:8080', false],
    ['with an empty port', 'a.test:', false],
    ['in punycode of another script', 'xn--80ak6aa92e.test', false],
  ])('Host %s', (_why, claim, allowed) => {
    expect(ask(rules(['a.test:8080']), 'a.test', 8080, claim, 'http').allowed).toBe(allowed);
  });

  test('a name said on a connection to an address counts only against it', () => {
    const set = rules(['93.184.216.0/24', 'b.test'], ['denied.test']);
    expect(ask(set, '93.184.216.34', 443, 'any.test').allowed).toBe(true);
    expect(ask(set, '93.184.216.34', 443, 'denied.test')).toMatchObject({ allowed: false, cause: 'rule', rule: 'job.yaml:7 deny denied.test' });
    expect(ask(set, '93.184.216.99', 443, '93.184.216.34').allowed).toBe(false);
    expect(ask(set, '1.1.1.1', 443, 'b.test').allowed).toBe(false);
  });

  test('a port of the host is reached at the loopback addresses, and denied like any other', () => {
    const set = rules([], [], { hostPorts: [5432] });
    for (const host of ['127.0.0.1', '127.9.9.9', '::1', 'localhost', '::ffff:127.0.0.1']) {
      expect(ask(set, host, 5432)).toMatchObject({ allowed: true, to: 'host_port' });
    }
    expect(ask(set, '127.0.0.1', 5433).allowed).toBe(false);
    expect(ask(set, '10.0.0.1', 5432).allowed).toBe(false);
    expect(ask(rules([], ['127.0.0.0/8'], { hostPorts: [5432] }), '127.0.0.1', 5432).allowed).toBe(false);
  });

  test('says where the deciding rule is written', () => {
    expect(ask(rules(['a.test']), 'a.test').rule).toBe('job.yaml:7 allow a.test');
    const origin = { layer: 'policy', name: 'safe', file: 'safe.yaml', line: 14 } as const;
    expect(ask(rules([], [], { defaultOrigin: origin }), 'a.test')).toEqual({ allowed: false, cause: 'default', rule: 'safe.yaml:14 default_action: deny' });
  });

  test('an address that a name leads to: the most open grant that covers the name opens it, whatever is more specific', () => {
    const set = rules([{ host: '*.corp.test', private: true }, 'db.corp.test', 'other.test']);
    const name = (host: string) => ({ kind: 'name', host }) as const;
    expect(decideAddress(set, name('db.corp.test'), 443, '10.0.0.1')).toBeUndefined();
    expect(decideAddress(set, name('other.test'), 443, '10.0.0.1')).toMatchObject({ allowed: false, cause: 'address' });
    expect(decideAddress(set, name('other.test'), 443, '93.184.216.34')).toBeUndefined();
    expect(decideAddress(set, name('other.test'), 443, 'no address')).toMatchObject({ allowed: false });
  });

  test('a name has an address when some port of it is allowed', () => {
    const set = rules(['a.test', '*.b.test:22'], ['a.test:443', 'x.b.test:22', 'y.b.test']);
    expect(nameCanBeAllowed(set, 'a.test')).toBe(true);
    expect(nameCanBeAllowed(set, 'z.b.test')).toBe(true);
    expect(nameCanBeAllowed(set, 'x.b.test')).toBe(false);
    expect(nameCanBeAllowed(set, 'y.b.test')).toBe(false);
    expect(nameCanBeAllowed(set, 'c.test')).toBe(false);
    expect(nameCanBeAllowed(rules([], ['a.test'], { defaultAllow: true }), 'a.test')).toBe(false);
    expect(nameCanBeAllowed(rules([], ['a.test'], { defaultAllow: true }), 'b.test')).toBe(true);
  });
});

describe('hosts in one form', () => {
  test.each([
    ['A.Test.', 'a.test'],
    ['bücher.test', 'xn--bcher-kva.test'],
    ['[::1]', '::1'],
    ['::ffff:10.0.0.1', '10.0.0.1'],
    ['::FFFF:0A00:0001', '10.0.0.1'],
    ['2001:DB8:0:0::1', '2001:db8::1'],
  ])('%s is %s', (text, host) => expect(canonicalHost(text)?.host).toBe(host));

  test.each([
    '',
    '.',
    'a..test',
    'a.test..',
    'a\0.test',
    'a%00.test',
    'a.test\r',
    'a.test\n',
    'a b.test',
    '-a.test',
    'a-.test',
    'a_b.test',
    `${'a'.repeat(64)}.test`,
    '127.1',
    '0x7f.1',
    '0177.0.0.1',
    '2130706433',
    '1.2.3.4.',
    '[a.test]',
    'fe80::1%lo',
    '[fe80::1%25lo]',
    '10.0.0.0/8',
    'a.test:80',
    'u@a.test',
    '*',
  ])('%j is none', (text) => expect(canonicalHost(text)).toBeUndefined());
});

describe('special addresses', () => {
  test.each(['93.184.216.34', '8.8.8.8', '100.128.0.1', '172.32.0.1', '2606:4700::1', '64:ff9b::808:808', '2002:808:808::1'])(
    '%s is a plain public one',
    (address) => {
      expect(specialRange(address)).toBeUndefined();
    },
  );
  test.each([
    '10.0.0.1',
    '169.254.169.254',
    '100.64.0.1',
    '127.0.0.1',
    '192.168.1.1',
    '168.63.129.16',
    '::1',
    '::',
    'fd00::1',
    'fe80::1',
    '64:ff9b::a00:1',
    '2002:a00:1::',
    '::a00:1',
    '::ffff:10.0.0.1',
    '2001::1',
    'ff02::1',
    '2606:4700::200:5efe:10.0.0.1',
    'x',
  ])('%s is special', (address) => {
    expect(specialRange(address)).toBeDefined();
  });
  test('blocks and forms', () => {
    expect([isSpecialBlock('10.1.0.0/16'), isSpecialBlock('0.0.0.0/0'), isSpecialBlock('fd00::/8'), isSpecialBlock('::/0'), isSpecialBlock('x')]).toEqual([
      true,
      false,
      true,
      false,
      false,
    ]);
    expect(addressForms('64:ff9b::a00:1')).toEqual(['64:ff9b::a00:1', '10.0.0.1']);
    expect(addressForms('x')).toEqual([]);
  });
});
