import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { decide, type ConnectionDecision, type Denial } from './decide.ts';
import { recordDenial, standsFor, type Engine, type TunnelOutcome, type Visit } from './engine.ts';
import type { Entry } from './events.ts';
import { createForwarder, createRequestProxy, type Forwarder, type Forwarded } from './http-forward.host.ts';
import { readRequest, type RequestRead } from './http-request.ts';

/** A way in for connections that speak HTTP/1. */
export interface HttpEntry {
  /** Serves requests for one destination. `denial`: the connection was denied and counted; each request is answered so. */
  serve(socket: Socket, visit: Visit, head: Buffer, denial?: Denial): void;
  /** Serves requests to a proxy, each of which names its own destination. */
  serveProxy(socket: Socket, head: Buffer, connection: number, password: string | undefined): void;
  close(): void;
}

/** Takes over a connection after CONNECT. `answer` is what the client is told before anything else. */
export type Tunnel = (socket: Socket, visit: Visit, head: Buffer, answer: (outcome: TunnelOutcome) => void) => void;

interface Context {
  readonly connection: number;
  readonly entry: Entry;
  /** Undefined for a proxy: each request names its own. */
  readonly visit: Visit | undefined;
  readonly denial: Denial | undefined;
  readonly password: string | undefined;
  readonly forwarder: Forwarder;
  requests: number;
}

/** Requests of one connection that may wait for their answers. */
const MOST_PIPELINED = 64;

export function createHttpEntry(engine: Engine, tunnel: Tunnel): HttpEntry {
  const contexts = new WeakMap<Duplex, Context>();
  const proxy = createRequestProxy();
  const server = createServer({
    insecureHTTPParser: false,
    requireHostHeader: false,
    maxHeaderSize: 65_536,
    keepAliveTimeout: engine.limits.idleHttpMs,
    headersTimeout: engine.limits.headMs,
    requestTimeout: 0,
    connectionsCheckingInterval: Math.min(1000, engine.limits.headMs),
  });
  // Without a port of its own it wouldn't look for clients that never finish a head.
  server.emit('listening');

  const onRequest = (request: IncomingMessage, response: ServerResponse, proceed: () => void): void => {
    const context = contexts.get(request.socket);
    if (context === undefined) return void request.socket.destroy();
    context.requests += 1;
    response.once('close', () => (context.requests -= 1));
    if (context.requests > MOST_PIPELINED) return void request.socket.destroy();
    const judged = judge(engine, context, request);
    if (judged.kind === 'denied') return deny(response, judged);
    proceed();
    context.forwarder.web(request, response, judged.forwarded, (failure) => {
      if (response.headersSent || response.destroyed) {
        response.destroy();
        return;
      }
      if (failure.kind === 'denied') deny(response, { kind: 'denied', status: 403, text: failure.denial.rule });
      else if (failure.kind === 'reset') request.socket.destroy();
      else deny(response, { kind: 'denied', status: 502, text: failure.reason });
    });
  };
  server.on('request', (request, response) => onRequest(request, response, () => undefined));
  server.on('checkContinue', (request, response) => onRequest(request, response, () => response.writeContinue()));
  server.on('upgrade', (request, socket, head) => onUpgrade(engine, contexts, server, request, socket, head));
  server.on('connect', (request, socket, head) => onConnect(engine, contexts, tunnel, request, socket, head));
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    const context = contexts.get(socket);
    if (context?.visit !== undefined && error.code !== 'ECONNRESET' && context.denial === undefined) {
      recordDenial(engine, context.visit, 'http', { allowed: false, cause: 'form', rule: `not HTTP/1: ${error.code ?? error.message}` });
    }
    if (!socket.writable) return void socket.destroy();
    const timedOut = error.code === 'ERR_HTTP_REQUEST_TIMEOUT';
    socket.end(timedOut ? 'HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n' : 'HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n');
    // What else it sends is of no interest, and must not keep the socket open.
    if (socket instanceof Socket) socket.destroySoon();
  });

  const accept = (socket: Socket, head: Buffer, context: Omit<Context, 'forwarder' | 'requests'>): void => {
    const forwarder = createForwarder(engine, proxy, () => {
      // As without us: an idle connection ends when the server ends its own.
      if (contexts.get(socket)?.requests === 0) socket.end();
    });
    contexts.set(socket, { ...context, forwarder, requests: 0 });
    socket.once('close', () => forwarder.close());
    inject(server, socket, head);
  };
  return {
    serve: (socket, visit, head, denial) => {
      accept(socket, head, { connection: visit.connection, entry: visit.entry, visit, denial, password: undefined });
    },
    serveProxy: (socket, head, connection, password) => {
      accept(socket, head, { connection, entry: 'http_proxy', visit: undefined, denial: undefined, password });
    },
    close: () => void server.close(() => undefined),
  };
}

