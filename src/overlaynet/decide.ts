import type { EffectivePermissions, HostRule, Origin } from '../core/job.ts';
import { canonicalAddress } from '../policy/cidr.ts';
import { canonicalHost, decideHost, denialOf, grantsOf, type CanonicalHost } from '../policy/decide.ts';
import { formatHostRule, matchesHost } from '../policy/host-rule.ts';
import { formatOrigin } from '../policy/rules.ts';
import { addressForms, isSpecialBlock, specialRange } from '../policy/special-address.ts';
import { readAuthority } from './authority.ts';

/** The rules of one job's network, as composed by src/policy. */
export interface OverlayRules extends Pick<EffectivePermissions['network'], 'allow' | 'deny' | 'defaultAllow'> {
  /** Where the default is written; undefined: nobody wrote one. */
  readonly defaultOrigin?: Origin | undefined;
  /** Ports of the host's own loopback that the job reaches at its loopback addresses. */
  readonly hostPorts: readonly number[];
}

/** One connection, or one request on it, that somebody wants to make. */
export interface ConnectionQuestion {
  /** The name that the address stands for, the target that a proxy was given, or the address itself. */
  readonly destination: CanonicalHost;
  readonly port: number;
  /** What is spoken, as far as it is known: `tcp` is anything. */
  readonly protocol: 'tcp' | 'tls' | 'http';
  /** The SNI or Host, just as it was received. Undefined: there is none, and the destination alone counts. */
  readonly claim?: string | undefined;
}

/** Why a connection was denied: a rule, no rule, a name that disagrees, an address that the name may not lead to, a form that is no name. */
export type DenialCause = 'rule' | 'default' | 'claim' | 'address' | 'form';

export type ConnectionDecision =
  | {
      readonly allowed: true;
      /** The deciding rule with its place. */
      readonly rule: string;
      /** Undefined: allowed by default, or a port of the host. */
      readonly hostRule: HostRule | undefined;
      /** `host_port`: to this port of the host's loopback, and nowhere else. */
      readonly to: 'network' | 'host_port';
    }
  | Denial;

export interface Denial {
  readonly allowed: false;
  readonly cause: DenialCause;
  /** The deciding rule with its place, or what disagreed. */
  readonly rule: string;
}

/**
 * Whether a connection may be made. The one decision for every way in: transparent connections, TLS, each HTTP request, CONNECT, SOCKS. Pure and
 * total; the order of rules changes nothing, a denial beats every grant, and taking rules away or adding denials never allows more.
 * `decideAddress` is asked besides for each address that a name leads to.
 */
export function decide(rules: OverlayRules, question: ConnectionQuestion): ConnectionDecision {
  const { destination, port } = question;
  const base = decideDestination(rules, destination, port);
  return base.allowed ? (claimDenial(rules, question) ?? base) : base;
}

function decideDestination(rules: OverlayRules, { kind, host }: CanonicalHost, port: number): ConnectionDecision {
  if (isOwnLoopback(host) && rules.hostPorts.includes(port)) {
    const denial = denialOfForms(rules, host, port);
    return denial === undefined ? { allowed: true, rule: `host_ports: ${String(port)}`, hostRule: undefined, to: 'host_port' } : byRule(denial);
  }
  const decision = decideHost(rules, host, port);
  switch (decision.by) {
    case 'name':
      return { allowed: false, cause: 'form', rule: decision.reason };
    case 'default':
      if (!decision.allowed) return { allowed: false, cause: 'default', rule: defaultWords(rules) };
      break;
    case 'rule':
      if (!decision.allowed) return byRule(decision.rule);
      break;
  }
  if (kind === 'address') {
    const denial = decideAddress(rules, { kind, host }, port, host);
    if (denial !== undefined) return denial;
  }
  return decision.by === 'rule'
    ? { allowed: true, rule: ruleWords(decision.rule, 'allow'), hostRule: decision.rule, to: 'network' }
    : { allowed: true, rule: defaultWords(rules), hostRule: undefined, to: 'network' };
}

/**
 * Whether an address may be connected to for a destination that `decide` allowed; undefined: it may. Denials of addresses hold for what a name
 * leads to. An address that isn't a plain public one needs a grant that says `private: true`, or one that names nothing but such addresses.
 */
