import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { errnoOf, ProofrunError } from '../../src/core/errors.ts';
import type { NetworkCounters } from '../../src/core/bundle.ts';
import type { EffectivePermissions } from '../../src/core/job.ts';
import type { Receipt, ReceiptPhase } from '../../src/core/receipt.ts';
import type { NetworkService, OpenNetwork } from '../../src/executor/network.ts';
import { HandedSockets } from '../shim/handles.host.ts';
import { formatListener } from '../shim/overlay-plan.ts';
import { ownSockets, waitingSockets } from '../shim/own-sockets.host.ts';
import type { SocketLine } from '../shim/socket-table.ts';
import { receiptOfListeners, receiptOfPublished } from './proc-receipts.ts';
import { countersSince } from './counters-since.ts';

type Publish = EffectivePermissions['network']['publish'];

export interface NativeNetworkOptions {
  readonly child: ChildProcess;
  /** How many listeners outer opens. */
  readonly listeners: number;
  readonly publish: Publish;
  readonly service: NetworkService;
}

/** The host's side of a job's network: what was handed over, who answers there, and what is published. */
export class NativeNetwork {
  private readonly handed: HandedSockets;
  private readonly options: NativeNetworkOptions;
  private readonly published: Server[] = [];
  private readonly connections = new Set<Socket>();
  private open: OpenNetwork | undefined;
  private before: NetworkCounters | undefined;
  /** Listeners as they were found at the gate. */
  private seen: readonly SocketLine[] = [];
  private closing: Promise<void> | undefined;

  constructor(options: NativeNetworkOptions) {
    this.options = options;
    this.handed = new HandedSockets(options.child, options.listeners);
  }

  /** Resolves when every listener is here and answered, and the ports are published. Rejects with ERR_LAUNCH. */
  async serve(): Promise<void> {
    await this.handed.complete;
    this.open = await this.options.service.open(this.handed.listeners);
    for (const { hostPort, jobPort } of this.options.publish) this.published.push(await this.publish(hostPort, jobPort));
  }

  /** Receipts of the gate, from the tables of the job's network and of this process. Takes the counters as they are: the probes' own. */
  receiptsAtGate(pid: number): readonly Receipt[] {
    this.before = this.open?.counters();
    const receipts: Receipt[] = [];
    try {
      this.seen = waitingSockets(pid);
      receipts.push(receiptOfListeners(this.named(ownSockets()), `/proc/${pid}/net and /proc/self/fd on the host`));
    } catch {
      // No receipt: what is owed stays missing.
    }
    return [...receipts, ...this.publishedReceipts('gate')];
  }

  /** The listeners of the gate that this process still holds; taken before they are closed. */
  receiptsAtEnd(): readonly Receipt[] {
    if (this.seen.length === 0) return [];
    return [receiptOfListeners(this.named(ownSockets()), '/proc/self/fd on the host', 'end'), ...this.publishedReceipts('end')];
  }

  /** Counters of the command alone. Undefined before the gate. */
  counters(): NetworkCounters | undefined {
    return this.before === undefined || this.open === undefined ? undefined : countersSince(this.before, this.open.counters());
  }

  close(): Promise<void> {
    this.closing ??= this.end();
    return this.closing;
  }

  private async end(): Promise<void> {
    this.handed.close();
    for (const socket of this.connections) socket.destroy();
    await Promise.all(
      this.published.map(
        (server) =>
          new Promise<void>((resolve) => {
            server.close(() => {
              resolve();
            });
          }),
      ),
    );
    if (this.open !== undefined) {
      await this.open.close();
      return;
    }
    // Nobody took them over.
    for (const listener of this.handed.listeners) {
      if (listener.kind === 'dns-udp') listener.socket.close();
      else listener.server.close();
    }
  }

  private named(own: ReadonlySet<number>): readonly string[] {
    return this.seen.map((line) => `${formatListener(line)}${own.has(line.inode) ? '' : ' not ours'}`).sort();
  }

  private publishedReceipts(phase: ReceiptPhase): readonly Receipt[] {
    if (this.published.length === 0) return [];
    try {
      const own = ownSockets();
      const ports = new Set(this.options.publish.map((one) => one.hostPort));
      const lines = waitingSockets('self').filter((line) => line.kind === 'tcp' && ports.has(line.port) && own.has(line.inode));
      return [receiptOfPublished(lines.map(formatListener).sort(), '/proc/self/net/tcp and /proc/self/fd on the host', phase)];
    } catch {
      return [];
    }
  }

  /** Listens at 127.0.0.1 of the host; each connection is joined to one that is made inside the job's network. */
  private async publish(hostPort: number, jobPort: number): Promise<Server> {
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (outside) => {
      this.keep(outside);
      void this.handed.dial(jobPort).then((inside) => {
        if (inside === undefined) {
          outside.resetAndDestroy();
          return;
        }
        this.keep(inside);
        join(outside, inside);
      });
    });
    server.listen({ host: '127.0.0.1', port: hostPort, exclusive: true });
    try {
      await once(server, 'listening');
    } catch (error) {
      throw new ProofrunError('ERR_LAUNCH', {
        message: `port ${hostPort} of this machine can't be published for port ${jobPort} of the job: ${errnoOf(error) ?? 'listen failed'}`,
        hint: errnoOf(error) === 'EADDRINUSE' ? `another program listens there; name another port: "${hostPort + 1}:${jobPort}"` : 'name a port from 1024 on',
        cause: error,
      });
    }
    return server;
  }

  private keep(socket: Socket): void {
    this.connections.add(socket);
    socket.on('error', () => undefined);
    socket.once('close', () => this.connections.delete(socket));
  }
}

/** Both directions, with backpressure; an end of one direction is passed on, a broken side ends the other. */
function join(a: Socket, b: Socket): void {
  if (a.destroyed || b.destroyed) {
    a.destroy();
    b.destroy();
    return;
  }
  a.setNoDelay(true);
  b.setNoDelay(true);
  a.pipe(b);
  b.pipe(a);
  a.once('close', () => b.destroy());
  b.once('close', () => a.destroy());
}
