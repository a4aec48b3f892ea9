import { ProofrunError } from '../../src/core/errors.ts';
import type { ChildProcess } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { createServer, Socket } from 'node:net';
import type { NetworkListener } from '../../src/executor/network.ts';
import { DNS_PORT, OVERLAY_V4, PROXY_PORT } from './overlay-plan.ts';

/** How long the sandbox may take to connect to a published port, in milliseconds. */
const DIAL_MS = 5000;

type Message =
  | { readonly kind: 'listener'; readonly protocol: 'tcp' | 'udp'; readonly address: string; readonly port: number }
  | { readonly kind: 'dialled'; readonly id: number };

function readMessage(value: unknown): Message | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  if ('listener' in value && 'address' in value && 'port' in value) {
    const { listener, address, port } = value;
    if ((listener === 'tcp' || listener === 'udp') && typeof address === 'string' && typeof port === 'number') {
      return { kind: 'listener', protocol: listener, address, port };
    }
  }
  if ('dialled' in value && typeof value.dialled === 'number') {
    return { kind: 'dialled', id: value.dialled };
  }
  return undefined;
}

interface Dial {
  readonly resolve: (socket: Socket | undefined) => void;
  readonly timer: NodeJS.Timeout;
}

/**
 * The sockets that outer opens in the job's network and hands to this process, over the channel of messages that
 * `spawn(..., { stdio: [..., 'ipc'] })` makes. Each comes in the form that Node's own processes use (`NODE_HANDLE` with
 * SCM_RIGHTS); see docs/decisions.
 */
export class HandedSockets {
  readonly listeners: NetworkListener[] = [];
  private readonly child: ChildProcess;
  private readonly wanted: number;
  private readonly dials = new Map<number, Dial>();
  private settle: () => void = () => undefined;
  private lastDial = 0;
  /** Resolves when as many listeners have arrived as were asked for. */
  readonly complete: Promise<void>;

  constructor(child: ChildProcess, wanted: number) {
    this.child = child;
    this.wanted = wanted;
    this.complete = new Promise((resolve) => {
      this.settle = resolve;
    });
    if (wanted === 0) this.settle();
    child.on('message', (message, handle) => {
      this.take(readMessage(message), handle);
    });
    child.on('disconnect', () => {
      for (const id of [...this.dials.keys()]) this.fail(id);
    });
    // The channel alone keeps no process alive.
    child.channel?.unref();
  }

  /** A connection to a port of the job's loopback. Undefined when nobody listens there, or the sandbox is gone. */
  dial(port: number): Promise<Socket | undefined> {
    const id = ++this.lastDial;
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.fail(id);
      }, DIAL_MS);
      this.dials.set(id, { resolve, timer });
      if (!this.child.connected) {
        this.fail(id);
        return;
      }
      this.child.send({ dial: [id, port] }, (error) => {
        if (error !== null) this.fail(id);
      });
    });
  }

  /** Closes the channel; what was handed over stays with its owner. */
  close(): void {
    if (this.child.connected) this.child.disconnect();
  }

  private take(message: Message | undefined, handle: unknown): void {
    if (message?.kind === 'listener') {
      this.listeners.push(listenerOf(message, handle));
      if (this.listeners.length === this.wanted) this.settle();
    } else if (message?.kind === 'dialled') {
      const { id } = message;
      const dial = this.dials.get(id);
      if (handle === undefined || handle === null) {
        this.fail(id);
        return;
      }
      const socket = socketOf(handle);
      if (dial === undefined) {
        socket.destroy();
        return;
      }
      clearTimeout(dial.timer);
      this.dials.delete(id);
      dial.resolve(socket);
    }
  }

  private fail(id: number): void {
    const dial = this.dials.get(id);
    if (dial === undefined) return;
    clearTimeout(dial.timer);
    this.dials.delete(id);
    dial.resolve(undefined);
  }
}

function listenerOf(message: Extract<Message, { kind: 'listener' }>, handle: unknown): NetworkListener {
  const family = message.address.includes(':') ? 6 : 4;
  const resolver = message.address === OVERLAY_V4 && message.port === DNS_PORT;
  if (message.protocol === 'udp') {
    const socket = createSocket(family === 4 ? 'udp4' : 'udp6');
    // A wrapped handle is one of the things that bind(2) of Node takes, and none of the types say so.
    Reflect.apply(socket.bind, socket, [handle]);
    return { kind: 'dns-udp', family, socket };
  }
  const server = createServer({ allowHalfOpen: true });
  server.listen(handle);
  if (message.address === OVERLAY_V4 && message.port === PROXY_PORT) return { kind: 'proxy', server };
  return resolver ? { kind: 'dns-tcp', family, server } : { kind: 'tcp', family, port: message.port, server };
}

/** `handle` is what net.Socket itself keeps its descriptor in. */
function socketOf(handle: unknown): Socket {
  const socket: unknown = Reflect.construct(Socket, [{ handle, allowHalfOpen: true, readable: true, writable: true }]);
  if (!(socket instanceof Socket)) throw new ProofrunError('ERR_LAUNCH', { message: 'a handed socket could not be opened' });
  return socket;
}
