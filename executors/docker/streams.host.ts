import { Readable } from 'node:stream';
import { INPUT_WINDOW_BYTES, type Command } from '../shim/protocol.ts';

/** Output that may be on its way or unread here, per stream. */
const OUTPUT_WINDOW_BYTES = 256 << 10;

/** One output stream of the command. What isn't read isn't asked for: backpressure reaches the command. */
export class OutputStream extends Readable {
  private readonly number: 1 | 2;
  private readonly send: (command: Command) => void;
  private owed = 0;

  constructor(number: 1 | 2, send: (command: Command) => void) {
    super();
    this.number = number;
    this.send = send;
  }

  /** With the configuration, before anything is read. */
  begin(): Command {
    return { do: 'credit', stream: this.number, bytes: OUTPUT_WINDOW_BYTES };
  }

  deliver(bytes: Buffer): void {
    this.owed += bytes.byteLength;
    // Nobody listens any more: what comes is dropped, and the command goes on.
    if (this.destroyed) this.repay();
    else this.push(bytes);
  }

  finish(): void {
    if (!this.destroyed) this.push(null);
  }

  override _read(): void {
    this.repay();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.repay();
    callback(error);
  }

  private repay(): void {
    if (this.owed === 0) return;
    this.send({ do: 'credit', stream: this.number, bytes: this.owed });
    this.owed = 0;
  }
}

/** Sends a readable on to the command, as far as the shim has room. */
export class InputPump {
  private readonly source: Readable;
  private readonly send: (command: Command) => void;
  private room = INPUT_WINDOW_BYTES;
  private rest: Buffer = Buffer.alloc(0);
  private ended = false;
  private stopped = false;
  private readonly onData = (chunk: Buffer): void => {
    this.rest = this.rest.byteLength === 0 ? chunk : Buffer.concat([this.rest, chunk]);
    this.move();
  };
  private readonly onEnd = (): void => {
    this.ended = true;
    this.move();
  };

  constructor(source: Readable, send: (command: Command) => void) {
    this.source = source;
    this.send = send;
  }

  start(): void {
    this.source.on('data', this.onData);
    this.source.once('end', this.onEnd);
    this.source.once('error', this.onEnd);
    this.source.resume();
  }

  /** The shim passed bytes on; 0: nobody reads them any more. */
  credit(bytes: number): void {
    if (bytes === 0) {
      this.stop();
      return;
    }
    this.room += bytes;
    this.move();
  }

  /** Leaves the source as it was: paused, without listeners of ours. */
  stop(): void {
    if (this.stopped) return;
    this.stopped = true;
    this.source.removeListener('data', this.onData);
    this.source.removeListener('end', this.onEnd);
    this.source.removeListener('error', this.onEnd);
    this.source.pause();
  }

  private move(): void {
    if (this.stopped) return;
    while (this.rest.byteLength > 0 && this.room > 0) {
      const part = this.rest.subarray(0, this.room);
      this.rest = this.rest.subarray(part.byteLength);
      this.room -= part.byteLength;
      this.send({ do: 'input', bytes: part });
    }
    if (this.rest.byteLength > 0) this.source.pause();
    else if (this.ended) {
      this.send({ do: 'input_end' });
      this.stop();
    } else this.source.resume();
  }
}
