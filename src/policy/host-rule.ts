import { domainToASCII } from 'node:url';
import type { HostRule, Origin } from '../core/job.ts';
import { coversCidr, overlapCidr, parseCidr } from './cidr.ts';
import type { RawHost } from './layer.ts';

export type HostRuleResult = { readonly kind: 'ok'; readonly rule: HostRule } | { readonly kind: 'error'; readonly message: string; readonly hint?: string };

/** Ports of an allow rule that names none. */
export const DEFAULT_PORTS: readonly number[] = [80, 443];

const LABEL = /^(?!-)[a-z0-9-]{1,63}(?<!-)$/;

/**
 * The canonical form of a host name: lower case, punycode, no trailing dot, letters digits and hyphens in labels of at most 63, at most 253
 * in all. Undefined for anything else, also for an address. Names with an underscore are no host names (RFC 952, RFC 1123).
 */
export function canonicalHostName(text: string): string | undefined {
  // Refused before any conversion, so that no mapping can turn them into something that matches.
  if (text === '' || /[\0-\x20\x7f@%/\\:?#[\]]/.test(text)) return undefined;
  const trimmed = text.endsWith('.') ? text.slice(0, -1) : text;
  const ascii = /^[\x21-\x7e]+$/.test(trimmed) ? trimmed.toLowerCase() : domainToASCII(trimmed);
  if (ascii === '' || ascii.length > 253) return undefined;
  const labels = ascii.split('.');
  if (!labels.every((label) => LABEL.test(label))) return undefined;
  // A last label of digits is read as an IPv4 address by resolvers (WHATWG URL, inet_aton).
  return /^(?:[0-9]+|0x[0-9a-f]*)$/.test(labels.at(-1) ?? '') ? undefined : ascii;
}

/**
 * Reads `name`, `*.name`, an address or a CIDR block, each with an optional `:port`. An allow rule without a port means 80 and 443, a deny rule
 * without one every port. The origin is carried through.
 */
export function parseHostRule(raw: RawHost, effect: 'allow' | 'deny', origin: Origin): HostRuleResult {
  const split = splitPort(raw.host);
  if (split.kind === 'error') return split;
  const { host } = split;
  if (split.ports !== undefined && raw.ports !== undefined) return { kind: 'error', message: `${quote(raw.host)} names a port and so does \`ports\`` };
  const written = split.ports ?? raw.ports;
  const ports = written === undefined ? (effect === 'allow' ? DEFAULT_PORTS : undefined) : [...new Set(written)].sort((a, b) => a - b);
  const isPrivate = raw.private ?? false;
  const cidr = parseCidr(host);
  if (cidr !== undefined) return { kind: 'ok', rule: { kind: 'cidr', host: cidr, ports, private: isPrivate, origin } };
  if (host === '*') {
    return {
      kind: 'error',
      message: '`*` alone is no host rule',
      hint: effect === 'allow' ? 'write `default_action: allow` to open the whole network' : 'write `default_action: deny`',
    };
  }
  const wildcard = host.startsWith('*.');
  const name = canonicalHostName(wildcard ? host.slice(2) : host);
  if (name === undefined) {
    return {
      kind: 'error',
      message: `${quote(raw.host)} is no host: expected a name, *.name, an address or a block such as 10.0.0.0/8, each with an optional :port`,
    };
  }
  return { kind: 'ok', rule: { kind: 'name', host: wildcard ? `*.${name}` : name, ports, private: isPrivate, origin } };
}

/** `example.com:22`, `example.com:22,443`, `[::1]:22`, `10.0.0.0/8`: host and ports apart. */
function splitPort(
  text: string,
): { readonly kind: 'ok'; readonly host: string; readonly ports: readonly number[] | undefined } | Extract<HostRuleResult, { kind: 'error' }> {
  if (text.includes('://')) {
    return { kind: 'error', message: `${quote(text)} is a URL`, hint: `write the host alone: ${/:\/\/([^/?#]*)/.exec(text)?.[1] ?? 'example.com'}` };
  }
  const bracket = /^\[([^\]]*)\](?::(.*))?$/.exec(text);
  const plain = /^([^:]*):([^:]*)$/.exec(text);
  const match = bracket ?? plain;
  if (match === null) {
    return { kind: 'ok', host: text, ports: undefined };
  }
  const [, host = '', portText] = match;
  if (portText === undefined) return { kind: 'ok', host, ports: undefined };
  const ports = portText.split(',').map((port) => (/^[1-9][0-9]{0,4}$/.test(port) ? Number(port) : Number.NaN));
  if (!ports.every((port) => port <= 65535)) return { kind: 'error', message: `${quote(text)}: expected a port from 1 to 65535 after the colon` };
  return { kind: 'ok', host, ports };
}

/** How a rule is written: `github.com:22`, `10.0.0.0/8`. Parsing it with the same effect gives the same rule, but for `private` and the origin. */
export function formatHostRule(rule: Pick<HostRule, 'kind' | 'host' | 'ports'>, effect: 'allow' | 'deny'): string {
  if (rule.ports === undefined || (effect === 'allow' && samePorts(rule.ports, DEFAULT_PORTS))) return rule.host;
  const host = rule.kind === 'cidr' && rule.host.includes(':') ? `[${rule.host}]` : rule.host;
  return `${host}:${rule.ports.join(',')}`;
}

/** True when every name that `inner` matches is matched by `outer`. */
export function coversHost(outer: Pick<HostRule, 'kind' | 'host'>, inner: Pick<HostRule, 'kind' | 'host'>): boolean {
  if (outer.kind !== inner.kind) return false;
  if (outer.kind === 'cidr') return coversCidr(outer.host, inner.host);
  if (outer.host === inner.host) return true;
  return outer.host.startsWith('*.') && inner.host.replace(/^\*/, '').endsWith(outer.host.slice(1)) && inner.host.length > outer.host.length - 1;
}

/** True when the rules of a ceiling cover a grant whole: its host, each of its ports, and private addresses if it opens them. */
export function coveredBy(grant: HostRule, ceiling: readonly HostRule[]): boolean {
  const hosts = ceiling.filter((rule) => coversHost(rule, grant) && (rule.private || !grant.private));
  if (grant.ports === undefined) return hosts.some((rule) => rule.ports === undefined);
  return grant.ports.every((port) => hosts.some((rule) => rule.ports === undefined || rule.ports.includes(port)));
}

/** What two rules both match, or undefined when that is nothing. The origin is that of `a`. */
export function intersectHostRules(a: HostRule, b: HostRule): HostRule | undefined {
  if (a.kind !== b.kind) return undefined;
  const host = a.kind === 'cidr' ? overlapCidr(a.host, b.host) : coversHost(a, b) ? b.host : coversHost(b, a) ? a.host : undefined;
  const ports = intersectPorts(a.ports, b.ports);
  if (host === undefined || ports === 'none') return undefined;
  return { kind: a.kind, host, ports, private: a.private && b.private, origin: a.origin };
}

function intersectPorts(a: readonly number[] | undefined, b: readonly number[] | undefined): readonly number[] | undefined | 'none' {
  if (a === undefined || b === undefined) return a ?? b;
  const both = a.filter((port) => b.includes(port));
  return both.length === 0 ? 'none' : both;
}

/** True when a rule matches a canonical name or address, and the port. */
export function matchesHost(rule: HostRule, host: string, port: number): boolean {
  if (rule.ports !== undefined && !rule.ports.includes(port)) return false;
  const cidr = parseCidr(host);
  if (rule.kind === 'cidr') return cidr !== undefined && coversCidr(rule.host, cidr);
  return cidr === undefined && coversHost(rule, { kind: 'name', host });
}

function samePorts(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((port, index) => port === b[index]);
}

function quote(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 77)}...` : text);
}
