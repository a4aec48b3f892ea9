import { describe, expect, it } from 'vitest';
import type { HostRule, Origin } from '../../src/core/job.ts';
import { coversCidr, overlapCidr, parseCidr } from '../../src/policy/cidr.ts';
import { decideHost } from '../../src/policy/decide.ts';
import { canonicalHostName, coveredBy, coversHost, formatHostRule, intersectHostRules, parseHostRule } from '../../src/policy/host-rule.ts';

const ORIGIN: Origin = { layer: 'flag', name: '--allow-net' };

function rule(text: string, effect: 'allow' | 'deny' = 'allow', isPrivate = false): HostRule {
  const parsed = parseHostRule({ host: text, private: isPrivate }, effect, ORIGIN);
  if (parsed.kind === 'error') throw new Error(parsed.message);
  return parsed.rule;
}

describe('canonical names', () => {
  it.each([
    ['Example.COM', 'example.com', 'case'],
    ['example.com.', 'example.com', 'one trailing dot'],
    ['bücher.example', 'xn--bcher-kva.example', 'punycode'],
    ['xn--bcher-kva.example', 'xn--bcher-kva.example', 'punycode as it is'],
    ['localhost', 'localhost', 'a single label'],
    ['a-1.b2', 'a-1.b2', 'digits and hyphens inside'],
  ])('%s is %s: %s', (text, name) => {
    expect(canonicalHostName(text)).toBe(name);
  });

  it.each([
    ['', 'nothing'],
    ['example.com..', 'two trailing dots'],
    ['.example.com', 'a leading dot'],
    ['a..b', 'an empty label'],
    ['-a.example', 'a label that begins with a hyphen'],
    ['a-.example', 'a label that ends with a hyphen'],
    ['a_b.example', 'an underscore is not LDH'],
    [`${'a'.repeat(64)}.example`, 'a label of 64'],
    [Array.from({ length: 64 }, () => 'abc').join('.'), 'over 253 in all'],
    ['exa mple.com', 'a space'],
    ['example.com\0.evil.example', 'NUL'],
    ['example.com\r\nHost: evil', 'CR and LF'],
    ['user@example.com', 'a user'],
    ['example%2ecom', 'a percent sign'],
    ['example.com/path', 'a path'],
    ['example.com:80', 'a port is not part of a name'],
    ['[::1]', 'an address in brackets'],
    ['127.0.0.1', 'an address'],
    ['1.2.3.4.5', 'a last label of digits'],
    ['a.0x7f', 'a last label that a resolver reads as hexadecimal'],
    ['2130706433', 'an address as one number'],
    ['ⓔxample。com', 'full-width forms turn into plain ones only through the library; the dot of it must not smuggle a label'],
  ])('refuses %j: %s', (text) => {
    const name = canonicalHostName(text);
    // The last row is allowed to be mapped, as long as what comes out is plain.
    if (name !== undefined) expect(name).toMatch(/^[a-z0-9.-]+$/);
    else expect(name).toBeUndefined();
    if (!text.startsWith('ⓔ')) expect(name).toBeUndefined();
  });
});

