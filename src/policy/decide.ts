import type { EffectivePermissions, HostRule, PathRule } from '../core/job.ts';
import { canonicalAddress } from './cidr.ts';
import { canonicalHostName, matchesHost } from './host-rule.ts';
import { bySpecificity, compileMatcher, isWithin } from './path-rule.ts';

/** Why a connection may or may not be made. `rule` is the one that decides; with `default` there is none. */
export type HostDecision =
  | { readonly allowed: true; readonly by: 'rule'; readonly rule: HostRule }
  | { readonly allowed: true; readonly by: 'default' }
  | { readonly allowed: false; readonly by: 'rule'; readonly rule: HostRule }
  | { readonly allowed: false; readonly by: 'default' }
  | { readonly allowed: false; readonly by: 'name'; readonly reason: string };

/** A host in the one form that rules are held against. */
export interface CanonicalHost {
  readonly kind: 'name' | 'address';
  /** Canonical name, or canonical address. */
  readonly host: string;
}

/**
 * Reads a host as a job writes it: a name (any case, a trailing dot, Unicode), an address, also in brackets. Undefined for
 * everything else: NUL, CR, LF, `%00`, a zone, short and octal forms of IPv4, a name with an underscore.
 */
export function canonicalHost(text: string): CanonicalHost | undefined {
  const inner = /^\[(.*)\]$/.exec(text)?.[1] ?? text;
  const address = canonicalAddress(inner);
  if (address !== undefined) return { kind: 'address', host: address };
  const name = canonicalHostName(text);
  return name === undefined ? undefined : { kind: 'name', host: name };
}

type HostRules = Pick<EffectivePermissions['network'], 'allow' | 'deny' | 'defaultAllow'>;

/**
 * Decides a host (a name or an address, as the job gave it) and a port. Total: what isn't a canonical host is refused. A denial beats every grant; the order of rules changes nothing. Addresses that
 * a name leads to are judged when it is dialled, not here.
 */
export function decideHost(network: HostRules, host: string, port: number): HostDecision {
  const name = canonicalHost(host)?.host;
  if (name === undefined || !Number.isInteger(port) || port < 1 || port > 65535) {
    return { allowed: false, by: 'name', reason: 'not a host name or address, and a port from 1 to 65535' };
  }
  const denial = denialOf(network, name, port);
  if (denial !== undefined) return { allowed: false, by: 'rule', rule: denial };
  const grant = mostSpecificHost(grantsOf(network, name, port));
  if (grant !== undefined) return { allowed: true, by: 'rule', rule: grant };
  return { allowed: network.defaultAllow, by: 'default' };
}

/** The rule that denies a canonical host, if one does. */
export function denialOf(network: Pick<HostRules, 'deny'>, host: string, port: number): HostRule | undefined {
  return mostSpecificHost(network.deny.filter((rule) => matchesHost(rule, host, port)));
}

/** Every grant that covers a canonical host. */
export function grantsOf(network: Pick<HostRules, 'allow'>, host: string, port: number): readonly HostRule[] {
  return network.allow.filter((rule) => matchesHost(rule, host, port));
}

/** The longest name or prefix decides which rule is named; ties are broken by text, so that order changes nothing. */
function mostSpecificHost(rules: readonly HostRule[]): HostRule | undefined {
  const weight = (rule: HostRule): number => (rule.kind === 'cidr' ? Number(rule.host.slice(rule.host.lastIndexOf('/') + 1)) : rule.host.length);
  return [...rules].sort(
    (a, b) =>
      weight(b) - weight(a) ||
      compareText(a.host, b.host) ||
      (a.ports?.length ?? 1e6) - (b.ports?.length ?? 1e6) ||
      compareText(String(a.ports), String(b.ports)),
  )[0];
}

export type ReadDecision =
  | { readonly decision: 'visible'; readonly rule?: PathRule; readonly why: 'workspace' | 'rule' | 'whole system' | 'home copy' }
  | { readonly decision: 'hidden'; readonly rule?: PathRule; readonly why: 'rule' | 'secret name' | 'private home' }
  /** A glob for private keys matches: the content decides. */
  | { readonly decision: 'hidden'; readonly rule: PathRule; readonly why: 'if it holds a private key' }
  /** Visible when it belongs to the system or to a toolchain that PATH reaches. */
  | { readonly decision: 'projected' };

