import { createSocket } from 'node:dgram';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { afterEach } from 'vitest';
import dnsPacket from 'dns-packet';
import type { HostRule } from '../../src/core/job.ts';
import { parseHostRule } from '../../src/policy/host-rule.ts';
import type { RawHost } from '../../src/policy/layer.ts';
import type { NetworkEvent } from '../../src/overlaynet/events.ts';
import { startOverlayNet, type OverlayListener, type OverlayNet, type OverlayNetOptions } from '../../src/overlaynet/overlaynet.host.ts';

/** Synthetic addresses that any machine answers on its loopback, so that a test needs no network namespace. */
export const LOOPBACK_POOLS = { v4: '127.64.0.0/16', v6: '2001:2::/48' } as const;

export type Cleanup = (work: () => Promise<void> | void) => void;

/** Things to close after each test, last opened first. */
export function useCleanup(): Cleanup {
  const works: (() => Promise<void> | void)[] = [];
  afterEach(async () => {
    for (const work of works.splice(0).reverse()) await work();
  });
  return (work) => void works.push(work);
}

export function hostRule(raw: RawHost | string, effect: 'allow' | 'deny'): HostRule {
  const parsed = parseHostRule(typeof raw === 'string' ? { host: raw } : raw, effect, { layer: 'job', name: 'job.yaml', file: 'job.yaml', line: 7 });
  if (parsed.kind === 'error') throw new Error(parsed.message);
  return parsed.rule;
}

/** A server on loopback with a port of its own. */
export async function listen(server: Server, host = '127.0.0.1', port = 0): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen({ host, port }, resolve);
  });
  return (server.address() as AddressInfo).port;
}

export type Zone = Record<string, readonly string[]>;

/** A resolver as the host would ask: it has the names of `zone`, which may be changed, and keeps what it was asked. */
export async function startNameserver(zone: Zone, cleanup: Cleanup): Promise<{ readonly address: string; readonly asked: string[] }> {
  const asked: string[] = [];
  const socket = createSocket('udp4');
  socket.on('message', (message, sender) => {
    const query = dnsPacket.decode(message);
    const question = query.questions?.[0];
    if (question === undefined) return;
    asked.push(`${question.name} ${question.type}`);
    const all = zone[question.name.toLowerCase()];
    const addresses = (all ?? []).filter((address) => address.includes(':') === (question.type === 'AAAA'));
    const answers = addresses.map((data) => ({ type: question.type as 'A' | 'AAAA', name: question.name, ttl: 1, data }));
    const flags = dnsPacket.RECURSION_DESIRED | dnsPacket.RECURSION_AVAILABLE | (all === undefined ? 3 : 0);
    socket.send(dnsPacket.encode({ type: 'response', id: query.id ?? 0, flags, questions: [question], answers }), sender.port, sender.address);
  });
  await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve));
  cleanup(() => new Promise<void>((resolve) => void socket.close(() => resolve())));
  return { address: `127.0.0.1:${String(socket.address().port)}`, asked };
}

export interface LabOptions extends Partial<Omit<OverlayNetOptions, 'rules' | 'listeners'>> {
  /** Names that get their address at the start, so that they can be dialled; the rules must be able to allow them. */
  readonly names?: readonly string[];
  /** Ports that the job's network answers. */
  readonly ports: readonly number[];
  /** Addresses that are dialled as they are. */
  readonly literals?: readonly string[];
  readonly allow?: readonly (RawHost | string)[];
  readonly deny?: readonly (RawHost | string)[];
  readonly defaultAllow?: boolean;
  readonly zone?: Zone;
}

export interface Lab {
  readonly net: OverlayNet;
  readonly events: NetworkEvent[];
  /** What the upstream resolver was asked. */
  readonly asked: readonly string[];
  readonly zone: Zone;
  /** One question to the job's resolver, by datagram. */
  ask(name: string, type?: dnsPacket.RecordType): Promise<dnsPacket.DecodedPacket>;
  /** Bytes to the job's resolver, by datagram. */
  readonly resolver: { readonly port: number; readonly tcpPort: number };
  /** The address that stands for a name. */
  addressOf(name: string): string;
  /** Dials as a program in the job would: a name by its synthetic address, or an address. */
  dial(host: string, port: number): Promise<Socket>;
  /** Dials, sends, and reads to the end. */
  send(host: string, port: number, bytes: string | Uint8Array): Promise<Ended>;
  /** Port of an explicit proxy. */
  proxy(password?: string): Promise<number>;
  /** The counters of one destination. */
  row(host: string, port: number | null): ReturnType<OverlayNet['counters']>['destinations'][number] | undefined;
}

