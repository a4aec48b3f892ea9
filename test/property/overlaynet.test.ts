import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import dnsPacket from 'dns-packet';
import { createHelloReader, readClientHello } from '../../src/overlaynet/client-hello.ts';
import { decide, decideAddress, nameCanBeAllowed, type OverlayRules } from '../../src/overlaynet/decide.ts';
import { encodeDnsAnswer, encodeDnsError, readDnsMessage } from '../../src/overlaynet/dns-message.ts';
import { createHelloWatch } from '../../src/overlaynet/hello-watch.ts';
import { readRequest } from '../../src/overlaynet/http-request.ts';
import { answerQuestion } from '../../src/overlaynet/resolver.ts';
import { sniff } from '../../src/overlaynet/sniff.ts';
import { readSocks } from '../../src/overlaynet/socks.ts';
import { createSyntheticAddresses, SYNTHETIC_POOLS } from '../../src/overlaynet/synthetic.ts';
import { createTraffic } from '../../src/overlaynet/traffic.ts';
import { proxyFor, readProxyVariables } from '../../src/overlaynet/upstream-proxy.ts';
import { canonicalHost, decideHost } from '../../src/policy/decide.ts';
import { helloMessage, records } from '../support/client-hello.ts';
import { hostRule } from '../support/overlay-lab.host.ts';

const names = fc.constantFrom(
  'a.test',
  'b.test',
  'x.a.test',
  'y.x.a.test',
  '*.a.test',
  '*.test',
  '10.0.0.0/8',
  '93.184.0.0/16',
  '::/0',
  '0.0.0.0/0',
  '64:ff9b::/96',
);
const ports = fc.option(fc.uniqueArray(fc.constantFrom(22, 80, 443, 5432), { minLength: 1, maxLength: 3 }), { nil: undefined });
const raw = fc.record({ host: names, ports, private: fc.boolean() }).map(({ ports: list, ...rest }) => (list === undefined ? rest : { ...rest, ports: list }));
const ruleSet: fc.Arbitrary<OverlayRules> = fc.record({
  allow: fc.array(
    raw.map((one) => hostRule(one, 'allow')),
    { maxLength: 5 },
  ),
  deny: fc.array(
    raw.map((one) => hostRule(one, 'deny')),
    { maxLength: 4 },
  ),
  defaultAllow: fc.boolean(),
  hostPorts: fc.uniqueArray(fc.constantFrom(22, 5432), { maxLength: 2 }),
});
const destinations = fc
  .constantFrom(
    'a.test',
    'b.test',
    'x.a.test',
    'y.x.a.test',
    'c.other',
    'localhost',
    '10.1.2.3',
    '93.184.216.34',
    '8.8.8.8',
    '127.0.0.1',
    '::1',
    '64:ff9b::a00:1',
    '2606:4700::1',
    '0.0.0.0',
  )
  .map((text) => canonicalHost(text) ?? { kind: 'name' as const, host: text });
const questions = fc.record({
  destination: destinations,
  port: fc.constantFrom(22, 80, 443, 5432, 9999),
  protocol: fc.constantFrom('tcp' as const, 'tls' as const, 'http' as const),
  claim: fc.option(fc.oneof(fc.constantFrom('a.test', 'A.TEST.', 'b.test', 'a.test:80', '10.1.2.3'), fc.string()), { nil: undefined }),
});
const addresses = fc.constantFrom('10.1.2.3', '93.184.216.34', '127.0.0.1', '::1', '169.254.169.254', '64:ff9b::a00:1', '8.8.8.8', '::ffff:10.0.0.1');

