import type { Socket } from 'node:net';
import { reset as resetSocket } from './reset.host.ts';
import type { Lease } from './traffic.ts';

export interface RelayOptions {
  readonly lease: Lease;
  /** Looks at what the client sends before it goes on; a text ends the connection. Undefined: nothing looks. */
  readonly inspect?: ((chunk: Buffer) => string | undefined) | undefined;
  /** Looks at what the server sends. */
  readonly observe?: ((chunk: Buffer) => void) | undefined;
  /** Called once, when both sockets are closed. `cut`: what ended them before their time. */
  readonly ended: (cut: Cut | undefined) => void;
}

/** A limit that was reached, or what `inspect` objected to. */
export interface Cut {
  readonly by: 'limit' | 'inspect';
  readonly reason: string;
}

/**
 * Carries bytes both ways between two connected sockets until both are closed. A side that can't take more stops the other from being read; the end
 * of one direction is handed on alone (half-close); an error or a reset of one ends the other with a reset.
 */
export function relay(client: Socket, upstream: Socket, options: RelayOptions): void {
  let cut: Cut | undefined;
  let closed = 0;
  const close = (): void => {
    closed += 1;
    if (closed === 2) options.ended(cut);
  };
  const reset = (reason?: Cut): void => {
    cut ??= reason;
    for (const socket of [client, upstream]) resetSocket(socket);
  };
  const { lease, inspect, observe } = options;
  if (!lease.metered && inspect === undefined && observe === undefined) {
    client.pipe(upstream);
    upstream.pipe(client);
  } else {
    pump(client, upstream, lease, reset, inspect);
    pump(upstream, client, lease, reset, observer(observe));
  }
  for (const [socket, other] of [
    [client, upstream],
    [upstream, client],
  ] as const) {
    socket.on('error', () => reset());
    socket.on('close', (hadError) => {
      if (hadError || !socket.readableEnded) reset();
      else if (!other.writableEnded) other.end();
      close();
    });
  }
}

function observer(observe: RelayOptions['observe']): RelayOptions['inspect'] {
  if (observe === undefined) return undefined;
  return (chunk) => {
    observe(chunk);
    return undefined;
  };
}

function pump(from: Socket, to: Socket, lease: Lease, reset: (cut: Cut) => void, inspect: ((chunk: Buffer) => string | undefined) | undefined): void {
  let timer: NodeJS.Timeout | undefined;
  let full = false;
  const resume = (): void => {
    if (!full && timer === undefined) from.resume();
  };
  from.on('data', (chunk: Buffer) => {
    const objection = inspect?.(chunk);
    if (objection !== undefined) return reset({ by: 'inspect', reason: objection });
    const taken = lease.take(chunk.length);
    if (taken.kind === 'over') return reset({ by: 'limit', reason: taken.limit });
    if (!to.write(chunk)) {
      full = true;
      from.pause();
    }
    if (taken.kind === 'wait') {
      from.pause();
      timer = setTimeout(() => {
        timer = undefined;
        resume();
      }, taken.ms);
    }
  });
  to.on('drain', () => {
    full = false;
    resume();
  });
  from.on('end', () => to.end());
  from.on('close', () => clearTimeout(timer));
  from.resume();
}
