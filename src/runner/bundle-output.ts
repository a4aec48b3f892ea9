import { isUtf8 } from 'node:buffer';
import type { BundleOutput } from '../core/bundle.ts';

/** Exact bytes of the beginning and of the end of one stream; `tail` is empty unless bytes between the two are missing. */
export interface StreamBytes {
  readonly stream: BundleOutput['stream'];
  readonly head: Uint8Array;
  readonly tail: Uint8Array;
  /** Bytes that arrived in all. */
  readonly bytesTotal: number;
}

/** Bytes of head and of tail that a bundle keeps of each stream. */
export const EXCERPT_BYTES = 8 * 1024;

/**
 * The bundle's record of a stream: at most `excerpt` bytes of head and of tail, cut between characters where the text is UTF-8, base64
 * where it isn't.
 */
export function describeOutput(bytes: StreamBytes, excerpt: number = EXCERPT_BYTES): BundleOutput {
  const gap = bytes.head.length + bytes.tail.length < bytes.bytesTotal;
  const whole = gap ? undefined : Buffer.concat([bytes.head, bytes.tail]);
  if (whole !== undefined && whole.length <= 2 * excerpt) return encode(bytes, whole, Buffer.alloc(0));
  const head = Buffer.from(whole ?? bytes.head).subarray(0, excerpt);
  const tail = Buffer.from(whole ?? bytes.tail);
  return encode(bytes, trimEnd(head), trimStart(tail.subarray(Math.max(0, tail.length - excerpt))));
}

/** Bytes that an output of a bundle holds. Throws for base64 that isn't. */
export function keptBytes(output: BundleOutput): number {
  return byteLength(output.head, output.encoding) + byteLength(output.tail, output.encoding);
}

function byteLength(text: string, encoding: BundleOutput['encoding']): number {
  if (encoding === 'utf8') return Buffer.byteLength(text, 'utf8');
  const bytes = Buffer.from(text, 'base64');
  if (bytes.toString('base64') !== text) throw new Error('an output is not base64');
  return bytes.length;
}

function encode(bytes: StreamBytes, head: Buffer, tail: Buffer): BundleOutput {
  const encoding = isUtf8(head) && isUtf8(tail) ? 'utf8' : 'base64';
  return {
    stream: bytes.stream,
    encoding,
    head: head.toString(encoding),
    tail: tail.toString(encoding),
    bytesTotal: bytes.bytesTotal,
    truncated: bytes.bytesTotal > head.length + tail.length,
  };
}

/** Without the beginning of a character whose end was cut off. */
function trimEnd(bytes: Buffer): Buffer {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (byte < 0x80) return bytes;
    if (byte >= 0xc0) {
      const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
      return length > back ? bytes.subarray(0, bytes.length - back) : bytes;
    }
  }
  return bytes;
}

/** Without the end of a character whose beginning was cut off. */
function trimStart(bytes: Buffer): Buffer {
  for (let at = 0; at < Math.min(4, bytes.length); at += 1) {
    if (((bytes[at] ?? 0) & 0xc0) !== 0x80) return bytes.subarray(at);
  }
  return bytes;
}