/** Decides whether a path can be read. Total. A denial beats every grant, whatever the order of rules. */
export function decideRead(
  job: {
    readonly workspace: string;
    readonly home: string;
    readonly permissions: Pick<EffectivePermissions, 'fileRead' | 'fileWrite'> & Partial<Pick<EffectivePermissions, 'credentials'>>;
  },
  path: string,
): ReadDecision {
  const { fileRead, fileWrite } = job.permissions;
  const denial = firstMatch(fileRead.deny, path);
  if (denial !== undefined) return { decision: 'hidden', rule: denial, why: 'rule' };
  const names = fileRead.secretNames;
  if (names !== undefined && firstMatch(names.except, path) === undefined) {
    const secret = firstMatch(names.always, path);
    if (secret !== undefined) return { decision: 'hidden', rule: secret, why: 'secret name' };
    const key = firstMatch(names.privateKeys, path);
    if (key !== undefined) return { decision: 'hidden', rule: key, why: 'if it holds a private key' };
  }
  if (isWithin(path, job.workspace) || fileWrite.stage.some((root) => isWithin(path, root))) return { decision: 'visible', why: 'workspace' };
  const grant = firstMatch([...fileRead.allow, ...fileWrite.direct], path);
  if (grant !== undefined) return { decision: 'visible', rule: grant, why: 'rule' };
  const logins = (job.permissions.credentials?.logins ?? []).map(({ path: pattern, origin }): PathRule => ({ pattern, literal: true, origin }));
  const copy = firstMatch([...(fileRead.homeCopies ?? []), ...logins], path);
  if (copy !== undefined) return { decision: 'visible', rule: copy, why: 'home copy' };
  if (fileRead.root === 'host') return { decision: 'visible', why: 'whole system' };
  return isWithin(path, job.home) ? { decision: 'hidden', why: 'private home' } : { decision: 'projected' };
}

export type WriteDecision =
  | { readonly decision: 'staged' }
  | { readonly decision: 'direct'; readonly rule: PathRule }
  | { readonly decision: 'private'; readonly why: 'home' | 'temporary' }
  | { readonly decision: 'denied'; readonly rule?: PathRule; readonly why: 'rule' | 'hidden' | 'read-only' };

/** Decides where a write goes. Total. Hidden is also unwritable. */
export function decideWrite(
  job: { readonly workspace: string; readonly home: string; readonly permissions: Pick<EffectivePermissions, 'fileRead' | 'fileWrite'> },
  path: string,
): WriteDecision {
  const { fileWrite } = job.permissions;
  const denial = firstMatch(fileWrite.deny, path);
  if (denial !== undefined) return { decision: 'denied', rule: denial, why: 'rule' };
  const read = decideRead(job, path);
  // A private home hides what is in the real one; the job's own files there are its own.
  if (read.decision === 'hidden' && read.why !== 'private home' && read.why !== 'if it holds a private key') {
    return { decision: 'denied', ...(read.rule === undefined ? {} : { rule: read.rule }), why: 'hidden' };
  }
  const direct = firstMatch(fileWrite.direct, path);
  if (direct !== undefined) return { decision: 'direct', rule: direct };
  if (fileWrite.stage.some((root) => isWithin(path, root))) return { decision: 'staged' };
  if (isWithin(path, job.workspace)) return { decision: 'denied', why: 'read-only' };
  if (isWithin(path, job.home)) return { decision: 'private', why: 'home' };
  if (isWithin(path, '/tmp') || isWithin(path, '/dev/shm')) return { decision: 'private', why: 'temporary' };
  return { decision: 'denied', why: 'read-only' };
}

/** The most specific rule that matches. */
function firstMatch(rules: readonly PathRule[], path: string): PathRule | undefined {
  return [...rules].sort(bySpecificity).find((rule) => compileMatcher(rule)(path));
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