describe('decide', () => {
  test('the order of rules changes nothing', () => {
    fc.assert(
      fc.property(ruleSet, questions, addresses, (rules, question, address) => {
        const turned = { ...rules, allow: [...rules.allow].reverse(), deny: [...rules.deny].reverse() };
        expect(decide(turned, question).allowed).toBe(decide(rules, question).allowed);
        expect(decideAddress(turned, question.destination, question.port, address) === undefined).toBe(
          decideAddress(rules, question.destination, question.port, address) === undefined,
        );
      }),
      { numRuns: 500 },
    );
  });

  test('narrowing never widens: fewer grants, more denials, a closed default, fewer ports of the host', () => {
    const narrower = fc.record({
      keep: fc.array(fc.boolean(), { minLength: 5, maxLength: 5 }),
      more: fc.array(
        raw.map((one) => hostRule(one, 'deny')),
        { maxLength: 2 },
      ),
      close: fc.boolean(),
    });
    fc.assert(
      fc.property(ruleSet, narrower, questions, addresses, (rules, { keep, more, close }, question, address) => {
        const narrowed: OverlayRules = {
          allow: rules.allow.filter((_, index) => keep[index]),
          deny: [...rules.deny, ...more],
          defaultAllow: rules.defaultAllow && !close,
          hostPorts: close ? [] : rules.hostPorts,
        };
        if (decide(narrowed, question).allowed) expect(decide(rules, question).allowed).toBe(true);
        if (decideAddress(narrowed, question.destination, question.port, address) === undefined) {
          expect(decideAddress(rules, question.destination, question.port, address)).toBeUndefined();
        }
        if (question.destination.kind === 'name' && nameCanBeAllowed(narrowed, question.destination.host)) {
          expect(nameCanBeAllowed(rules, question.destination.host)).toBe(true);
        }
      }),
      { numRuns: 1000 },
    );
  });

  test('total on any text, and never more than the policy says', () => {
    fc.assert(
      fc.property(ruleSet, fc.string({ unit: 'binary' }), fc.integer({ min: -1, max: 70_000 }), fc.string({ unit: 'binary' }), (rules, text, port, claim) => {
        const host = canonicalHost(text);
        if (host === undefined) return;
        const decision = decide(rules, { destination: host, port, protocol: 'http', claim });
        if (decision.allowed && decision.to === 'network') expect(decideHost(rules, text, port).allowed).toBe(true);
      }),
    );
    fc.assert(
      fc.property(ruleSet, questions, (rules, question) => {
        const decision = decide(rules, question);
        if (decision.allowed && decision.to === 'network') expect(decideHost(rules, question.destination.host, question.port).allowed).toBe(true);
        if (decision.allowed && question.destination.kind === 'name' && decision.to === 'network') {
          expect(nameCanBeAllowed(rules, question.destination.host)).toBe(true);
        }
      }),
      { numRuns: 1000 },
    );
  });
});

const MESSAGE = helloMessage({
  serverNames: [['good.test']],
  extensions: [
    { type: 43, data: Buffer.from([2, 3, 4]) },
    { type: 0xfe0d, data: Buffer.alloc(40) },
  ],
});

/** A real message with some bytes changed, cut or repeated. */
function mutated(bytes: Buffer): fc.Arbitrary<Buffer> {
  return fc
    .record({
      changes: fc.array(fc.tuple(fc.nat(bytes.length - 1), fc.nat(255)), { maxLength: 6 }),
      from: fc.nat(bytes.length),
      tail: fc.uint8Array({ maxLength: 20 }),
    })
    .map(({ changes, from, tail }) => {
      const copy = Buffer.from(bytes);
      for (const [at, value] of changes) copy[at] = value;
      return Buffer.concat([copy.subarray(0, from === 0 ? copy.length : from), tail]);
    });
}