export async function openLab(options: LabOptions, cleanup: Cleanup): Promise<Lab> {
  const zone: Zone = options.zone ?? {};
  const nameserver = await startNameserver(zone, cleanup);
  const names = options.names ?? [];
  const listeners: OverlayListener[] = [];
  const addresses = [...names.map((_, index) => `127.64.1.${String(index)}`), ...(options.literals ?? [])];
  for (const address of addresses) {
    for (const port of options.ports) {
      const server = createServer();
      await listen(server, address, port);
      listeners.push({ kind: 'tcp', family: 4, port, server });
    }
  }
  const udp = createSocket('udp4');
  await new Promise<void>((resolve) => udp.bind(0, '127.0.0.1', resolve));
  const tcp = createServer();
  const tcpPort = await listen(tcp);
  listeners.push({ kind: 'dns-udp', family: 4, socket: udp }, { kind: 'dns-tcp', family: 4, server: tcp });
  const resolver = { port: udp.address().port, tcpPort };
  const events: NetworkEvent[] = [];
  const net = await startOverlayNet({
    rules: {
      allow: (options.allow ?? []).map((rule) => hostRule(rule, 'allow')),
      deny: (options.deny ?? []).map((rule) => hostRule(rule, 'deny')),
      defaultAllow: options.defaultAllow ?? false,
    },
    listeners,
    upstream: { nameservers: [nameserver.address], ...options.upstream },
    synthetic: options.synthetic ?? LOOPBACK_POOLS,
    clock: options.clock ?? Date.now,
    onEvent: (event) => {
      events.push(event);
      options.onEvent?.(event);
    },
    ...(options.secrets === undefined ? {} : { secrets: options.secrets }),
    ...(options.limits === undefined ? {} : { limits: options.limits }),
    ...(options.hostPorts === undefined ? {} : { hostPorts: options.hostPorts }),
  });
  cleanup(() => net.close());
  const ask = (name: string, type: dnsPacket.RecordType = 'A'): Promise<dnsPacket.DecodedPacket> =>
    askDatagram(resolver.port, dnsPacket.encode({ type: 'query', id: 7, flags: dnsPacket.RECURSION_DESIRED, questions: [{ name, type }] }));
  const known = new Map<string, string>();
  for (const name of names) {
    const answer = (await ask(name)).answers?.[0];
    if (answer?.type !== 'A') throw new Error(`${name} has no address in the job's network`);
    known.set(name, answer.data);
  }
  const addressOf = (name: string): string => known.get(name) ?? name;
  return {
    net,
    events,
    asked: nameserver.asked,
    zone,
    ask,
    resolver,
    addressOf,
    dial: (host, port) => open(addressOf(host), port, cleanup),
    send: (host, port, bytes) => attempt(addressOf(host), port, bytes, cleanup),
    proxy: async (password) => {
      const server = createServer();
      const port = await listen(server);
      net.attachProxy(server, password === undefined ? {} : { password });
      return port;
    },
    row: (host, port) => net.counters().destinations.find((one) => one.host === host && one.port === port),
  };
}

/** A connected socket that is closed after the test. */
export function open(host: string, port: number, cleanup: Cleanup): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, allowHalfOpen: true });
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.off('error', reject);
      socket.on('error', () => undefined);
      resolve(socket);
    });
    cleanup(() => void socket.destroy());
  });
}

/** Sends bytes as a datagram, and gives the answer as it is. */
export function askDatagram(port: number, message: Uint8Array): Promise<dnsPacket.DecodedPacket> {
  return new Promise((resolve, reject) => {
    const socket = createSocket('udp4');
    const timer = setTimeout(() => {
      socket.close();
      reject(new Error('no answer'));
    }, 10_000);
    socket.once('message', (answer) => {
      clearTimeout(timer);
      socket.close();
      resolve(dnsPacket.decode(answer));
    });
    socket.send(message, port, '127.0.0.1');
  });
}

/** Connects, sends, and reads to the end, however it ends. */
export function attempt(host: string, port: number, bytes: string | Uint8Array, cleanup: Cleanup): Promise<Ended> {
  const socket = connect({ host, port, allowHalfOpen: true });
  cleanup(() => void socket.destroy());
  const ended = readAll(socket);
  socket.write(bytes);
  return ended;
}

export interface Ended {
  /** All that came, as latin1 text. */
  readonly text: string;
  readonly bytes: Buffer;
  readonly reset: boolean;
}

/** Reads a socket to its end. */
export function readAll(socket: Socket): Promise<Ended> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let reset = false;
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.on('error', (error: NodeJS.ErrnoException) => (reset ||= error.code === 'ECONNRESET' || error.code === 'EPIPE'));
    const end = (): void => {
      const bytes = Buffer.concat(chunks);
      resolve({ text: bytes.toString('latin1'), bytes, reset });
    };
    socket.on('end', () => {
      socket.end();
    });
    socket.on('close', end);
    if (socket.destroyed) end();
  });
}

/** Reads until the text that came matches, and gives it. Rejects at the end of the stream. */
export function readUntil(socket: Socket, pattern: RegExp): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    const onData = (chunk: Buffer): void => {
      text += chunk.toString('latin1');
      if (!pattern.test(text)) return;
      done();
      resolve(text);
    };
    const onEnd = (): void => {
      done();
      reject(new Error(`ended after ${JSON.stringify(text.slice(0, 500))}`));
    };
    const done = (): void => void socket.off('data', onData).off('end', onEnd).off('close', onEnd);
    socket.on('data', onData).on('end', onEnd).on('close', onEnd);
  });
}
