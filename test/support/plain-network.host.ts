import type { createSocket } from 'node:dgram';
import { connect, type Server, type Socket } from 'node:net';
import { decode, encode, type Packet } from 'dns-packet';
import type { DestinationCounters } from '../../src/core/bundle.ts';
import type { NetworkListener, NetworkService } from '../../src/executor/network.ts';

/**
 * The least that can answer a job's network: names from a table have an address each, and a connection to one of them is forwarded to a
 * port of this machine's loopback. Everything else is refused; `everything`: answered. It shows what the sandbox does by itself, without the rules of the engine.
 */
export function plainNetwork(names: Readonly<Record<string, number>>, everything = false): NetworkService {
  const addresses = new Map(Object.entries(names).map(([name, port], index) => [`198.18.1.${String(index + 1)}`, { name, port }]));
  const addressOf = (name: string): string | undefined =>
    [...addresses].find(([, one]) => one.name === name.toLowerCase())?.[0] ?? (everything ? '198.18.2.2' : undefined);
  const counted = new Map<string, DestinationCounters>();
  const count = (host: string, port: number, what: 'allowed' | 'denied'): void => {
    const old = counted.get(`${host} ${String(port)}`);
    const fresh = { host, port, allowed: 0, denied: 0, failed: 0, bytesOut: 0, bytesIn: 0, firstMs: 0, lastMs: 0, rule: null };
    const base: DestinationCounters = old ?? fresh;
    counted.set(`${host} ${String(port)}`, { ...base, [what]: (base[what] ?? 0) + 1 });
  };
  const answer = (query: Packet): Buffer => {
    const question = query.questions?.[0];
    const address = question === undefined ? undefined : addressOf(question.name);
    if (question !== undefined && address === undefined) count(question.name, 53, 'denied');
    const found = question?.type === 'A' && address !== undefined;
    return encode({
      type: 'response',
      ...(query.id === undefined ? {} : { id: query.id }),
      flags: 0x0180 | (address === undefined ? 3 : 0),
      questions: query.questions ?? [],
      answers: found ? [{ type: 'A', name: question.name, ttl: 1, data: address }] : [],
    });
  };
  const sockets = new Set<Socket>();
  const accept = (socket: Socket): void => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.once('close', () => sockets.delete(socket));
    const to = addresses.get(socket.localAddress ?? '');
    if (to === undefined && everything) {
      socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\n\r\nthrough'));
      return;
    }
    if (to === undefined) {
      count(socket.localAddress ?? '', socket.localPort ?? 0, 'denied');
      socket.destroy();
      return;
    }
    count(to.name, socket.localPort ?? 0, 'allowed');
    const upstream = connect({ host: '127.0.0.1', port: to.port, allowHalfOpen: true });
    sockets.add(upstream);
    upstream.on('error', () => socket.destroy());
    upstream.once('close', () => {
      sockets.delete(upstream);
      socket.destroy();
    });
    socket.once('close', () => upstream.destroy());
    socket.pipe(upstream);
    upstream.pipe(socket);
  };
  const overTcp = (socket: Socket): void => {
    socket.on('error', () => undefined);
    socket.on('data', (bytes: Buffer) => {
      const reply = answer(decode(bytes.subarray(2)));
      const head = Buffer.alloc(2);
      head.writeUInt16BE(reply.byteLength);
      socket.end(Buffer.concat([head, reply]));
    });
  };
  return {
    open: (listeners: readonly NetworkListener[]) => {
      const servers: (Server | ReturnType<typeof createSocket>)[] = [];
      for (const listener of listeners) {
        if (listener.kind === 'dns-udp') {
          const { socket } = listener;
          servers.push(socket);
          socket.on('message', (bytes, from) => {
            socket.send(answer(decode(bytes)), from.port, from.address);
          });
        } else {
          servers.push(listener.server);
          listener.server.on('connection', listener.kind === 'dns-tcp' ? overTcp : accept);
        }
      }
      return Promise.resolve({
        counters: () => ({ destinations: [...counted.values()], unlisted: 0, lookups: null, open: 0, mostOpen: 0 }),
        close: () => {
          for (const server of servers) server.close();
          for (const socket of sockets) socket.destroy();
          return Promise.resolve();
        },
      });
    },
  };
}
