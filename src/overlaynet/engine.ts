import type { CanonicalHost } from '../policy/decide.ts';
import type { Counters } from './counters.ts';
import type { Denial, OverlayRules } from './decide.ts';
import type { Dialler } from './dial.host.ts';
import type { Emit, Entry } from './events.ts';
import type { SecretInjector } from './injection.ts';
import type { OverlayLimits } from './limits.ts';
import type { SyntheticAddresses } from './synthetic.ts';
import type { Traffic } from './traffic.ts';

/** What every way into one job's network shares. */
export interface Engine {
  readonly rules: OverlayRules;
  readonly limits: OverlayLimits;
  readonly synthetic: SyntheticAddresses;
  readonly counters: Counters;
  readonly traffic: Traffic;
  readonly dialler: Dialler;
  readonly emit: Emit;
  /** Undefined: the job has no injected secrets. */
  readonly secrets?: SecretInjector | undefined;
}

/** One connection of the job, and what it is for. */
export interface Visit {
  readonly connection: number;
  readonly entry: Entry;
  readonly destination: CanonicalHost;
  readonly port: number;
}

/** What a connection speaks. */
export type Protocol = 'tcp' | 'tls' | 'http';

/** The name that a synthetic address stands for; any other destination is itself. */
export function standsFor(engine: Engine, destination: CanonicalHost): CanonicalHost {
  const name = destination.kind === 'address' ? engine.synthetic.nameOf(destination.host) : undefined;
  return name === undefined ? destination : { kind: 'name', host: name };
}

/** Counts and tells a denial. */
export function recordDenial(engine: Engine, visit: Visit, protocol: Protocol, denial: Denial): void {
  engine.counters.tally(visit.destination.host, visit.port).count('denied', denial.rule);
  tell(engine, visit, 'denied', protocol, denial.rule);
}

/** Counts and tells a grant. */
export function recordGrant(engine: Engine, visit: Visit, protocol: Protocol, rule: string, encryptedHello = false): void {
  engine.counters.tally(visit.destination.host, visit.port).count('allowed', rule);
  const { connection, entry, destination, port } = visit;
  engine.emit({ kind: 'allowed', connection, entry, host: destination.host, port, protocol, rule, ...(encryptedHello ? { encryptedHello } : {}) });
}

/** Counts and tells that something allowed didn't come about. */
export function recordFailure(engine: Engine, visit: Visit, protocol: Protocol, reason: string): void {
  engine.counters.tally(visit.destination.host, visit.port).failed();
  tell(engine, visit, 'failed', protocol, reason);
}

function tell(engine: Engine, { connection, entry, destination, port }: Visit, kind: 'denied' | 'failed', protocol: Protocol, rule: string): void {
  engine.emit({ kind, connection, entry, host: destination.host, port, protocol, rule });
}

/** What a client that waits for an answer is told: established, or which rule denied or what failed. */
export type TunnelOutcome = { readonly kind: 'established' } | { readonly kind: 'denied' | 'failed'; readonly rule: string };
