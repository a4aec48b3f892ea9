import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { CanonicalHost } from '../policy/decide.ts';
import { connectFirst, type Connected } from './connect.host.ts';
import { decideAddress, type ConnectionDecision, type Denial, type OverlayRules } from './decide.ts';
import type { UpstreamResolver } from './resolve.host.ts';
import { proxyFor, type UpstreamProxies, type UpstreamProxy } from './upstream-proxy.ts';

export type Dialled =
  /** `proxied`: the socket ends at a proxy that takes requests in absolute form. */
  | { readonly kind: 'connected'; readonly socket: Socket; readonly proxied: UpstreamProxy | undefined }
  | { readonly kind: 'denied'; readonly denial: Denial }
  | { readonly kind: 'failed'; readonly reason: string };

export interface Dialler {
  /** Connects for an allowed decision. Every address is judged, and one that was judged is connected to. Never rejects. */
  dial(decision: ConnectionDecision & { readonly allowed: true }, destination: CanonicalHost, port: number, protocol: 'tcp' | 'tls' | 'http'): Promise<Dialled>;
  proxyFor(destination: CanonicalHost, port: number, protocol: 'tcp' | 'tls' | 'http'): UpstreamProxy | undefined;
}

export interface DiallerOptions {
  readonly rules: OverlayRules;
  readonly resolver: UpstreamResolver;
  readonly proxies: UpstreamProxies;
  readonly timeoutMs: number;
}

const HOST_LOOPBACK = ['127.0.0.1', '::1'];

export function createDialler({ rules, resolver, proxies, timeoutMs }: DiallerOptions): Dialler {
  const choose: Dialler['proxyFor'] = (destination, port, protocol) => proxyFor(proxies, protocol, destination, port);
  return {
    proxyFor: choose,
    dial: async (decision, destination, port, protocol) => {
      if (decision.to === 'host_port') return asDialled(await connectFirst(HOST_LOOPBACK, port, timeoutMs));
      const checked = await addressesOf(rules, resolver, destination, port);
      const proxy = choose(destination, port, protocol);
      if (proxy !== undefined) {
        // A machine behind a proxy may know no name of the internet; what it does know is judged all the same.
        if (checked.kind === 'denied') return checked;
        return throughProxy(proxy, protocol, destination, port, timeoutMs);
      }
      if (checked.kind !== 'ok') return checked;
      const connected = await connectFirst(checked.addresses, port, timeoutMs);
      if (connected.kind === 'failed') resolver.forget(destination.host);
      return asDialled(connected);
    },
  };
}

/** Every address of the destination must be one that it may lead to. One that isn't denies it: a name that leads to both is not to be trusted. */
async function addressesOf(
  rules: OverlayRules,
  resolver: UpstreamResolver,
  destination: CanonicalHost,
  port: number,
): Promise<{ readonly kind: 'ok'; readonly addresses: readonly string[] } | Extract<Dialled, { kind: 'denied' | 'failed' }>> {
  const resolution = destination.kind === 'address' ? { kind: 'ok' as const, addresses: [destination.host] } : await resolver.resolve(destination.host);
  if (resolution.kind === 'failed') return { kind: 'failed', reason: resolution.reason };
  for (const address of resolution.addresses) {
    const denial = decideAddress(rules, destination, port, address);
    if (denial !== undefined) return { kind: 'denied', denial };
  }
  return resolution;
}

function asDialled(connected: Connected): Dialled {
  return connected.kind === 'connected' ? { kind: 'connected', socket: connected.socket, proxied: undefined } : connected;
}

async function throughProxy(
  proxy: UpstreamProxy,
  protocol: 'tcp' | 'tls' | 'http',
  { host }: CanonicalHost,
  port: number,
  timeoutMs: number,
): Promise<Dialled> {
  const tcp = await connectByName(proxy.host, proxy.port, timeoutMs);
  if (tcp.kind === 'failed') return { kind: 'failed', reason: `proxy of this machine: ${tcp.reason}` };
  const socket = proxy.secure ? await secured(tcp.socket, proxy.host, timeoutMs) : tcp.socket;
  if (socket === undefined) return { kind: 'failed', reason: 'proxy of this machine: no TLS connection' };
  if (protocol === 'http') return { kind: 'connected', socket, proxied: proxy };
  const authority = `${host.includes(':') ? `[${host}]` : host}:${String(port)}`;
  const lines = [
    `CONNECT ${authority} HTTP/1.1`,
    `Host: ${authority}`,
    ...(proxy.authorization === undefined ? [] : [`Proxy-Authorization: ${proxy.authorization}`]),
  ];
  socket.write(`${lines.join('\r\n')}\r\n\r\n`);
  const reason = await readConnectAnswer(socket, timeoutMs);
  if (reason === undefined) return { kind: 'connected', socket, proxied: undefined };
  socket.destroy();
  return { kind: 'failed', reason: `proxy of this machine: ${reason}` };
}

/** The proxy is the operator's: its name isn't judged by the job's rules. */
async function connectByName(host: string, port: number, timeoutMs: number): Promise<Connected> {
  const { lookup } = await import('node:dns/promises');
  try {
    const found = await lookup(host, { all: true, order: 'verbatim' });
    return await connectFirst(
      found.map(({ address }) => address),
      port,
      timeoutMs,
    );
  } catch {
    return { kind: 'failed', reason: `${host} can't be resolved` };
  }
}

function secured(socket: Socket, host: string, timeoutMs: number): Promise<Socket | undefined> {
  return new Promise((resolve) => {
    const secure = connectTls({ socket, servername: host, ALPNProtocols: ['http/1.1'] });
    const timer = setTimeout(() => secure.destroy(new Error('timeout')), timeoutMs);
    secure.on('error', () => {
      clearTimeout(timer);
      resolve(undefined);
    });
    secure.once('secureConnect', () => {
      clearTimeout(timer);
      resolve(secure);
    });
  });
}

/** Undefined when the tunnel stands. What follows the head belongs to the tunnel. */
function readConnectAnswer(socket: Socket, timeoutMs: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    let head = Buffer.alloc(0);
    const finish = (reason: string | undefined): void => {
      clearTimeout(timer);
      socket.off('data', onData).off('close', onClose).pause();
      resolve(reason);
    };
    const onClose = (): void => finish('closed the connection');
    const onData = (chunk: Buffer): void => {
      head = Buffer.concat([head, chunk]);
      const end = head.indexOf('\r\n\r\n');
      if (end < 0) {
        if (head.length > 16_384) finish('an endless answer to CONNECT');
        return;
      }
      const status = /^HTTP\/1\.[01] ([0-9]{3})/.exec(head.toString('latin1', 0, 64))?.[1];
      if (status?.startsWith('2') !== true) return finish(`CONNECT was answered with ${status ?? 'no status'}`);
      const rest = head.subarray(end + 4);
      finish(undefined);
      if (rest.length > 0) socket.unshift(rest);
    };
    const timer = setTimeout(() => finish(`no answer to CONNECT within ${String(timeoutMs)} ms`), timeoutMs);
    socket.on('data', onData).on('close', onClose);
  });
}
