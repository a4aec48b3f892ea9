import type { TrafficLimits } from './traffic.ts';

/** What one job's network may use. */
export interface OverlayLimits {
  readonly total: TrafficLimits;
  readonly perRule: TrafficLimits;
  /** Names that get an address. */
  readonly names: number;
  /** Names that are resolved upstream: with a wildcard rule, the one way in which names leave. */
  readonly resolvedNames: number;
  /** Questions to the resolver a second; what is more is not answered. */
  readonly queriesPerSecond: number;
  /** Rows of counters. */
  readonly destinations: number;
  readonly events: number;
  /** From the first byte on: a ClientHello, the head of a request, a SOCKS negotiation must be whole. */
  readonly headMs: number;
  /**
   * On other ports than those of HTTP and TLS: how long a first line without an end is waited for. Then it goes on as it is, since commands of many
   * protocols end otherwise, and is followed to its end (`createFirstLineWatch`).
   */
  readonly firstLineMs: number;
  /** A connection between two requests. */
  readonly idleHttpMs: number;
  /** Resolving and connecting, all addresses together. */
  readonly connectMs: number;
}

export const DEFAULT_LIMITS: OverlayLimits = {
  total: { connections: 4096 },
  perRule: {},
  names: 4096,
  resolvedNames: 4096,
  queriesPerSecond: 2000,
  destinations: 2048,
  events: 10_000,
  headMs: 10_000,
  firstLineMs: 200,
  idleHttpMs: 60_000,
  connectMs: 15_000,
};