/** Gives a connection to the server, with what was read of it already. */
function inject(server: Server, socket: Socket, head: Buffer): void {
  if (head.length > 0) socket.unshift(head);
  server.emit('connection', socket);
  socket.resume();
}

interface Refused {
  readonly kind: 'denied';
  readonly status: 400 | 403 | 407 | 421 | 502;
  readonly text: string;
}

type Judged = { readonly kind: 'allowed'; readonly forwarded: Forwarded; readonly read: Extract<RequestRead, { kind: 'ok' }> } | Refused;

/** Judges one request by what it says itself, and by what its connection is for. Counts it. */
function judge(engine: Engine, context: Context, request: IncomingMessage): Judged {
  if (context.denial !== undefined) return { kind: 'denied', status: 403, text: context.denial.rule };
  const read = readRequest({ method: request.method ?? '', url: request.url ?? '', httpVersion: request.httpVersion, rawHeaders: request.rawHeaders });
  if (read.kind === 'refused') {
    if (context.visit !== undefined) recordDenial(engine, context.visit, 'http', { allowed: false, cause: 'form', rule: `HTTP request with ${read.reason}` });
    return { kind: 'denied', status: 400, text: `a request with ${read.reason}` };
  }
  if (context.password !== undefined && !isAuthorized(request, context.password)) return { kind: 'denied', status: 407, text: "this proxy is one job's own" };
  const target = read.target;
  const named = target === undefined ? undefined : { destination: standsFor(engine, target.host), port: target.port ?? 80 };
  const base = context.visit ?? (named === undefined ? undefined : { connection: context.connection, entry: context.entry, ...named });
  if (base === undefined) return { kind: 'denied', status: 400, text: 'a request to a proxy that names no http URL' };
  // A proxy was told the destination by the target itself; a connection to somewhere must agree with it.
  const claim = context.visit === undefined ? undefined : target === undefined ? read.hostHeader : authorityText(target.host.host, target.port);
  const visit: Visit = base;
  const decision: ConnectionDecision = decide(engine.rules, { destination: visit.destination, port: visit.port, protocol: 'http', claim });
  if (!decision.allowed) {
    recordDenial(engine, visit, 'http', decision);
    return { kind: 'denied', status: decision.cause === 'claim' ? 421 : 403, text: decision.rule };
  }
  const injection = engine.secrets?.judge({ method: request.method ?? '', url: request.url ?? '', rawHeaders: request.rawHeaders }, visit);
  if (injection?.kind === 'refused') {
    recordDenial(engine, visit, 'http', { allowed: false, cause: 'rule', rule: injection.rule });
    return { kind: 'denied', status: 403, text: injection.rule };
  }
  if (injection?.kind === 'inject') request.headers[injection.header] = injection.value;
  return { kind: 'allowed', forwarded: { visit, decision, path: read.path, form: read.form, hasBody: read.hasBody }, read };
}

function authorityText(host: string, port: number | undefined): string {
  return `${host.includes(':') ? `[${host}]` : host}${port === undefined ? '' : `:${String(port)}`}`;
}

function isAuthorized(request: IncomingMessage, password: string): boolean {
  const [, encoded = ''] = /^Basic ([A-Za-z0-9+/=]+)$/i.exec(request.headers['proxy-authorization'] ?? '') ?? [];
  const given = Buffer.from(encoded, 'base64').toString('latin1');
  return given.slice(given.indexOf(':') + 1) === password;
}

const PHRASES = { 400: 'Bad Request', 403: 'Forbidden', 407: 'Proxy Authentication Required', 421: 'Misdirected Request', 502: 'Bad Gateway' } as const;

function denialText(status: Refused['status'], text: string): string {
  return `proofrun: ${status === 502 ? 'failed' : 'denied'}: ${text}\n`;
}

/** The connection ends with the answer: what else is on it belongs to a request that was refused. */
function deny(response: ServerResponse, { status, text }: Refused): void {
  const body = denialText(status, text);
  response.writeHead(status, PHRASES[status], {
    'content-type': 'text/plain; charset=utf-8',
    'content-length': Buffer.byteLength(body),
    connection: 'close',
    ...(status === 407 ? { 'proxy-authenticate': 'Basic realm="proofrun"' } : {}),
  });
  response.end(body);
}