describe('parsers survive any bytes', () => {
  const any = fc.uint8Array({ maxLength: 600 }).map((bytes) => Buffer.from(bytes));

  test('a ClientHello is the same however records and segments cut it', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 1, max: 300 }), (recordSize, segmentSize) => {
        const stream = records(MESSAGE, recordSize);
        const reader = createHelloReader();
        let read = reader.push(Buffer.alloc(0));
        for (let at = 0; at < stream.length; at += segmentSize) {
          expect(read.kind).toBe('more');
          read = reader.push(stream.subarray(at, at + segmentSize));
        }
        expect(read).toEqual({ kind: 'hello', hello: { serverName: 'good.test', encryptedHello: true }, bytes: stream.length });
      }),
    );
  });

  test('TLS', () => {
    fc.assert(
      fc.property(fc.oneof(any, mutated(records(MESSAGE)), mutated(records(MESSAGE, 7))), fc.integer({ min: 1, max: 50 }), (bytes, size) => {
        const whole = readClientHello(bytes);
        const reader = createHelloReader();
        let last = reader.push(Buffer.alloc(0));
        for (let at = 0; at < bytes.length && last.kind === 'more'; at += size) last = reader.push(bytes.subarray(at, at + size));
        expect(last.kind).toBe(whole.kind);
        const watch = createHelloWatch(() => undefined);
        watch.fromServer(bytes);
        watch.fromClient(bytes);
      }),
      { numRuns: 1000 },
    );
  });

  test('DNS', () => {
    const query = dnsPacket.encode({
      type: 'query',
      id: 9,
      questions: [{ type: 'A', name: 'x.good.test' }],
      additionals: [{ type: 'OPT', name: '.', udpPayloadSize: 1232, extendedRcode: 0, ednsVersion: 0, flags: 0, flag_do: false, options: [] }],
    });
    const rules: OverlayRules = { allow: [hostRule('*.good.test', 'allow')], deny: [], defaultAllow: false, hostPorts: [] };
    fc.assert(
      fc.property(fc.oneof(any, mutated(query)), (bytes) => {
        const read = readDnsMessage(bytes);
        if (read.kind === 'error') expect(encodeDnsError(read.id, read.rcode)).toHaveLength(12);
        if (read.kind !== 'question') return;
        const lookup = answerQuestion(rules, createSyntheticAddresses(SYNTHETIC_POOLS, 100), { v4: true, v6: true }, read.question);
        const answer = encodeDnsAnswer(read.question, lookup.answer);
        expect(answer.length).toBeLessThanOrEqual(512);
        expect(dnsPacket.decode(answer).id).toBe(read.question.id);
      }),
      { numRuns: 1000 },
    );
  });

  test('SOCKS', () => {
    const request = Buffer.concat([Buffer.from([5, 1, 0, 3, 9]), Buffer.from('good.test'), Buffer.from([1, 187])]);
    fc.assert(
      fc.property(
        fc.oneof(any, mutated(request)),
        fc.constantFrom('greeting' as const, 'password' as const, 'request' as const),
        fc.boolean(),
        (bytes, phase, password) => {
          const read = readSocks(bytes, phase, password);
          if (read.kind === 'reply' || read.kind === 'connect') expect(read.bytes).toBeLessThanOrEqual(bytes.length);
          if (read.kind === 'more') expect(bytes.length).toBeLessThan(1200);
        },
      ),
      { numRuns: 1000 },
    );
  });

  test('HTTP heads and first bytes', () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.constantFrom('GET', 'CONNECT', '/', '*', 'http://a.test/', 'a.test:80', 'Host', 'Content-Length', 'Transfer-Encoding', 'chunked', '5'),
    );
    fc.assert(
      fc.property(text, text, fc.constantFrom('1.0', '1.1', '2.0', '0.9'), fc.array(text, { maxLength: 12 }), (method, url, httpVersion, rawHeaders) => {
        const read = readRequest({ method, url, httpVersion, rawHeaders });
        // Node's client throws at such a path.
        if (read.kind === 'ok') expect(read.path).not.toMatch(/[^\x21-\xff]/);
      }),
      { numRuns: 1000 },
    );
    fc.assert(
      fc.property(fc.oneof(any, mutated(Buffer.from('GET / HTTP/1.1\r\nHost: a\r\n\r\n'))), fc.constantFrom(80, 443, 22), (bytes, port) => {
        expect(['more', 'tls', 'http', 'tcp']).toContain(sniff(bytes, port));
      }),
    );
  });

  test('what a client says first is taken the same way however it is cut', () => {
    fc.assert(
      fc.property(fc.oneof(any, mutated(Buffer.from('GET / HTTP/1.1\r\nHost: a\r\n\r\n'))), fc.constantFrom(80, 443, 22), (bytes, port) => {
        let first = 'more';
        for (let at = 1; at <= bytes.length && first === 'more'; at += 1) first = sniff(bytes.subarray(0, at), port);
        if (first === 'tcp') expect(sniff(bytes, port)).toBe('tcp');
      }),
    );
  });

  test('proxy variables', () => {
    fc.assert(
      fc.property(fc.string(), fc.string(), fc.string(), (http, https, none) => {
        const read = readProxyVariables({ HTTP_PROXY: http, https_proxy: https, NO_PROXY: none });
        if (read.kind === 'ok') proxyFor(read.proxies, 'tls', { kind: 'name', host: 'a.test' }, 443);
      }),
    );
  });
});

test('names have addresses of their own, the same each time, within the pools', () => {
  fc.assert(
    fc.property(fc.array(fc.stringMatching(/^[a-z]{1,6}\.test$/), { maxLength: 60 }), (wanted) => {
      const synthetic = createSyntheticAddresses(SYNTHETIC_POOLS, 40);
      const given = new Map<string, string>();
      for (const name of wanted) {
        const found = synthetic.addressesOf(name);
        if (found === undefined) {
          expect(synthetic.size).toBe(40);
          continue;
        }
        expect(given.get(name) ?? found.v4).toBe(found.v4);
        given.set(name, found.v4);
        expect([synthetic.nameOf(found.v4), synthetic.nameOf(found.v6), synthetic.covers(found.v4), synthetic.covers(found.v6)]).toEqual([
          name,
          name,
          true,
          true,
        ]);
      }
      expect(new Set(given.values()).size).toBe(given.size);
    }),
  );
});

test('a rate is kept over any sequence of pieces', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 100_000 }), { minLength: 1, maxLength: 50 }), (pieces) => {
      let now = 0;
      const traffic = createTraffic({ total: { bytesPerSecond: 10_000 }, perRule: {} }, () => now);
      const lease = traffic.open('rule');
      if ('over' in lease) throw new Error(lease.over);
      let sent = 0;
      for (const piece of pieces) {
        const taken = lease.take(piece);
        sent += piece;
        if (taken.kind === 'wait') now += taken.ms;
      }
      // One piece may run ahead, and a second's worth is there at the start.
      expect(sent - (pieces.at(-1) ?? 0)).toBeLessThanOrEqual(10_000 + (now * 10_000) / 1000 + 1);
    }),
  );
});
