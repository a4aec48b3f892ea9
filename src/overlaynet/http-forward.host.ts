import { reset } from './reset.host.ts';
import { Agent, type ClientRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { createProxyServer, type ProxyServer } from 'http-proxy-3';
import { ProofrunError } from '../core/errors.ts';
import type { ConnectionDecision, Denial } from './decide.ts';
import { recordDenial, recordFailure, recordGrant, type Engine, type Visit } from './engine.ts';
import { connectionHeaders } from './http-request.ts';
import type { Lease } from './traffic.ts';

/** One request that was allowed. */
export interface Forwarded {
  readonly visit: Visit;
  readonly decision: ConnectionDecision & { readonly allowed: true };
  /** Target in origin form, byte by byte. */
  readonly path: string;
  readonly form: 'origin' | 'absolute' | 'asterisk' | 'authority';
  readonly hasBody: boolean;
}

/** `reset`: a connection that was used before ended under the request; the client's is ended too, and it tries again as it would without us. */
export type Failure = { readonly kind: 'denied'; readonly denial: Denial } | { readonly kind: 'failed'; readonly reason: string } | { readonly kind: 'reset' };

/** Forwards the requests of one client connection. Connections to servers are shared with no other client. */
export interface Forwarder {
  web(request: IncomingMessage, response: ServerResponse, forwarded: Forwarded, failed: (failure: Failure) => void): void;
  webSocket(request: IncomingMessage, socket: Socket, head: Buffer, forwarded: Forwarded, failed: (failure: Failure) => void): void;
  close(): void;
}

class DialError extends Error {
  readonly failure: Failure;
  constructor(failure: Failure) {
    super('the destination could not be dialled');
    this.failure = failure;
  }
}

/** What Node's client asks of an agent. Not in its types; followed by every agent in use, and pinned by a test. */
interface RequestAgent {
  readonly protocol: string;
  readonly defaultPort: number;
  /** Without it the request says that it is the last one. */
  readonly keepAlive: boolean;
  addRequest(request: ClientRequest, options: object): void;
}

/** One http-proxy for all requests of a job, and who wants to see what each of them came to. */
export interface RequestProxy {
  readonly server: ProxyServer;
  readonly answers: WeakMap<IncomingMessage, (answer: IncomingMessage) => void>;
  readonly upgrades: WeakMap<IncomingMessage, (outgoing: ClientRequest) => void>;
}

/** Throws ERR_USAGE when the environment tells http-proxy to resolve and fetch by itself, around every check of an address. */
export function createRequestProxy(): RequestProxy {
  if (process.env['FORCE_FETCH_PATH'] === 'true') {
    throw new ProofrunError('ERR_USAGE', {
      message: 'FORCE_FETCH_PATH=true is set: requests would go around the checks of addresses',
      hint: 'unset FORCE_FETCH_PATH',
    });
  }
  const server = createProxyServer({ xfwd: false, changeOrigin: false, toProxy: true });
  const proxy: RequestProxy = { server, answers: new WeakMap(), upgrades: new WeakMap() };
  server.on('proxyRes', (answer, request) => proxy.answers.get(request)?.(answer));
  server.on('proxyReqWs', (outgoing, request) => proxy.upgrades.get(request)?.(outgoing));
  // Errors come by the callback of each request; these are of sockets that have ended already.
  server.on('error', () => undefined);
  return proxy;
}

export function createForwarder(engine: Engine, proxy: RequestProxy, idle: () => void): Forwarder {
  const agents = new Map<string, Agent>();

  /** One agent for each destination and decision of this connection. */
  const agentOf = ({ visit, decision }: Forwarded): Agent => {
    const key = `${visit.destination.host} ${String(visit.port)} ${decision.to}`;
    const known = agents.get(key);
    if (known !== undefined) return known;
    const agent = new Agent({ keepAlive: true, maxSockets: 1, maxTotalSockets: 1, scheduling: 'lifo' });
    agents.set(key, agent);
    agent.createConnection = (_options, callback) => {
      void engine.dialler.dial(decision, visit.destination, visit.port, 'http').then((dialled) => {
        if (dialled.kind !== 'connected') {
          callback?.(new DialError(dialled.kind === 'denied' ? dialled : { kind: 'failed', reason: dialled.reason }), undefined as never);
          return;
        }
        const { socket } = dialled;
        const unfollow = engine.counters.tally(visit.destination.host, visit.port).follow(socket);
        socket.once('close', () => {
          unfollow();
          idle();
        });
        callback?.(null, socket);
      });
      return undefined;
    };
    return agent;
  };

  const begin = (
    request: IncomingMessage,
    forwarded: Forwarded,
    onSent: (outgoing: ClientRequest) => void,
  ): { readonly agent: RequestAgent; sent(): ClientRequest | undefined } => {
    const { visit, path, form } = forwarded;
    const drop = connectionHeaders(request.rawHeaders);
    const upgrade = request.headers.upgrade;
    request.headers = Object.fromEntries(Object.entries(request.headers).filter(([name]) => !drop.has(name)));
    if (upgrade !== undefined) {
      request.headers.upgrade = upgrade;
      request.headers.connection = 'Upgrade';
    } else if (request.headers.connection !== 'close') delete request.headers.connection;
    const authority = `${visit.destination.host.includes(':') ? `[${visit.destination.host}]` : visit.destination.host}${visit.port === 80 ? '' : `:${String(visit.port)}`}`;
    if (request.headers.host === undefined || form === 'absolute') request.headers.host = authority;
    const upstreamProxy = engine.dialler.proxyFor(visit.destination, visit.port, 'http');
    const inner = agentOf(forwarded) as unknown as RequestAgent;
    let sent: ClientRequest | undefined;
    return {
      sent: () => sent,
      agent: {
        protocol: 'http:',
        defaultPort: 80,
        keepAlive: true,
        addRequest: (outgoing, options) => {
          sent = outgoing;
          onSent(outgoing);
          // The target goes on byte by byte; http-proxy would make a URL of it.
          outgoing.path = upstreamProxy === undefined || form === 'asterisk' ? path : `http://${authority}${path}`;
          if (upstreamProxy?.authorization !== undefined) outgoing.setHeader('proxy-authorization', upstreamProxy.authorization);
          // http-proxy declares a DELETE or OPTIONS without Content-Length empty and still sends its chunks: they would be read as another request.
          if (request.headers['transfer-encoding'] === undefined && isChunked(request)) {
            outgoing.removeHeader('content-length');
            outgoing.setHeader('transfer-encoding', 'chunked');
          }
          inner.addRequest(outgoing, options);
        },
      },
    };
  };

  const failureOf = (error: Error, engineVisit: Visit, sent: ClientRequest | undefined): Failure => {
    const failure = error instanceof DialError ? error.failure : undefined;
    if (failure?.kind === 'denied') {
      recordDenial(engine, engineVisit, 'http', failure.denial);
      return failure;
    }
    const code = 'code' in error && typeof error.code === 'string' ? error.code : 'no answer';
    if (failure === undefined && sent?.reusedSocket === true && (code === 'ECONNRESET' || code === 'EPIPE')) return { kind: 'reset' };
    const reason = failure?.kind === 'failed' ? failure.reason : `${engineVisit.destination.host}: ${code}`;
    recordFailure(engine, engineVisit, 'http', reason);
    return { kind: 'failed', reason };
  };

  const openLease = (forwarded: Forwarded): Lease | string => {
    const lease = engine.traffic.open(forwarded.decision.rule);
    if (!('over' in lease)) return lease;
    recordFailure(engine, forwarded.visit, 'http', lease.over);
    return lease.over;
  };

  return {
    web: (request, response, forwarded, failed) => {
      const { visit, decision } = forwarded;
      const lease = openLease(forwarded);
      if (typeof lease === 'string') return failed({ kind: 'failed', reason: lease });
      let over = false;
      const cut = (limit: string): void => {
        if (over) return;
        over = true;
        recordFailure(engine, visit, 'http', limit);
        request.socket.destroy();
      };
      let granted = false;
      let denied = false;
      const grant = (): void => {
        if (!granted) recordGrant(engine, visit, 'http', decision.rule);
        granted = true;
      };
      const { agent, sent } = begin(request, forwarded, (outgoing) => {
        // Ended without answer or error: a server that switches protocols though nobody asked.
        outgoing.once('close', () => {
          if (response.headersSent || response.destroyed || denied) return;
          failed({ kind: 'failed', reason: `${visit.destination.host}: no answer` });
        });
      });
      response.once('close', () => {
        lease.close();
        // A request that was given up before it had an answer was allowed all the same.
        if (!denied) grant();
      });
      proxy.answers.set(request, (answer) => {
        grant();
        tame(answer);
        // The server went away half way: the client must not take what it has for the whole.
        answer.once('close', () => {
          if (!answer.complete) response.destroy();
        });
        if (lease.metered) meter(answer, lease, cut);
      });
      if (lease.metered) meter(request, lease, cut);
      if (engine.secrets !== undefined && forwarded.hasBody) {
        const watch = engine.secrets.watchBody();
        request.on('data', (chunk: Buffer) => {
          const rule = watch(chunk);
          if (rule === undefined || denied) return;
          denied = true;
          recordDenial(engine, visit, 'http', { allowed: false, cause: 'rule', rule });
          request.socket.destroy();
        });
      }
      proxy.server.web(request, response, { target: { protocol: 'http:', host: visit.destination.host, port: visit.port }, agent }, (error) => {
        if (response.destroyed && !(error instanceof DialError)) return;
        const failure = failureOf(error, visit, sent());
        denied = failure.kind === 'denied' || failure.kind === 'reset';
        failed(failure);
      });
    },
    webSocket: (request, socket, head, forwarded, failed) => {
      const { visit, decision } = forwarded;
      const lease = openLease(forwarded);
      if (typeof lease === 'string') return failed({ kind: 'failed', reason: lease });
      const cut = (limit: string): void => {
        if (socket.destroyed) return;
        recordFailure(engine, visit, 'http', limit);
        reset(socket);
      };
      socket.once('close', () => lease.close());
      const { agent, sent } = begin(request, forwarded, () => undefined);
      proxy.upgrades.set(request, (outgoing) => {
        outgoing.once('upgrade', (_answer, upstream) => {
          recordGrant(engine, visit, 'http', decision.rule);
          socket.once('close', () => upstream.destroy());
          upstream.once('close', () => socket.destroySoon());
          if (lease.metered) {
            meter(socket, lease, cut);
            meter(upstream, lease, cut);
          }
        });
        outgoing.once('response', (answer) => {
          recordGrant(engine, visit, 'http', decision.rule);
          tame(answer);
          answer.once('close', () => {
            if (!answer.complete) socket.destroy();
          });
        });
        socket.once('close', () => outgoing.destroy());
      });
      let told = false;
      proxy.server.ws(request, socket, head, { target: { protocol: 'http:', host: visit.destination.host, port: visit.port }, agent }, (error) => {
        if (told || socket.destroyed) return;
        told = true;
        failed(failureOf(error, visit, sent()));
      });
    },
    close: () => {
      for (const agent of agents.values()) agent.destroy();
      agents.clear();
    },
  };
}

/** What Node would throw at when it is passed on: a status or a reason phrase that no server should send. */
function tame(answer: IncomingMessage): void {
  const { statusCode = 0 } = answer;
  if (statusCode < 200 || statusCode > 999) answer.statusCode = 502;
  if (/[^\t\x20-\x7e\x80-\xff]/.test(answer.statusMessage ?? '')) answer.statusMessage = '';
}

function isChunked(request: IncomingMessage): boolean {
  return request.rawHeaders.some((name, index) => index % 2 === 0 && name.toLowerCase() === 'transfer-encoding');
}

/** Holds a stream to a lease while something else reads it. */
function meter(stream: Readable, lease: Lease, cut: (limit: string) => void): void {
  let timer: NodeJS.Timeout | undefined;
  stream.on('data', (chunk: Buffer) => {
    const taken = lease.take(chunk.length);
    if (taken.kind === 'over') return cut(taken.limit);
    if (taken.kind === 'go' || timer !== undefined) return;
    stream.pause();
    timer = setTimeout(() => {
      timer = undefined;
      stream.resume();
    }, taken.ms);
  });
  stream.once('close', () => clearTimeout(timer));
}
