import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';

/**
 * Ends a connection at once, with a reset where the socket can send one. Node's own `resetAndDestroy` first waits until everything written is taken,
 * which a peer that doesn't read never lets happen; what it then does is asked for here directly. Behind a shutdown the kernel handle refuses a
 * reset and Node would leave it open (libuv, uv_tcp_close_reset), so an ended socket is closed.
 */
export function reset(socket: Socket): void {
  if (socket.destroyed) return;
  if (!socket.writableEnded && !(socket instanceof TLSSocket)) Object.assign(socket, { resetAndClosing: true });
  socket.destroy();
}
