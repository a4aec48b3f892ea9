import { reset } from './reset.host.ts';
import type { Socket as DatagramSocket } from 'node:dgram';
import type { Server, Socket } from 'node:net';
import type { LookupCounters, NetworkCounters } from '../core/bundle.ts';
import { ProofrunError } from '../core/errors.ts';
import { canonicalHost } from '../policy/decide.ts';
import { serveConnection } from './connection.host.ts';
import { HELD_BYTES } from './connect.host.ts';
import { createCounters } from './counters.ts';
import type { OverlayRules } from './decide.ts';
import { createDialler } from './dial.host.ts';
import { serveDnsConnection, serveDnsDatagrams, type AnswerMessage } from './dns.host.ts';
import { encodeDnsAnswer, encodeDnsError, readDnsMessage, RECORD_TYPES } from './dns-message.ts';
import { standsFor, type Engine, type Visit } from './engine.ts';
import { createEmitter, type NetworkEvent } from './events.ts';
import { createHttpEntry } from './http.host.ts';
import type { SecretInjector } from './injection.ts';
import { DEFAULT_LIMITS, type OverlayLimits } from './limits.ts';
import { serveProxyConnection, serveTunnel } from './proxy-entry.host.ts';
import { createUpstreamResolver } from './resolve.host.ts';
import { answerQuestion } from './resolver.ts';
import { createSyntheticAddresses, SYNTHETIC_POOLS, type SyntheticPools } from './synthetic.ts';
import { createTraffic } from './traffic.ts';
import { readProxyVariables, type ProxyVariables } from './upstream-proxy.ts';

/** Something that already listens inside the job's network, and belongs to the engine from now on. */
export type OverlayListener =
  /** `port`: the one that the client dialled. An accepted socket's local address is the address that the client dialled. */
  | { readonly kind: 'tcp'; readonly family: 4 | 6; readonly port: number; readonly server: Server }
  /** Bound to the resolver's address, port 53. */
  | { readonly kind: 'dns-udp'; readonly family: 4 | 6; readonly socket: DatagramSocket }
  | { readonly kind: 'dns-tcp'; readonly family: 4 | 6; readonly server: Server };

export interface OverlayNetOptions {
  /** The job's network permissions, as composed. */
  readonly rules: Omit<OverlayRules, 'hostPorts'>;
  readonly listeners: readonly OverlayListener[];
  readonly limits?: Partial<OverlayLimits>;
  /** Ports of the host's loopback that the job reaches at its own loopback addresses, or as `localhost` by a proxy. */
  readonly hostPorts?: readonly number[];
  /** How the host reaches the world. Absent: as it resolves names itself, and no proxy. */
  readonly upstream?: {
    /** `address` or `address:port`. */
    readonly nameservers?: readonly string[];
    /** The host's own proxy variables. */
    readonly env?: ProxyVariables;
  };
  /** Blocks that names get their addresses from. */
  readonly synthetic?: SyntheticPools;
  /** Adds secrets to plain HTTP requests. */
  readonly secrets?: SecretInjector | undefined;
  /** Milliseconds since the epoch. */
  readonly clock: () => number;
  readonly onEvent?: (event: NetworkEvent) => void;
}

/** The network of one job. Everything that a job dials is answered here or by its own kernel. */
export interface OverlayNet {
  counters(): NetworkCounters;
  /**
   * Serves a listening server as an explicit proxy: HTTP requests in absolute form, CONNECT, SOCKS 4, 4A and 5. With a password, clients must give it
   * (any user). The server belongs to the engine from now on.
   */
  attachProxy(server: Server, options?: { readonly password?: string }): void;
  /** Ends every connection and closes every listener. Idempotent. */
  close(): Promise<void>;
}

/** Connections to the resolver over TCP that may be open at once. */
const MOST_DNS_CONNECTIONS = 64;

/**
 * Starts the data path of one job. Rejects with ERR_UPSTREAM_PROXY when a proxy variable of the host can't be used.
 */
