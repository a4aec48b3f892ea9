import type { Socket as DatagramSocket } from 'node:dgram';
import type { Socket } from 'node:net';
import { MAX_DNS_MESSAGE } from './dns-message.ts';

/** Answers one message; undefined: it isn't answered. */
export type AnswerMessage = (message: Buffer) => Buffer | undefined;

/** Answers datagrams until the function that is returned is called. */
export function serveDnsDatagrams(socket: DatagramSocket, answer: AnswerMessage): () => void {
  const onMessage = (message: Buffer, sender: { readonly address: string; readonly port: number }): void => {
    const reply = answer(message);
    // A sender that can't be reached any more is its own affair.
    if (reply !== undefined) socket.send(reply, sender.port, sender.address, () => undefined);
  };
  const onError = (): void => undefined;
  socket.on('message', onMessage).on('error', onError);
  return () => void socket.off('message', onMessage);
}

/** Answers the messages of one connection, each behind its length (RFC 1035 4.2.2, RFC 7766). */
export function serveDnsConnection(socket: Socket, answer: AnswerMessage, idleMs: number): void {
  let pending = Buffer.alloc(0);
  socket.setTimeout(idleMs, () => socket.destroy());
  socket.on('data', (chunk: Buffer) => {
    pending = Buffer.concat([pending, chunk]);
    while (pending.length >= 2) {
      const length = pending.readUInt16BE(0);
      if (length > MAX_DNS_MESSAGE) return void socket.destroy();
      if (pending.length < 2 + length) return;
      const reply = answer(pending.subarray(2, 2 + length));
      pending = pending.subarray(2 + length);
      if (reply === undefined) return void socket.destroy();
      const size = Buffer.alloc(2);
      size.writeUInt16BE(reply.length);
      if (!socket.write(Buffer.concat([size, reply]))) {
        socket.pause();
        socket.once('drain', () => socket.resume());
      }
    }
  });
  socket.on('end', () => socket.end());
}
