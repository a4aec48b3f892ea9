import { reset } from './reset.host.ts';
import type { Socket } from 'node:net';
import { createHelloReader, type ClientHello } from './client-hello.ts';
import { decide, type ConnectionDecision, type Denial } from './decide.ts';
import type { Dialled } from './dial.host.ts';
import { recordDenial, recordFailure, recordGrant, type Engine, type Protocol, type Visit } from './engine.ts';
import { createFirstLineWatch } from './first-line.ts';
import { createHelloWatch } from './hello-watch.ts';
import type { HttpEntry } from './http.host.ts';
import { relay } from './relay.host.ts';
import { HTTP_PORT, HTTP_VERSION, REQUEST_START, sniff, TLS_PORT } from './sniff.ts';

/** A connection that was made ahead, before it was known what is spoken on it. */
export interface Predial {
  readonly protocol: Protocol;
  readonly result: Promise<Dialled>;
}

/** TLS alerts, RFC 8446 6: what a client shows as `access denied` and `unrecognized name`. */
const ACCESS_DENIED = Buffer.from([21, 3, 3, 0, 2, 2, 49]);
const UNRECOGNIZED_NAME = Buffer.from([21, 3, 3, 0, 2, 2, 112]);

/**
 * Serves one connection whose destination is known: looks at what the client speaks, judges it, and carries it there or ends it. `head` is
 * what was read of it already. The socket allows half-close and has no other reader.
 */
export function serveConnection(engine: Engine, http: HttpEntry, socket: Socket, visit: Visit, head: Buffer = Buffer.alloc(0), ahead?: Predial): void {
  const { destination, port } = visit;
  const decision = decide(engine.rules, { destination, port, protocol: 'tcp' });
  if (!decision.allowed) {
    recordDenial(engine, visit, 'tcp', decision);
    refuse(engine, http, socket, visit, decision, head);
    return;
  }
  // Many servers speak first: elsewhere than on the ports of HTTP and TLS nobody waits for the client.
  const waits = port === HTTP_PORT || port === TLS_PORT;
  const predial = ahead ?? (waits ? undefined : { protocol: 'tcp' as const, result: engine.dialler.dial(decision, destination, port, 'tcp') });
  const chunks: Buffer[] = [];
  let hello: ReturnType<typeof createHelloReader> | undefined;
  let done = false;
  let timer: NodeJS.Timeout | undefined;
  const startTimer = (): void => {
    timer ??= setTimeout(() => {
      finish();
      recordFailure(engine, visit, 'tcp', 'the beginning did not come in time');
      abandon(predial);
      reset(socket);
    }, engine.limits.headMs);
  };
  let lineTimer: NodeJS.Timeout | undefined;
  const goOn = (): void => {
    const first = Buffer.concat(chunks);
    // What begins as a request is waited for until it can be judged.
    const text = first.toString('latin1');
    if (!HTTP_VERSION.test(text) && REQUEST_START.test(text.trimStart())) {
      startTimer();
      return;
    }
    finish();
    if (HTTP_VERSION.test(text)) {
      abandon(predial);
      http.serve(socket, visit, first);
    } else void establish(engine, socket, visit, decision, 'tcp', predial, first);
  };
  let unwatch = (): void => undefined;
  const finish = (): void => {
    done = true;
    clearTimeout(timer);
    clearTimeout(lineTimer);
    unwatch();
    socket.off('data', onData).off('end', onEnd).off('close', onClose).pause();
  };
  const onData = (chunk: Buffer): void => {
    chunks.push(chunk);
    if (hello === undefined) {
      const first = chunks.length === 1 ? chunk : Buffer.concat(chunks);
      const kind = sniff(first, port);
      if (kind === 'more') {
        if (waits) startTimer();
        else lineTimer ??= setTimeout(goOn, engine.limits.firstLineMs);
        return;
      }
      if (kind === 'http') {
        finish();
        abandon(predial);
        http.serve(socket, visit, first);
        return;
      }
      if (kind === 'tcp') {
        finish();
        void establish(engine, socket, visit, decision, 'tcp', predial, first);
        return;
      }
      startTimer();
      hello = createHelloReader();
      chunk = first;
    }
    const read = hello.push(chunk);
    if (read.kind === 'more') return;
    finish();
    if (read.kind === 'refused') {
      denyTls(engine, socket, visit, predial, { allowed: false, cause: 'form', rule: read.reason });
      return;
    }
    const judged = decide(engine.rules, { destination, port, protocol: 'tls', claim: read.hello.serverName });
    if (judged.allowed) void establish(engine, socket, visit, judged, 'tls', predial, Buffer.concat(chunks), read);
    else denyTls(engine, socket, visit, predial, judged);
  };
  const onEnd = (): void => {
    finish();
    if (waits) {
      abandon(predial);
      socket.destroy();
    } else void establish(engine, socket, visit, decision, 'tcp', predial, Buffer.concat(chunks));
  };
  const onClose = (): void => {
    finish();
    abandon(predial);
  };
  socket.on('data', onData).on('end', onEnd).on('close', onClose);
  if (waits) startTimer();
  if (head.length > 0) onData(head);
  // `onData` may have handed the socket on.
  if (!isDone()) socket.resume();
  if (predial !== undefined) {
    void predial.result.then((dialled) => {
      if (done) return;
      if (dialled.kind !== 'connected') {
        finish();
        void establish(engine, socket, visit, decision, 'tcp', predial, Buffer.alloc(0));
        return;
      }
      if (waits) return;
      // The server speaks first: then it is neither HTTP nor TLS.
      const upstream = dialled.socket;
      const onReadable = (): void => {
        if (done || chunks.length > 0) return;
        finish();
        void establish(engine, socket, visit, decision, 'tcp', predial, Buffer.alloc(0));
      };
      upstream.once('readable', onReadable);
      unwatch = () => void upstream.off('readable', onReadable);
    });
  }
  function isDone(): boolean {
    return done;
  }
}

