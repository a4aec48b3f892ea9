import { chmodSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { messageOf } from '../core/errors.ts';
import { formatLine, lineCutter, OUTPUT_PIECE, parseRequest, type ControlAnswer, type ControlRequest } from './control-protocol.ts';
import { controlAddress } from './control-socket.host.ts';
import type { KeptText, OutputStream } from './kept-output.host.ts';

/** The live run as its control socket sees it. */
export interface ControlledRun {
  /** Absolute. */
  readonly directory: string;
  /** Throws when the run can't be signalled any more; the text is told to the caller. */
  signal(name: NodeJS.Signals): void;
  kill(): void;
  stop(graceMs: number): void;
  /** What is kept of a stream so far; undefined: nothing. */
  kept(stream: OutputStream): KeptText | undefined;
}

export interface ControlServer {
  /** Passes output to those who follow. Never waits for them. */
  publish(stream: OutputStream, chunk: Uint8Array): void;
  /** Tells everybody that the run is committed, and closes. Idempotent. */
  end(): Promise<void>;
}

/** Bytes that may wait for one slow follower before its output is counted instead of sent. */
const WAITING_BYTES = 4 * 1024 * 1024;

interface Follower {
  readonly socket: Socket;
  readonly streams: ReadonlySet<OutputStream>;
  readonly missed: Record<OutputStream, number>;
}

/** Listens in the run's directory, which is 0700. Rejects with the error of listen(2): the run goes on without. */
export async function serveControl(run: ControlledRun): Promise<ControlServer> {
  const sockets = new Set<Socket>();
  const waiting = new Set<Socket>();
  const followers = new Set<Follower>();

  const say = (socket: Socket, answer: ControlAnswer): void => {
    if (socket.writable) socket.write(formatLine(answer));
  };
  const sendBytes = (socket: Socket, stream: OutputStream, bytes: Uint8Array): void => {
    for (let at = 0; at < bytes.length; at += OUTPUT_PIECE) {
      say(socket, { kind: 'output', stream, data: Buffer.from(bytes.subarray(at, at + OUTPUT_PIECE)).toString('base64') });
    }
  };
  const sendKept = (socket: Socket, stream: OutputStream): void => {
    const kept = run.kept(stream);
    if (kept === undefined) return;
    sendBytes(socket, stream, kept.head);
    const gap = kept.bytesTotal - kept.head.length - kept.tail.length;
    if (gap > 0) say(socket, { kind: 'gap', stream, bytes: gap });
    sendBytes(socket, stream, kept.tail);
  };
  const sendMissed = (follower: Follower): void => {
    for (const stream of follower.streams) {
      const bytes = follower.missed[stream];
      if (bytes > 0) say(follower.socket, { kind: 'gap', stream, bytes });
      follower.missed[stream] = 0;
    }
  };
  const obey = (socket: Socket, request: ControlRequest): void => {
    switch (request.op) {
      case 'signal':
        run.signal(request.signal);
        return say(socket, { kind: 'done' });
      case 'stop':
        run.stop(request.graceMs);
        return say(socket, { kind: 'done' });
      case 'kill':
        run.kill();
        return say(socket, { kind: 'done' });
      case 'wait':
        waiting.add(socket);
        return;
      case 'follow':
        for (const stream of request.streams) sendKept(socket, stream);
        followers.add({ socket, streams: new Set(request.streams), missed: { stdout: 0, stderr: 0 } });
        waiting.add(socket);
    }
  };

  const server = createServer((socket) => {
    sockets.add(socket);
    const cutter = lineCutter();
    socket.setEncoding('utf8');
    socket.on('data', (text: string) => {
      try {
        for (const line of cutter.feed(text)) obey(socket, parseRequest(line));
      } catch (error) {
        say(socket, { kind: 'refused', message: messageOf(error) });
      }
    });
    socket.on('error', () => socket.destroy());
    socket.on('close', () => {
      sockets.delete(socket);
      waiting.delete(socket);
      for (const follower of followers) if (follower.socket === socket) followers.delete(follower);
    });
    socket.unref();
  });
  server.unref();
  // Held until the end: libuv unlinks the address at close, and a number that meant another directory by then would unlink there.
  const address = controlAddress(run.directory);
  try {
    await listen(server, address.path);
  } catch (error) {
    address.close();
    throw error;
  }

  let ended: Promise<void> | undefined;
  return {
    publish: (stream, chunk) => {
      for (const follower of followers) {
        if (!follower.streams.has(stream)) continue;
        if (follower.socket.writableLength > WAITING_BYTES) {
          follower.missed[stream] += chunk.length;
          continue;
        }
        sendMissed(follower);
        sendBytes(follower.socket, stream, chunk);
      }
    },
    end: () => {
      ended ??= close(server, sockets, () => {
        for (const follower of followers) sendMissed(follower);
        for (const socket of waiting) say(socket, { kind: 'ended' });
      }).finally(address.close);
      return ended;
    },
  };
}

async function listen(server: Server, path: string): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(path, () => {
      server.off('error', reject);
      resolve();
    });
  });
  chmodSync(path, 0o600);
}

/** How long a follower that doesn't read may hold up the end, in milliseconds. */
const FAREWELL_MS = 2_000;

async function close(server: Server, sockets: ReadonlySet<Socket>, farewell: () => void): Promise<void> {
  farewell();
  await Promise.all(
    [...sockets].map(
      (socket) =>
        new Promise<void>((resolve) => {
          const impatience = setTimeout(() => {
            socket.destroy();
            resolve();
          }, FAREWELL_MS);
          socket.end(() => {
            clearTimeout(impatience);
            socket.destroy();
            resolve();
          });
        }),
    ),
  );
  await new Promise<void>((resolve) => {
    server.close(() => {
      resolve();
    });
  });
}
