import { Duplex } from 'node:stream';
import { ProofrunError } from '../../src/core/errors.ts';

/** The engine's frames of an attach stream without a terminal: stream, three zero bytes, length, payload. */
const HEADER_BYTES = 8;
const STDOUT = 1;
/** More than the engine ever puts into one frame. */
const LONGEST_FRAME = 16 << 20;

/** Takes the engine's framing off an attach stream. Pure but for what it keeps of an unfinished frame. */
export class AttachSplitter {
  private rest: Buffer = Buffer.alloc(0);

  /** What came on standard output. Throws ERR_LAUNCH for anything that isn't this framing. */
  push(chunk: Buffer): readonly Buffer[] {
    this.rest = this.rest.byteLength === 0 ? chunk : Buffer.concat([this.rest, chunk]);
    const parts: Buffer[] = [];
    let at = 0;
    while (this.rest.byteLength - at >= HEADER_BYTES) {
      const length = this.rest.readUInt32BE(at + 4);
      const stream = this.rest[at] ?? 0;
      if (stream > 2 || length > LONGEST_FRAME) {
        throw new ProofrunError('ERR_LAUNCH', { message: 'the engine sent what is no attach stream', hint: 'job doctor' });
      }
      if (this.rest.byteLength - at - HEADER_BYTES < length) break;
      // Standard error of the container is the shim's own last words, before it has its channel.
      if (stream === STDOUT) parts.push(this.rest.subarray(at + HEADER_BYTES, at + HEADER_BYTES + length));
      at += HEADER_BYTES + length;
    }
    this.rest = this.rest.subarray(at);
    return parts;
  }
}

/** The control channel over the container's own input and output, for where no socket of this machine reaches it. */
export class AttachChannel extends Duplex {
  private readonly raw: Duplex;
  private readonly splitter = new AttachSplitter();

  constructor(raw: Duplex) {
    super({ allowHalfOpen: false });
    this.raw = raw;
    raw.on('data', (chunk: Buffer) => {
      try {
        for (const part of this.splitter.push(chunk)) if (!this.push(part)) raw.pause();
      } catch (error) {
        this.destroy(error instanceof Error ? error : new Error(String(error)));
      }
    });
    // What came before the end is still delivered; reading it ends this side too.
    const ended = (): void => {
      this.push(null);
    };
    raw.once('end', ended);
    raw.once('close', ended);
    raw.on('error', () => undefined); // a peer that is gone is noticed by its close
  }

  override _read(): void {
    this.raw.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.raw.write(chunk, callback);
  }

  override _final(callback: (error?: Error | null) => void): void {
    this.raw.end(callback);
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.raw.destroy();
    callback(error);
  }
}
