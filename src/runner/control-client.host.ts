import { connect, type Socket } from 'node:net';
import { errnoOf } from '../core/errors.ts';
import { formatLine, lineCutter, parseAnswer, type ControlAnswer, type ControlRequest } from './control-protocol.ts';
import { controlAddress } from './control-socket.host.ts';

/** How a conversation with the owner of a run went. */
export type ControlOutcome =
  /** The owner answered; for `wait` and `follow`: the run is committed. */
  | { readonly kind: 'done' }
  | { readonly kind: 'refused'; readonly message: string }
  /** Nobody listens: the owner has not begun to, has ended, or is dead. */
  | { readonly kind: 'absent' }
  /** The owner went away in the middle. */
  | { readonly kind: 'lost' };

export interface ControlCall {
  readonly request: ControlRequest;
  /** Output of a `follow`. The next piece comes when it resolves. */
  readonly onOutput?: (answer: Extract<ControlAnswer, { kind: 'output' | 'gap' }>) => Promise<void> | void;
  /** Ends the conversation; the run is left alone. */
  readonly abort?: AbortSignal;
}

/** Talks to the owner of the run in `directory`. Rejects when aborted, and for a socket that isn't ours to use (EACCES). */
export async function callOwner(directory: string, call: ControlCall): Promise<ControlOutcome> {
  const socket = await reach(directory);
  if (socket === undefined) return { kind: 'absent' };
  const onAbort = (): void => {
    socket.destroy();
  };
  call.abort?.addEventListener('abort', onAbort, { once: true });
  try {
    socket.write(formatLine(call.request));
    return await converse(socket, call);
  } finally {
    call.abort?.removeEventListener('abort', onAbort);
    socket.destroy();
    call.abort?.throwIfAborted();
  }
}

async function converse(socket: Socket, call: ControlCall): Promise<ControlOutcome> {
  const cutter = lineCutter();
  socket.setEncoding('utf8');
  try {
    for await (const text of socket as AsyncIterable<string>) {
      for (const line of cutter.feed(text)) {
        const answer = parseAnswer(line);
        if (answer.kind === 'done' || answer.kind === 'ended') return { kind: 'done' };
        if (answer.kind === 'refused') return answer;
        await call.onOutput?.(answer);
      }
    }
  } catch (error) {
    const errno = errnoOf(error);
    if (errno !== 'ECONNRESET' && errno !== 'EPIPE' && errno !== 'ERR_STREAM_PREMATURE_CLOSE' && errno !== 'ABORT_ERR') throw error;
  }
  return { kind: 'lost' };
}

async function reach(directory: string): Promise<Socket | undefined> {
  let address: ReturnType<typeof controlAddress>;
  try {
    address = controlAddress(directory);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
  try {
    return await new Promise<Socket>((resolve, reject) => {
      const socket = connect(address.path);
      socket.once('error', reject);
      socket.once('connect', () => {
        socket.off('error', reject);
        socket.on('error', () => undefined);
        resolve(socket);
      });
    });
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === 'ENOENT' || errno === 'ECONNREFUSED' || errno === 'ENOTDIR') return undefined;
    throw error;
  } finally {
    address.close();
  }
}
