import type { Socket as DatagramSocket } from 'node:dgram';
import type { Server } from 'node:net';
import type { NetworkCounters } from '../core/bundle.ts';

/**
 * A socket that listens inside the job's network and belongs to this process. What a client dialled is the local address of
 * the accepted socket.
 */
export type NetworkListener =
  | { readonly kind: 'tcp'; readonly family: 4 | 6; readonly port: number; readonly server: Server }
  /** Speaks HTTP and SOCKS as a proxy, to clients that are configured so. */
  | { readonly kind: 'proxy'; readonly server: Server }
  | { readonly kind: 'dns-udp'; readonly family: 4 | 6; readonly socket: DatagramSocket }
  | { readonly kind: 'dns-tcp'; readonly family: 4 | 6; readonly server: Server };

/** The data path of one job. */
export interface OpenNetwork {
  /** What was counted so far. */
  counters(): NetworkCounters;
  /** Idempotent. Ends every connection and closes the listeners. */
  close(): Promise<void>;
}

/** What answers the job's connections. The runner gives it to an executor, which gives it the listeners. */
export interface NetworkService {
  /** Rejects when it can't serve; then the launch fails. */
  open(listeners: readonly NetworkListener[]): Promise<OpenNetwork>;
}

/** What was counted, for the account. */
export interface NetworkAccount {
  readonly counters: NetworkCounters;
  /** Connections and datagrams to ports that nobody answers. null: not observed. */
  readonly kernelRefused: number | null;
}