export async function startOverlayNet(options: OverlayNetOptions): Promise<OverlayNet> {
  const limits: OverlayLimits = { ...DEFAULT_LIMITS, ...options.limits };
  const upstream = readProxyVariables(options.upstream?.env ?? {});
  if (upstream.kind === 'error') throw new ProofrunError('ERR_UPSTREAM_PROXY', { message: upstream.message, hint: 'correct the variable, or unset it' });
  const rules: OverlayRules = { ...options.rules, hostPorts: options.hostPorts ?? [] };
  const steadyMs = (): number => performance.now();
  const resolver = createUpstreamResolver({
    nameservers: options.upstream?.nameservers,
    most: limits.resolvedNames,
    nowMs: steadyMs,
    timeoutMs: limits.connectMs,
  });
  const engine: Engine = {
    rules,
    limits,
    synthetic: createSyntheticAddresses(options.synthetic ?? SYNTHETIC_POOLS, limits.names),
    counters: createCounters(options.clock, limits.destinations),
    traffic: createTraffic({ total: limits.total, perRule: limits.perRule }, steadyMs),
    dialler: createDialler({ rules, resolver, proxies: upstream.proxies, timeoutMs: limits.connectMs }),
    emit: createEmitter(options.onEvent, options.clock, limits.events),
    secrets: options.secrets,
  };
  const http = createHttpEntry(engine, (socket, visit, head, answer) => serveTunnel(engine, http, socket, visit, head, answer));
  const sockets = new Set<Socket>();
  const servers = new Set<Server>();
  const stops: (() => void)[] = [];
  let connections = 0;

  const take = (server: Server, serve: (socket: Socket, connection: number) => void): void => {
    servers.add(server);
    // Of the sockets that it accepts.
    Object.assign(server, { highWaterMark: HELD_BYTES });
    const onConnection = (socket: Socket): void => {
      // A server of anybody may have been made without it.
      socket.allowHalfOpen = true;
      socket.setNoDelay(true);
      socket.on('error', () => undefined);
      const lease = engine.traffic.enter();
      if ('over' in lease) return reset(socket);
      sockets.add(socket);
      socket.once('close', () => {
        sockets.delete(socket);
        lease.close();
      });
      connections += 1;
      serve(socket, connections);
    };
    server.on('connection', onConnection);
    stops.push(() => void server.off('connection', onConnection));
  };

  const lookups = { queries: 0, refused: 0, dropped: 0 };
  const answer = createAnswer(engine, lookups, options.listeners, steadyMs);
  let hasResolver = false;
  for (const listener of options.listeners) {
    switch (listener.kind) {
      case 'tcp':
        take(listener.server, (socket, connection) => {
          const visit = visitOf(engine, socket, listener.port, connection);
          if (visit === undefined) reset(socket);
          else serveConnection(engine, http, socket, visit);
        });
        break;
      case 'dns-udp':
        hasResolver = true;
        stops.push(serveDnsDatagrams(listener.socket, answer));
        break;
      case 'dns-tcp': {
        hasResolver = true;
        let open = 0;
        take(listener.server, (socket) => {
          if (open >= MOST_DNS_CONNECTIONS) return reset(socket);
          open += 1;
          socket.once('close', () => (open -= 1));
          serveDnsConnection(socket, answer, limits.headMs);
        });
        break;
      }
    }
  }

  let closing: Promise<void> | undefined;
  const closeAll = async (): Promise<void> => {
    for (const stop of stops) stop();
    const ended = [...servers].map((server) => closed((done) => void server.close(done)));
    for (const listener of options.listeners) {
      if (listener.kind === 'dns-udp') ended.push(closed((done) => void listener.socket.close(done)));
    }
    for (const socket of sockets) if (!socket.destroyed) ended.push(closed((done) => void socket.once('close', done)));
    for (const socket of sockets) reset(socket);
    http.close();
    resolver.close();
    await Promise.all(ended);
  };
  return {
    counters: () => {
      const { destinations, unlisted } = engine.counters.read();
      const asked: LookupCounters = { ...lookups, names: engine.synthetic.size };
      return { destinations, unlisted, lookups: hasResolver ? asked : null, open: engine.traffic.openNow, mostOpen: engine.traffic.mostOpen };
    },
    attachProxy: (server, { password } = {}) => {
      take(server, (socket, connection) => serveProxyConnection(engine, http, socket, connection, password));
    },
    close: () => (closing ??= closeAll()),
  };
}

function closed(close: (done: () => void) => void): Promise<void> {
  return new Promise((resolve) => close(() => resolve()));
}

/** What a transparent connection is for: the name that its address stands for, or the address. Undefined: the kernel knows no address any more. */
function visitOf(engine: Engine, socket: Socket, port: number, connection: number): Visit | undefined {
  const dialled = socket.localAddress === undefined ? undefined : canonicalHost(socket.localAddress.replace(/%.*$/, ''));
  if (dialled === undefined) return undefined;
  return { connection, entry: 'transparent', destination: standsFor(engine, dialled), port };
}

/** Answers messages to the resolver, counts them, and leaves unanswered what is more than the limit. */
function createAnswer(
  engine: Engine,
  lookups: { queries: number; refused: number; dropped: number },
  listeners: readonly OverlayListener[],
  nowMs: () => number,
): AnswerMessage {
  const has = (family: 4 | 6): boolean => listeners.some((one) => one.kind === 'tcp' && one.family === family);
  const families = { v4: has(4) || !has(6), v6: has(6) };
  const perSecond = engine.limits.queriesPerSecond;
  let credit = perSecond;
  let atMs = nowMs();
  return (message) => {
    const now = nowMs();
    credit = Math.min(perSecond, credit + ((now - atMs) * perSecond) / 1000);
    atMs = now;
    const read = credit < 1 ? ({ kind: 'drop' } as const) : readDnsMessage(message);
    if (read.kind === 'drop') {
      lookups.dropped += 1;
      return undefined;
    }
    credit -= 1;
    if (read.kind === 'error') {
      lookups.dropped += 1;
      return encodeDnsError(read.id, read.rcode);
    }
    lookups.queries += 1;
    const lookup = answerQuestion(engine.rules, engine.synthetic, families, read.question);
    if (lookup.kind !== 'answered') {
      lookups.refused += 1;
      const rule = lookup.kind === 'full' ? `limit of ${String(engine.limits.names)} names` : lookup.rule;
      // A client asks for both families at once; the name was wanted once.
      if (lookup.name !== undefined && read.question.type !== RECORD_TYPES.AAAA) {
        engine.counters.tally(lookup.name, null).count('denied', rule);
        engine.emit({ kind: 'lookup_refused', name: lookup.name, rule });
      }
    }
    return encodeDnsAnswer(read.question, lookup.answer);
  };
}
