import { reset } from './reset.host.ts';
import type { Socket } from 'node:net';
import { serveConnection } from './connection.host.ts';
import { decide } from './decide.ts';
import { recordDenial, recordFailure, recordGrant, standsFor, type Engine, type TunnelOutcome, type Visit } from './engine.ts';
import type { HttpEntry } from './http.host.ts';
import { readSocks, socksReply, type SocksPhase } from './socks.ts';

/** Serves one connection to a proxy endpoint: SOCKS 4, 4A and 5 by its first byte, else HTTP. */
export function serveProxyConnection(engine: Engine, http: HttpEntry, socket: Socket, connection: number, password: string | undefined): void {
  let pending: Buffer = Buffer.alloc(0);
  let phase: SocksPhase = 'greeting';
  const timer = setTimeout(() => reset(socket), engine.limits.headMs);
  const release = (): void => {
    clearTimeout(timer);
    socket.off('data', onData).off('close', release).off('end', onEnd).pause();
  };
  const onEnd = (): void => {
    release();
    socket.destroy();
  };
  const onData = (chunk: Buffer): void => {
    pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk]);
    if (phase === 'greeting' && pending[0] !== 4 && pending[0] !== 5) {
      release();
      http.serveProxy(socket, pending, connection, password);
      return;
    }
    for (;;) {
      const read = readSocks(pending, phase, password !== undefined);
      if (read.kind === 'more') return;
      if (read.kind === 'reply') {
        if (phase === 'password' && password !== undefined && read.password !== password) {
          release();
          socket.end(Buffer.from([1, 1]));
          socket.resume();
          return;
        }
        socket.write(read.reply);
        pending = pending.subarray(read.bytes);
        phase = read.next;
        continue;
      }
      release();
      if (read.kind === 'refused') {
        if (read.reply === undefined) socket.destroy();
        else socket.end(read.reply);
        socket.resume();
        return;
      }
      const visit: Visit = { connection, entry: 'socks', destination: standsFor(engine, read.destination), port: read.port };
      const { version } = read;
      serveTunnel(engine, http, socket, visit, pending.subarray(read.bytes), (outcome) => {
        if (outcome.kind === 'established') socket.write(socksReply(version, 'established'));
        else {
          socket.end(socksReply(version, outcome.kind));
          socket.resume();
        }
      });
      return;
    }
  };
  socket.on('data', onData).on('close', release).on('end', onEnd);
}

/**
 * Judges, connects for a client that waits for an answer before it speaks, answers, and serves the connection like any other.
 */
export function serveTunnel(engine: Engine, http: HttpEntry, socket: Socket, visit: Visit, head: Buffer, answer: (outcome: TunnelOutcome) => void): void {
  const decision = decide(engine.rules, { destination: visit.destination, port: visit.port, protocol: 'tcp' });
  if (!decision.allowed) {
    recordDenial(engine, visit, 'tcp', decision);
    answer({ kind: 'denied', rule: decision.rule });
    return;
  }
  const protocol = visit.port === 443 ? 'tls' : visit.port === 80 ? 'http' : 'tcp';
  const result = engine.dialler.dial(decision, visit.destination, visit.port, protocol);
  void result.then((dialled) => {
    if (dialled.kind === 'connected') {
      if (socket.destroyed) {
        dialled.socket.destroy();
        return;
      }
      answer({ kind: 'established' });
      serveConnection(engine, http, socket, visit, head, { protocol, result });
      return;
    }
    if (dialled.kind === 'denied') {
      recordDenial(engine, visit, 'tcp', dialled.denial);
      answer({ kind: 'denied', rule: dialled.denial.rule });
      return;
    }
    recordGrant(engine, visit, 'tcp', decision.rule);
    recordFailure(engine, visit, 'tcp', dialled.reason);
    answer({ kind: 'failed', rule: dialled.reason });
  });
}
