import type { DestinationCounters } from '../core/bundle.ts';

/** A connection whose bytes are read off while it lives: what `net.Socket` counts. */
export interface ByteSource {
  readonly bytesRead: number;
  readonly bytesWritten: number;
}

/** One destination while the run lasts. */
export interface Tally {
  /** Counts one decision. The rule of the first denial stays, else that of the first grant. */
  count(outcome: 'allowed' | 'denied', rule: string): void;
  /** An allowed connection that could not be made, or was cut off by a limit. */
  failed(): void;
  /** Counts what goes over a connection to the destination, from now until the function that is returned is called. */
  follow(source: ByteSource): () => void;
}

export interface Counters {
  /** Undefined: the list is full. `port` null: the name was only looked up. */
  tally(host: string, port: number | null): Tally;
  read(): { readonly destinations: readonly DestinationCounters[]; readonly unlisted: number };
}

interface Row {
  readonly host: string;
  readonly port: number | null;
  allowed: number;
  denied: number;
  failed: number;
  bytesOut: number;
  bytesIn: number;
  firstMs: number;
  lastMs: number;
  rule: string | null;
  ruleDenies: boolean;
  readonly live: Set<ByteSource>;
}

/** `most`: rows that are kept. A job can name hosts without end; decisions about further ones are counted together. */
export function createCounters(nowMs: () => number, most: number): Counters {
  const rows = new Map<string, Row>();
  let unlisted = 0;
  const rowOf = (host: string, port: number | null): Row | undefined => {
    const key = `${host} ${String(port)}`;
    const known = rows.get(key);
    if (known !== undefined) {
      known.lastMs = nowMs();
      return known;
    }
    if (rows.size >= most) return undefined;
    const now = nowMs();
    const row: Row = {
      host,
      port,
      allowed: 0,
      denied: 0,
      failed: 0,
      bytesOut: 0,
      bytesIn: 0,
      firstMs: now,
      lastMs: now,
      rule: null,
      ruleDenies: false,
      live: new Set(),
    };
    rows.set(key, row);
    return row;
  };
  const tallyOf = (row: Row): Tally => ({
    count: (outcome, rule) => {
      row[outcome] += 1;
      row.lastMs = nowMs();
      if (row.rule === null || (outcome === 'denied' && !row.ruleDenies)) row.rule = rule;
      row.ruleDenies ||= outcome === 'denied';
    },
    failed: () => {
      row.failed += 1;
      row.lastMs = nowMs();
    },
    follow: (source) => {
      row.live.add(source);
      return () => {
        if (!row.live.delete(source)) return;
        row.bytesOut += source.bytesWritten;
        row.bytesIn += source.bytesRead;
        row.lastMs = nowMs();
      };
    },
  });
  const beyond: Tally = { count: () => void (unlisted += 1), failed: () => undefined, follow: () => () => undefined };
  return {
    tally: (host, port) => {
      const row = rowOf(host, port);
      return row === undefined ? beyond : tallyOf(row);
    },
    read: () => ({ destinations: [...rows.values()].map(describe), unlisted }),
  };
}

function describe({ host, port, allowed, denied, failed, bytesOut, bytesIn, firstMs, lastMs, rule, live }: Row): DestinationCounters {
  return {
    host,
    port,
    allowed,
    denied,
    failed,
    bytesOut: bytesOut + sum(live, 'bytesWritten'),
    bytesIn: bytesIn + sum(live, 'bytesRead'),
    firstMs,
    lastMs,
    rule,
  };
}

function sum(sources: ReadonlySet<ByteSource>, field: keyof ByteSource): number {
  let total = 0;
  for (const source of sources) total += source[field];
  return total;
}