function denySocket(socket: Socket, { status, text }: Refused): void {
  const body = denialText(status, text);
  const authenticate = status === 407 ? 'Proxy-Authenticate: Basic realm="proofrun"\r\n' : '';
  socket.on('error', () => undefined);
  socket.end(
    `HTTP/1.1 ${String(status)} ${PHRASES[status]}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: ${String(Buffer.byteLength(body))}\r\n${authenticate}Connection: close\r\n\r\n${body}`,
  );
  socket.destroySoon();
}

function onUpgrade(engine: Engine, contexts: WeakMap<Duplex, Context>, server: Server, request: IncomingMessage, socket: Duplex, head: Buffer): void {
  const context = contexts.get(socket);
  if (context === undefined || !(socket instanceof Socket)) return void socket.destroy();
  const isWebSocket = request.method === 'GET' && request.headers.upgrade?.toLowerCase() === 'websocket';
  if (!isWebSocket) {
    // Everything else that can be upgraded to (HTTP/2, TLS) couldn't be judged any more: it goes on as the request that it is.
    inject(server, socket, Buffer.concat([withoutUpgrade(request), head]));
    return;
  }
  const judged = judge(engine, context, request);
  if (judged.kind === 'denied') return denySocket(socket, judged);
  if (judged.read.hasBody) {
    recordDenial(engine, judged.forwarded.visit, 'http', { allowed: false, cause: 'form', rule: 'HTTP upgrade with a body' });
    return denySocket(socket, { kind: 'denied', status: 400, text: 'an upgrade with a body' });
  }
  context.requests += 1;
  context.forwarder.webSocket(request, socket, head, judged.forwarded, (failure) => {
    if (failure.kind === 'reset') socket.destroy();
    else if (failure.kind === 'denied') denySocket(socket, { kind: 'denied', status: 403, text: failure.denial.rule });
    else denySocket(socket, { kind: 'denied', status: 502, text: failure.reason });
  });
}

/** The head of a request once more, without what asks for an upgrade. */
function withoutUpgrade(request: IncomingMessage): Buffer {
  const lines = [`${request.method ?? ''} ${request.url ?? ''} HTTP/${request.httpVersion}`];
  for (let index = 0; index + 1 < request.rawHeaders.length; index += 2) {
    const name = request.rawHeaders[index] ?? '';
    const value = request.rawHeaders[index + 1] ?? '';
    const lower = name.toLowerCase();
    if (lower === 'upgrade' || lower === 'http2-settings') continue;
    if (lower !== 'connection') {
      lines.push(`${name}: ${value}`);
      continue;
    }
    const kept = value.split(',').filter((token) => !/^\s*(?:upgrade|http2-settings)\s*$/i.test(token));
    if (kept.length > 0) lines.push(`${name}: ${kept.join(',')}`);
  }
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
}

function onConnect(engine: Engine, contexts: WeakMap<Duplex, Context>, tunnel: Tunnel, request: IncomingMessage, socket: Duplex, head: Buffer): void {
  const context = contexts.get(socket);
  if (context === undefined || !(socket instanceof Socket)) return void socket.destroy();
  const target = readRequest({ method: 'CONNECT', url: request.url ?? '', httpVersion: request.httpVersion, rawHeaders: request.rawHeaders });
  if (target.kind === 'refused' || target.target?.port === undefined) {
    const reason = target.kind === 'refused' ? target.reason : 'no target';
    if (context.visit !== undefined) recordDenial(engine, context.visit, 'http', { allowed: false, cause: 'form', rule: `HTTP request with ${reason}` });
    return denySocket(socket, { kind: 'denied', status: 400, text: `a request with ${reason}` });
  }
  if (context.password !== undefined && !isAuthorized(request, context.password)) {
    return denySocket(socket, { kind: 'denied', status: 407, text: "this proxy is one job's own" });
  }
  if (target.hasBody) return denySocket(socket, { kind: 'denied', status: 400, text: 'a CONNECT with a body' });
  const visit: Visit = { connection: context.connection, entry: 'connect', destination: standsFor(engine, target.target.host), port: target.target.port };
  tunnel(socket, visit, head, (outcome) => {
    switch (outcome.kind) {
      case 'established':
        socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
        return;
      case 'denied':
        return denySocket(socket, { kind: 'denied', status: 403, text: outcome.rule });
      case 'failed':
        return denySocket(socket, { kind: 'denied', status: 502, text: outcome.rule });
    }
  });
}