describe('rules', () => {
  it.each<readonly [string, 'allow' | 'deny', object, string]>([
    ['example.com', 'allow', { kind: 'name', host: 'example.com', ports: [80, 443] }, 'allow without a port is 80 and 443'],
    ['example.com', 'deny', { kind: 'name', host: 'example.com', ports: undefined }, 'deny without a port is every port'],
    ['github.com:22', 'allow', { kind: 'name', host: 'github.com', ports: [22] }, 'one port'],
    ['github.com:443,22', 'allow', { kind: 'name', host: 'github.com', ports: [22, 443] }, 'several ports, sorted'],
    ['*.Example.com', 'allow', { kind: 'name', host: '*.example.com', ports: [80, 443] }, 'a wildcard'],
    ['10.1.2.3/8', 'allow', { kind: 'cidr', host: '10.0.0.0/8', ports: [80, 443] }, 'host bits are cleared'],
    ['192.0.2.7:25', 'deny', { kind: 'cidr', host: '192.0.2.7/32', ports: [25] }, 'an address is a block of one'],
    ['2001:DB8::0/32', 'allow', { kind: 'cidr', host: '2001:db8::/32', ports: [80, 443] }, 'IPv6, canonical'],
    ['[2001:db8::1]:8443', 'allow', { kind: 'cidr', host: '2001:db8::1/128', ports: [8443] }, 'IPv6 with a port'],
  ])('%s to %s: %s', (text, effect, expected) => {
    expect(rule(text, effect)).toMatchObject(expected);
  });

  it.each([
    ['*', /`\*` alone/, 'everything is a default, not a rule'],
    ['*.', /is no host/, 'an empty name after the wildcard'],
    ['a.*.example', /is no host/, 'a wildcard inside'],
    ['*example.com', /is no host/, 'a wildcard that is no label'],
    ['example.com:0', /a port from 1 to 65535/, 'port zero'],
    ['example.com:http', /a port from 1 to 65535/, 'a port by name'],
    ['example.com:', /a port from 1 to 65535/, 'no port after the colon'],
    ['https://example.com', /is a URL/, 'a URL'],
    ['10.0.0.0/33', /is no host/, 'a prefix that is too long'],
    ['010.0.0.1', /is no host/, 'leading zeros, which some tools read as octal'],
    ['fe80::1%eth0', /is no host/, 'a zone'],
  ])('refuses %s', (text, message) => {
    const parsed = parseHostRule({ host: text }, 'allow', ORIGIN);
    expect(parsed.kind === 'error' ? parsed.message : '').toMatch(message);
  });

  it('refuses ports that are written twice', () => {
    expect(parseHostRule({ host: 'a.example:22', ports: [23] }, 'allow', ORIGIN).kind).toBe('error');
  });

  it.each([
    ['*.example.com', 'a.example.com', true, 'a name below'],
    ['*.example.com', 'a.b.example.com', true, 'two labels below'],
    ['*.example.com', '*.b.example.com', true, 'a narrower wildcard'],
    ['*.example.com', 'example.com', false, 'not the name itself'],
    ['*.example.com', 'badexample.com', false, 'not a name that ends alike'],
    ['*.b.example.com', '*.example.com', false, 'not a wider wildcard'],
    ['*.example.com', '*.example.com', true, 'itself'],
    ['10.0.0.0/8', '10.1.0.0/16', true, 'a nested block'],
    ['10.0.0.0/16', '10.0.0.0/8', false, 'not a wider block'],
    ['0.0.0.0/0', '::1', false, 'families never cover each other'],
    ['10.0.0.0/8', 'ten.example', false, 'a block covers no name'],
  ])('%s covers %s: %s (%s)', (outer, inner, covers) => {
    expect(coversHost(rule(outer), rule(inner))).toBe(covers);
  });

  it('a ceiling covers a grant by several rules, port by port, and private only by private', () => {
    const ceiling = [rule('*.example.com:22'), rule('a.example.com')];
    expect(coveredBy(rule('a.example.com:22,443'), ceiling)).toBe(true);
    expect(coveredBy(rule('b.example.com:22,443'), ceiling)).toBe(false);
    expect(coveredBy(rule('a.example.com', 'allow', true), ceiling)).toBe(false);
    expect(coveredBy(rule('a.example.com', 'deny'), ceiling)).toBe(false);
  });

  it('two rules meet in the narrower name, the common ports, and private only when both are', () => {
    expect(intersectHostRules(rule('*.example.com:22,443', 'allow', true), rule('a.example.com', 'allow'))).toMatchObject({
      host: 'a.example.com',
      ports: [443],
      private: false,
    });
    expect(intersectHostRules(rule('a.example.com:22'), rule('a.example.com:23'))).toBeUndefined();
    expect(intersectHostRules(rule('a.example'), rule('b.example'))).toBeUndefined();
    expect(intersectHostRules(rule('10.0.0.0/8'), rule('10.2.0.0/16'))).toMatchObject({ host: '10.2.0.0/16' });
  });

  it.each([
    ['example.com', 'allow'],
    ['example.com', 'deny'],
    ['*.example.com:22,8080', 'allow'],
    ['[2001:db8::1/128]:53', 'deny'],
    ['10.0.0.0/8', 'allow'],
  ] as const)('%s (%s) is written as it is read', (text, effect) => {
    const parsed = rule(text, effect);
    expect(rule(formatHostRule(parsed, effect), effect)).toEqual(parsed);
  });
});

describe('blocks', () => {
  it.each([
    ['::ffff:10.0.0.1', '::ffff:a00:1/128'],
    ['1:0:0:2:0:0:0:3', '1:0:0:2::3/128'],
    ['::', '::/128'],
    ['0:0:1::/48', '0:0:1::/48'],
    ['255.255.255.255/0', '0.0.0.0/0'],
  ])('%s is %s', (text, canonical) => {
    expect(parseCidr(text)).toBe(canonical);
  });

  it.each(['1.2.3', '1.2.3.4/', '1.2.3.4/a', '1.2.3.4/ 8', '::/129', 'g::', '', '1.2.3.4/08'])('%j is none', (text) => {
    expect(parseCidr(text)).toBeUndefined();
  });

  it('nest or lie apart', () => {
    expect(coversCidr('10.0.0.0/8', '10.255.255.255/32')).toBe(true);
    expect(coversCidr('10.0.0.0/8', '11.0.0.0/32')).toBe(false);
    expect(overlapCidr('10.0.0.0/8', '10.1.0.0/16')).toBe('10.1.0.0/16');
    expect(overlapCidr('10.1.0.0/16', '10.0.0.0/8')).toBe('10.1.0.0/16');
    expect(overlapCidr('10.0.0.0/8', '192.168.0.0/16')).toBeUndefined();
  });
});

describe('deciding', () => {
  const network = {
    allow: [rule('*.example.com'), rule('git.example.com:22'), rule('10.0.0.0/8:5432')],
    deny: [rule('secret.example.com', 'deny')],
    defaultAllow: false,
  };

  it.each([
    ['a.example.com', 443, true, 'a wildcard'],
    ['A.EXAMPLE.com.', 443, true, 'the name as a client may write it'],
    ['a.example.com', 22, false, 'a port that no rule names'],
    ['git.example.com', 22, true, 'a port of its own'],
    ['example.com', 443, false, 'the wildcard does not match the name itself'],
    ['secret.example.com', 443, false, 'a denial beats the wildcard'],
    ['secret.example.com', 8080, false, 'a denial without a port is every port'],
    ['10.1.2.3', 5432, true, 'an address by a block'],
    ['10.1.2.3', 443, false, 'a name rule never matches an address'],
    ['a.example.com\0', 443, false, 'NUL'],
    ['a.example.com', 0, false, 'no port'],
    ['a.example.com', 443.5, false, 'half a port'],
    ['[10.1.2.3]', 5432, true, 'brackets are taken off'],
    ['10.0.0.0/8', 5432, false, 'a block is no host'],
  ])('%j port %d: %s (%s)', (host, port, allowed) => {
    expect(decideHost(network, host, port).allowed).toBe(allowed);
  });

  it('names the most specific rule', () => {
    const decision = decideHost({ ...network, deny: [rule('*.example.com', 'deny'), rule('secret.example.com', 'deny')] }, 'secret.example.com', 443);
    expect(decision).toMatchObject({ allowed: false, by: 'rule', rule: { host: 'secret.example.com' } });
  });
});
