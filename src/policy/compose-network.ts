import type { EffectivePermissions, HostRule, Origin } from '../core/job.ts';
import { denyWords, eitherLine, type Violation } from './ceiling.ts';
import { coveredBy, coversHost, formatHostRule, intersectHostRules } from './host-rule.ts';
import type { NetworkRules, RuleLayer, Stated } from './rules.ts';
import { formatOrigin } from './rules.ts';
import { isSpecialBlock } from './special-address.ts';
import type { Joined } from './joined.ts';

type Network = EffectivePermissions['network'];

/**
 * Joins the network grants, holds them against every ceiling, and takes every denial away.
 * Nobody says anything: public. Rules without a default: only they. `allow: []` or `--no-net`: nothing.
 */
export function composeNetwork(joined: Joined): { readonly network: Network; readonly violations: readonly Violation[]; readonly warnings: readonly string[] } {
  const violations: Violation[] = [];
  const warnings: string[] = [];
  const grants = sections(joined.grants);
  const ceilings = sections(joined.ceilings);
  const nothing = grants.map((section) => section.nothing).find((origin) => origin !== undefined);

  // Only the job and the flags choose a default; profiles have none.
  const defaults = grants.flatMap((section) => (section.defaultAction === undefined ? [] : [section.defaultAction]));
  const blanket = defaults.find((one) => one.value === 'allow');
  const refused = defaults.find((one) => one.value === 'deny');
  const implicit = blanket === undefined && refused === undefined;

  const closing = ceilings.filter((section) => section.defaultAction?.value === 'deny');
  for (const ceiling of closing) {
    const allow = ceiling.allow;
    if (blanket !== undefined && ceiling.grants !== 'any') {
      violations.push(above('the whole network', blanket.origin, ceiling, 'name the hosts under `allow` instead'));
    }
    if (ceiling.grants !== 'none') continue;
    for (const rule of grants.flatMap((section) => section.allow)) {
      if (!coveredBy(rule, allow)) violations.push(above(formatHostRule(rule, 'allow'), rule.origin, ceiling));
    }
    for (const port of grants.flatMap((section) => section.hostPorts)) {
      if (!ceiling.hostPorts.some((own) => own.value === port.value)) violations.push(above(`host port ${String(port.value)}`, port.origin, ceiling));
    }
    for (const publish of grants.flatMap((section) => section.publish)) {
      if (!ceiling.publish.some((own) => samePublish(own, publish))) {
        violations.push(above(`published port ${String(publish.value.hostPort)}:${String(publish.value.jobPort)}`, publish.origin, ceiling));
      }
    }
  }
  for (const ceiling of ceilings) {
    if (ceiling.private?.value !== false) continue;
    const { origin } = ceiling.private;
    for (const rule of grants.flatMap((section) => section.allow)) {
      // A block that holds special addresses only asks for them by being written.
      if (rule.private || (rule.kind === 'cidr' && isSpecialBlock(rule.host))) {
        violations.push({
          dimension: 'network',
          what: `private addresses of ${formatHostRule(rule, 'allow')}`,
          grant: rule.origin,
          ceiling: origin,
          limit: 'private: false',
          hint: eitherLine(rule.origin, origin),
        });
      }
    }
  }

  // What nobody asked for by name is narrowed by a ceiling, not refused: it was never a grant.
  const narrowed = implicit && closing.length > 0 ? narrowAll(closing) : [];
  const deny = [...grants, ...ceilings].flatMap((section) => section.deny);
  const defaultAllow = nothing === undefined && (blanket !== undefined || (implicit && closing.length === 0));
  const allow = nothing === undefined ? uniqueRules([...grants.flatMap((section) => section.allow), ...narrowed]) : [];
  const hostPorts = nothing === undefined ? [...new Set(grants.flatMap((section) => section.hostPorts.map((port) => port.value)))].sort((a, b) => a - b) : [];
  const publish = nothing === undefined ? uniquePublish(grants.flatMap((section) => section.publish)) : [];
  for (const rule of allow) {
    const denial = deny.find((one) => denies(one, rule));
    if (denial !== undefined) {
      warnings.push(`${formatOrigin(rule.origin)} allows ${formatHostRule(rule, 'allow')}, but ${formatOrigin(denial.origin)} denies it: it stays closed`);
    }
  }
  const reachable = allow.filter((rule) => !deny.some((one) => denies(one, rule)));
  if (blanket !== undefined && joined.mode !== 'default' && violations.length === 0) {
    warnings.push(`the network is open: ${formatOrigin(blanket.origin)} allows all of it`);
  }
  const kind = defaultAllow ? (deny.length === 0 ? 'public' : 'selective') : reachable.length + hostPorts.length + publish.length > 0 ? 'selective' : 'deny';
  const defaultOrigin = defaultAllow ? blanket?.origin : (nothing ?? refused?.origin ?? closing[0]?.defaultAction?.origin);
  const stated = joined.grants.some((layer) => layer.network !== undefined) || joined.ceilings.some((layer) => layer.network !== undefined);
  return {
    network: { requested: stated, kind, defaultAllow, allow, deny, hostPorts, publish, ...(defaultOrigin === undefined ? {} : { defaultOrigin }) },
    violations,
    warnings,
  };
}

function sections(layers: readonly RuleLayer[]): readonly NetworkRules[] {
  return layers.flatMap((layer) => (layer.network === undefined ? [] : [layer.network]));
}

function above(what: string, grant: Origin, ceiling: NetworkRules, hint?: string): Violation {
  const origin = ceiling.defaultAction?.origin ?? ceiling.origin;
  return { dimension: 'network', what, grant, ceiling: origin, limit: denyWords('network', ceiling), hint: hint ?? eitherLine(grant, origin) };
}

/** What all closing ceilings allow by name. */
function narrowAll(closing: readonly NetworkRules[]): readonly HostRule[] {
  // A ceiling that admits grants adds nothing of its own, and takes nothing from the lists of the others when it is a mode's.
  return closing.map((section) => section.allow).reduce((left, right) => left.flatMap((a) => right.flatMap((b) => intersectHostRules(a, b) ?? [])));
}

/** True when a denial takes a whole grant away. */
function denies(denial: HostRule, grant: HostRule): boolean {
  if (!coversHost(denial, grant)) return false;
  const { ports } = denial;
  return ports === undefined || (grant.ports?.every((port) => ports.includes(port)) ?? false);
}

/** The same rule from two layers stands once, with the first origin. Sorted, so that the order of layers and rules changes nothing. */
function uniqueRules(rules: readonly HostRule[]): readonly HostRule[] {
  const byKey = new Map<string, HostRule>();
  for (const rule of rules) {
    const key = `${rule.kind} ${rule.host} ${rule.ports?.join(',') ?? '*'} ${String(rule.private)}`;
    if (!byKey.has(key)) byKey.set(key, rule);
  }
  return [...byKey.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, rule]) => rule);
}

function samePublish(a: NetworkRules['publish'][number], b: NetworkRules['publish'][number]): boolean {
  return a.value.hostPort === b.value.hostPort && a.value.jobPort === b.value.jobPort;
}

function uniquePublish(list: readonly Stated<{ readonly hostPort: number; readonly jobPort: number }>[]): Network['publish'] {
  return list
    .map((one) => one.value)
    .filter((one, index, all) => all.findIndex((other) => other.hostPort === one.hostPort && other.jobPort === one.jobPort) === index)
    .sort((a, b) => a.hostPort - b.hostPort || a.jobPort - b.jobPort);
}