async function establish(
  engine: Engine,
  client: Socket,
  visit: Visit,
  decision: ConnectionDecision & { readonly allowed: true },
  protocol: 'tcp' | 'tls',
  predial: Predial | undefined,
  head: Buffer,
  hello?: { readonly hello: ClientHello; readonly bytes: number },
): Promise<void> {
  const { dialler, counters, traffic } = engine;
  const { destination, port } = visit;
  const fits = predial !== undefined && dialler.proxyFor(destination, port, predial.protocol) === dialler.proxyFor(destination, port, protocol);
  if (!fits) abandon(predial);
  const dialled = await (fits ? predial.result : dialler.dial(decision, destination, port, protocol));
  if (dialled.kind === 'denied') {
    recordDenial(engine, visit, protocol, dialled.denial);
    if (protocol === 'tls') client.end(ACCESS_DENIED);
    else reset(client);
    return;
  }
  recordGrant(engine, visit, protocol, decision.rule, hello?.hello.encryptedHello);
  if (dialled.kind === 'failed') {
    recordFailure(engine, visit, protocol, dialled.reason);
    reset(client);
    return;
  }
  const upstream = dialled.socket;
  const lease = traffic.open(decision.rule);
  if ('over' in lease) {
    recordFailure(engine, visit, protocol, lease.over);
    upstream.destroy();
    reset(client);
    return;
  }
  const unfollow = counters.tally(destination.host, port).follow(upstream);
  const watch =
    hello === undefined
      ? undefined
      : createHelloWatch((claim) => {
          const judged = decide(engine.rules, { destination, port, protocol: 'tls', claim });
          return judged.allowed ? undefined : judged.rule;
        });
  const objection = hello === undefined ? undefined : watch?.fromClient(head.subarray(hello.bytes));
  if (objection !== undefined) {
    recordDenial(engine, visit, protocol, { allowed: false, cause: 'claim', rule: objection });
    lease.close();
    unfollow();
    upstream.destroy();
    client.end(UNRECOGNIZED_NAME);
    client.resume();
    return;
  }
  const line = protocol === 'tcp' && head.length > 0 && port !== HTTP_PORT && port !== TLS_PORT ? createFirstLineWatch(head, port) : undefined;
  const started = { out: upstream.bytesWritten, in: upstream.bytesRead };
  relay(client, upstream, {
    lease,
    inspect: watch?.fromClient ?? line,
    observe: watch?.fromServer,
    ended: (cut) => {
      lease.close();
      unfollow();
      if (cut?.by === 'limit') recordFailure(engine, visit, protocol, cut.reason);
      else if (cut !== undefined) recordDenial(engine, visit, protocol, { allowed: false, cause: 'claim', rule: cut.reason });
      engine.emit({
        kind: 'closed',
        connection: visit.connection,
        host: destination.host,
        port,
        bytesOut: upstream.bytesWritten - started.out,
        bytesIn: upstream.bytesRead - started.in,
      });
    },
  });
  if (head.length > 0) {
    lease.take(head.length);
    upstream.write(head);
  }
  if (client.destroyed) upstream.destroy();
}

/** Ends a denied connection in a way that its client can tell. */
function refuse(engine: Engine, http: HttpEntry, socket: Socket, visit: Visit, denial: Denial, head: Buffer): void {
  if (visit.port === HTTP_PORT) {
    http.serve(socket, visit, head, denial);
    return;
  }
  if (visit.port !== TLS_PORT) {
    reset(socket);
    return;
  }
  const timer = setTimeout(() => reset(socket), engine.limits.headMs);
  const answer = (chunk: Buffer): void => {
    clearTimeout(timer);
    if (chunk[0] === 0x16) socket.end(ACCESS_DENIED);
    else reset(socket);
    socket.resume();
  };
  socket.once('close', () => clearTimeout(timer));
  if (head.length > 0) answer(head);
  else socket.once('data', answer).resume();
}

function denyTls(engine: Engine, socket: Socket, visit: Visit, predial: Predial | undefined, denial: Denial): void {
  recordDenial(engine, visit, 'tls', denial);
  abandon(predial);
  socket.end(UNRECOGNIZED_NAME);
  socket.resume();
}

/** Closes a connection that nobody needs any more, also one that isn't there yet. */
function abandon(predial: Predial | undefined): void {
  void predial?.result.then((dialled) => {
    if (dialled.kind === 'connected') dialled.socket.destroy();
  });
}