export function decideAddress(rules: OverlayRules, destination: CanonicalHost, port: number, address: string): Denial | undefined {
  const denial = denialOfForms(rules, address, port);
  if (denial !== undefined) return byRule(denial);
  const special = specialRange(address);
  if (special === undefined) return undefined;
  const opened =
    special.never !== true &&
    grantsOf(rules, destination.host, port).some(
      (rule) => rule.private || (destination.kind === 'address' && rule.kind === 'cidr' && isSpecialBlock(rule.host)),
    );
  const where = destination.kind === 'name' ? `${destination.host} leads to ${address}` : address;
  return opened ? undefined : { allowed: false, cause: 'address', rule: `${where} (${special.name}); a rule with \`private: true\` would be needed` };
}

/** What SNI or Host says must be the name that was connected to. Where only an address is known, it must be a name that no rule denies. */
function claimDenial(rules: OverlayRules, { destination, port, protocol, claim }: ConnectionQuestion): Denial | undefined {
  if (claim === undefined || protocol === 'tcp') return undefined;
  const word = protocol === 'tls' ? 'SNI' : 'Host';
  const said = protocol === 'http' ? readAuthority(claim) : readServerName(claim);
  if (said === undefined) return { allowed: false, cause: 'form', rule: `${word} ${shown(claim)} is no host` };
  if (said.port !== undefined && said.port !== port) {
    return { allowed: false, cause: 'claim', rule: `${word} names port ${String(said.port)}, the connection is to ${destination.host}:${String(port)}` };
  }
  if (said.host.host === destination.host) return undefined;
  if (destination.kind === 'name' || said.host.kind === 'address') {
    return { allowed: false, cause: 'claim', rule: `${word} ${said.host.host} is not ${destination.host}` };
  }
  const denial = denialOf(rules, said.host.host, port);
  return denial === undefined ? undefined : byRule(denial);
}

function readServerName(claim: string): { readonly host: CanonicalHost; readonly port: undefined } | undefined {
  const host = canonicalHost(claim);
  return host === undefined ? undefined : { host, port: undefined };
}

/** True when a rule allows some port of the name: other names have no address in the job's network. */
export function nameCanBeAllowed(rules: OverlayRules, name: string): boolean {
  const denials = rules.deny.filter((rule) => rule.kind === 'name' && matchesHost({ ...rule, ports: undefined }, name, 1));
  if (denials.some((rule) => rule.ports === undefined)) return false;
  if (rules.defaultAllow) return new Set(denials.flatMap((rule) => rule.ports ?? [])).size < 65535;
  return rules.allow.some(
    (rule) =>
      rule.kind === 'name' &&
      matchesHost({ ...rule, ports: undefined }, name, 1) &&
      (rule.ports === undefined || rule.ports.some((port) => !denials.some((denial) => denial.ports?.includes(port) === true))),
  );
}

/** Why a name has no address: the rule that denies all of it, or the default. */
export function nameDenial(rules: OverlayRules, name: string): Denial {
  const denial = denialOf({ deny: rules.deny.filter((rule) => rule.ports === undefined) }, name, 443);
  return denial === undefined ? { allowed: false, cause: 'default', rule: defaultWords(rules) } : byRule(denial);
}

/** True for what the job calls itself. */
export function isOwnLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (canonicalAddress(host) === host && host.startsWith('127.'));
}

function denialOfForms(rules: OverlayRules, host: string, port: number): HostRule | undefined {
  for (const form of [host, ...addressForms(host)]) {
    const denial = denialOf(rules, form, port);
    if (denial !== undefined) return denial;
  }
  return undefined;
}

function byRule(rule: HostRule): Denial {
  return { allowed: false, cause: 'rule', rule: ruleWords(rule, 'deny') };
}

function ruleWords(rule: HostRule, effect: 'allow' | 'deny'): string {
  return `${formatOrigin(rule.origin)} ${effect} ${formatHostRule(rule, effect)}`;
}

function defaultWords({ defaultAllow, defaultOrigin }: OverlayRules): string {
  const words = `default_action: ${defaultAllow ? 'allow' : 'deny'}`;
  if (defaultOrigin === undefined) return words;
  return defaultOrigin.layer === 'flag' ? formatOrigin(defaultOrigin) : `${formatOrigin(defaultOrigin)} ${words}`;
}

function shown(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 77)}...` : text);
}
