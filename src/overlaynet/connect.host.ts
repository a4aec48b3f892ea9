import { connect, isIPv6, type Socket } from 'node:net';
import { errnoOf } from '../core/errors.ts';

export type Connected =
  { readonly kind: 'connected'; readonly socket: Socket; readonly address: string } | { readonly kind: 'failed'; readonly reason: string };

/** What a socket holds before it stops the other: more than the 64 KiB that one read gives, else each piece would stop and start it. */
export const HELD_BYTES = 131_072;

/** Of a socket's stream; `net` hands it on, and its types leave it out. */
const HELD: object = { highWaterMark: HELD_BYTES };

/** RFC 8305 5: how long one attempt is waited for before the next begins beside it. */
const ATTEMPT_DELAY_MS = 250;

/** IPv6 and IPv4 in turn, beginning with the family of the first (RFC 8305 4). */
export function interleave(addresses: readonly string[]): readonly string[] {
  const first = addresses.filter((address) => isIPv6(address) === isIPv6(addresses[0] ?? ''));
  const second = addresses.filter((address) => !first.includes(address));
  return first.flatMap((address, index) => [address, ...second.slice(index, index + 1)]).concat(second.slice(first.length));
}

/**
 * Connects to the first address that answers. Attempts begin one after the other, a quarter of a second apart or when one fails; the first
 * to connect wins and the others are closed. Never rejects. The socket allows half-close, has no delay, and probes a silent peer.
 */
export function connectFirst(addresses: readonly string[], port: number, timeoutMs: number): Promise<Connected> {
  const order = interleave(addresses);
  return new Promise((resolve) => {
    const attempts = new Set<Socket>();
    let next = 0;
    let reason = 'no address';
    let pause: NodeJS.Timeout | undefined;
    let settled = false;
    const settle = (result: Connected): void => {
      if (settled) return;
      settled = true;
      clearTimeout(pause);
      clearTimeout(deadline);
      for (const attempt of attempts) if (result.kind === 'failed' || attempt !== result.socket) attempt.destroy();
      resolve(result);
    };
    const deadline = setTimeout(() => settle({ kind: 'failed', reason: `no answer within ${String(timeoutMs)} ms` }), timeoutMs);
    const begin = (): void => {
      clearTimeout(pause);
      const address = order[next];
      if (settled) return;
      if (address === undefined) {
        if (attempts.size === 0) settle({ kind: 'failed', reason });
        return;
      }
      next += 1;
      const socket = connect({ host: address, port, allowHalfOpen: true, noDelay: true, keepAlive: true, keepAliveInitialDelay: 30_000, ...HELD });
      attempts.add(socket);
      const failed = (error: Error): void => {
        attempts.delete(socket);
        reason = `${address} port ${String(port)}: ${errnoOf(error) ?? 'can not be connected to'}`;
        begin();
      };
      socket.once('error', failed);
      socket.once('connect', () => {
        socket.off('error', failed);
        // Whoever takes the socket listens too; until then an error must not be an uncaught one.
        socket.on('error', () => undefined);
        settle({ kind: 'connected', socket, address });
      });
      pause = setTimeout(begin, ATTEMPT_DELAY_MS);
    };
    begin();
  });
}
