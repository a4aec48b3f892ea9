/** How a connection or request came in. */
export type Entry = 'transparent' | 'http_proxy' | 'connect' | 'socks';

/** One fact about the job's network, for the journal. Times are milliseconds since the epoch. Text is the job's own: show it only sanitised. */
export type NetworkEvent =
  | { readonly kind: 'lookup_refused'; readonly atMs: number; readonly name: string; readonly rule: string }
  | {
      readonly kind: 'allowed' | 'denied' | 'failed';
      readonly atMs: number;
      /** Counts connections of this run, from 1: events of one connection have the same. */
      readonly connection: number;
      readonly entry: Entry;
      readonly host: string;
      readonly port: number;
      readonly protocol: 'tcp' | 'tls' | 'http';
      /** The deciding rule; for `failed`, what failed. */
      readonly rule: string;
      /** A TLS connection with an encrypted ClientHello, whose inner name can't be seen. */
      readonly encryptedHello?: true;
    }
  | {
      readonly kind: 'closed';
      readonly atMs: number;
      readonly connection: number;
      readonly host: string;
      readonly port: number;
      readonly bytesOut: number;
      readonly bytesIn: number;
    }
  /** Events beyond the most that are told; the counters have them all. */
  | { readonly kind: 'events_left_out'; readonly atMs: number };

type Untimed<E> = E extends NetworkEvent ? Omit<E, 'atMs'> : never;

export type Emit = (event: Untimed<NetworkEvent>) => void;

/** Stamps events, and stops after `most`: a job can make them without end, and each may be written to disk. A listener that throws harms nothing. */
export function createEmitter(listener: ((event: NetworkEvent) => void) | undefined, nowMs: () => number, most: number): Emit {
  let told = 0;
  if (listener === undefined) return () => undefined;
  const tell = (event: NetworkEvent): void => {
    try {
      listener(event);
    } catch {
      // The network of the job doesn't depend on who watches it.
    }
  };
  return (event) => {
    told += 1;
    if (told <= most) tell({ ...event, atMs: nowMs() });
    else if (told === most + 1) tell({ kind: 'events_left_out', atMs: nowMs() });
  };
}
