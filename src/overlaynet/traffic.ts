/** Limits of what one job sends and receives, or of what goes by one rule. Undefined: none. */
export interface TrafficLimits {
  /** Connections open at once. */
  readonly connections?: number;
  /** Bytes of payload both ways, over the whole run. */
  readonly bytes?: number;
  /** Bytes a second, both ways together. */
  readonly bytesPerSecond?: number;
}

export type Taken =
  | { readonly kind: 'go' }
  /** Go on, and read nothing more of this stream before so many milliseconds have passed. */
  | { readonly kind: 'wait'; readonly ms: number }
  | { readonly kind: 'over'; readonly limit: string };

/** The share of one connection. Close it exactly once. */
export interface Lease {
  /** False when no limit looks at bytes, so that `take` needn't be asked. */
  readonly metered: boolean;
  take(bytes: number): Taken;
  close(): void;
}

export interface Traffic {
  /** A connection of the job, whatever becomes of it. */
  enter(): Lease | { readonly over: string };
  /** A connection or request that a rule allowed. */
  open(rule: string): Lease | { readonly over: string };
  readonly openNow: number;
  readonly mostOpen: number;
}

interface Meter {
  connections: number;
  bytes: number;
  /** Bytes that may be sent now; below zero is owed. */
  credit: number;
  atMs: number;
}

const GO: Taken = { kind: 'go' };

/** Counts connections and bytes against the limits of the job and of each rule. The time is that of a clock that never runs backwards. */
export function createTraffic(limits: { readonly total: TrafficLimits; readonly perRule: TrafficLimits }, nowMs: () => number): Traffic {
  const fresh = (limit: TrafficLimits): Meter => ({ connections: 0, bytes: 0, credit: limit.bytesPerSecond ?? 0, atMs: nowMs() });
  const total = fresh(limits.total);
  const rules = new Map<string, Meter>();
  let mostOpen = 0;
  const meterOf = (rule: string): Meter => {
    const known = rules.get(rule);
    if (known !== undefined) return known;
    const meter = fresh(limits.perRule);
    rules.set(rule, meter);
    return meter;
  };
  return {
    enter: () => {
      const most = limits.total.connections;
      if (most !== undefined && total.connections >= most) return { over: `limit of ${String(most)} connections` };
      total.connections += 1;
      mostOpen = Math.max(mostOpen, total.connections);
      return leaseOf(total, () => GO, false);
    },
    open: (rule) => {
      const meter = meterOf(rule);
      const most = limits.perRule.connections;
      if (most !== undefined && meter.connections >= most) return { over: `limit of ${String(most)} connections a rule` };
      meter.connections += 1;
      const metered = [limits.total, limits.perRule].some((limit) => limit.bytes !== undefined || limit.bytesPerSecond !== undefined);
      return leaseOf(meter, (bytes) => worst(spend(total, limits.total, bytes, nowMs(), ''), spend(meter, limits.perRule, bytes, nowMs(), ' a rule')), metered);
    },
    get openNow() {
      return total.connections;
    },
    get mostOpen() {
      return mostOpen;
    },
  };
}

function leaseOf(meter: Meter, take: Lease['take'], metered: boolean): Lease {
  let open = true;
  return {
    metered,
    take,
    close: () => {
      if (open) meter.connections -= 1;
      open = false;
    },
  };
}

function spend(meter: Meter, limit: TrafficLimits, bytes: number, nowMs: number, whose: string): Taken {
  meter.bytes += bytes;
  if (limit.bytes !== undefined && meter.bytes > limit.bytes) return { kind: 'over', limit: `limit of ${String(limit.bytes)} bytes${whose}` };
  const rate = limit.bytesPerSecond;
  if (rate === undefined) return GO;
  // A second's worth may be saved up.
  meter.credit = Math.min(rate, meter.credit + ((nowMs - meter.atMs) * rate) / 1000) - bytes;
  meter.atMs = nowMs;
  return meter.credit >= 0 ? GO : { kind: 'wait', ms: Math.ceil((-meter.credit * 1000) / rate) };
}

function worst(a: Taken, b: Taken): Taken {
  if (a.kind === 'over') return a;
  if (b.kind === 'over') return b;
  return a.kind === 'wait' && b.kind === 'wait' ? { kind: 'wait', ms: Math.max(a.ms, b.ms) } : a.kind === 'wait' ? a : b;
}
