/** What a TLS ClientHello says without being decrypted (RFC 8446 4.1.2, RFC 6066 3). */
export interface ClientHello {
  /** The host name of SNI as latin1 text, unjudged; undefined when there is none. */
  readonly serverName: string | undefined;
  /** An encrypted ClientHello is inside (RFC 9849), real or as padding: what it names can't be seen. */
  readonly encryptedHello: boolean;
}

export type HelloRead =
  /** Every byte so far fits, and some are missing. */
  | { readonly kind: 'more' }
  | { readonly kind: 'hello'; readonly hello: ClientHello; /** Bytes of the stream that the hello took, whole records. */ readonly bytes: number }
  | { readonly kind: 'refused'; readonly reason: string };

/** Longest ClientHello that is read. With post-quantum keys and tickets they have a few thousand bytes. */
export const MAX_HELLO = 65_536;

/** RFC 5246 6.2.3: the most that a record may have. */
const MAX_RECORD = 16_384 + 2048;
const HANDSHAKE = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;
const ENCRYPTED_CLIENT_HELLO = 0xfe0d;

/** Reads a stream piece by piece; each byte is looked at once. */
export interface HelloReader {
  /** Total: any bytes give a result. After `hello` or `refused` it isn't asked again. */
  push(bytes: Uint8Array): HelloRead;
}

/**
 * Reads a ClientHello from the first bytes of a stream, however records and segments cut it. Refused is what a server may read otherwise than we
 * do: other records before its end, empty records, SNI twice, more than one name, lengths that don't fit.
 */
export function createHelloReader(): HelloReader {
  const header = Buffer.alloc(5);
  let headerBytes = 0;
  let recordLeft = 0;
  const parts: Buffer[] = [];
  let collected = 0;
  /** Type and length of the handshake message. */
  const message = Buffer.alloc(4);
  let needed: number | undefined;
  let taken = 0;
  const push = (chunk: Uint8Array): HelloRead => {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    let at = 0;
    while (at < bytes.length) {
      if (recordLeft === 0) {
        const count = Math.min(5 - headerBytes, bytes.length - at);
        bytes.copy(header, headerBytes, at, at + count);
        headerBytes += count;
        at += count;
        taken += count;
        if (header[0] !== HANDSHAKE) return refused(taken === count ? 'no TLS handshake' : 'another record inside the ClientHello');
        if (headerBytes > 1 && header[1] !== 3) return refused('no TLS version that exists');
        if (headerBytes < 5) return { kind: 'more' };
        recordLeft = header.readUInt16BE(3);
        headerBytes = 0;
        if (recordLeft === 0 || recordLeft > MAX_RECORD) return refused('a record of a length that TLS forbids');
        if (needed !== undefined && collected + recordLeft > needed) return refused('more than the ClientHello in its records');
        continue;
      }
      const fragment = bytes.subarray(at, at + recordLeft);
      fragment.copy(message, collected);
      parts.push(Buffer.from(fragment));
      collected += fragment.length;
      recordLeft -= fragment.length;
      at += fragment.length;
      taken += fragment.length;
      if (message[0] !== CLIENT_HELLO) return refused('no ClientHello');
      if (needed === undefined && collected >= 4) {
        needed = 4 + message.readUIntBE(1, 3);
        if (needed > MAX_HELLO) return refused(`a ClientHello of more than ${String(MAX_HELLO)} bytes`);
        if (collected + recordLeft > needed) return refused('more than the ClientHello in its records');
      }
      if (collected === needed && recordLeft === 0) return readHandshake(Buffer.concat(parts).subarray(4), taken);
    }
    return { kind: 'more' };
  };
  return { push };
}

/** Reads a ClientHello from bytes that are there at once. */
export function readClientHello(bytes: Uint8Array): HelloRead {
  return createHelloReader().push(bytes);
}

function readHandshake(body: Buffer, bytes: number): HelloRead {
  const reader = createReader(body);
  // Version and random.
  reader.skip(34);
  reader.vector(1);
  const ciphers = reader.vector(2);
  const compressions = reader.vector(1);
  if (reader.failed() || ciphers.length < 2 || ciphers.length % 2 !== 0 || compressions.length < 1) return refused('a ClientHello whose lengths do not fit');
  const none: ClientHello = { serverName: undefined, encryptedHello: false };
  if (reader.rest() === 0) return { kind: 'hello', hello: none, bytes };
  const extensions = createReader(reader.vector(2));
  if (reader.failed() || reader.rest() !== 0) return refused('a ClientHello whose lengths do not fit');
  const seen = new Set<number>();
  let serverName: string | undefined;
  while (extensions.rest() > 0) {
    const type = extensions.number(2);
    const data = extensions.vector(2);
    if (extensions.failed()) return refused('an extension whose length does not fit');
    // RFC 8446 4.2: not more than one of a type. Which of two SNI a server takes can't be known.
    if (seen.has(type)) return refused('the same extension twice');
    seen.add(type);
    if (type === SERVER_NAME) {
      const name = readServerName(data);
      if (name === undefined) return refused('an SNI that is not one host name');
      serverName = name;
    }
  }
  return { kind: 'hello', hello: { serverName, encryptedHello: seen.has(ENCRYPTED_CLIENT_HELLO) }, bytes };
}

/** One name of the only type that there is. */
function readServerName(data: Buffer): string | undefined {
  const outer = createReader(data);
  const list = createReader(outer.vector(2));
  const type = list.number(1);
  const name = list.vector(2);
  if (outer.failed() || list.failed() || outer.rest() !== 0 || list.rest() !== 0 || type !== 0 || name.length === 0) return undefined;
  return name.toString('latin1');
}

interface Reader {
  number(size: number): number;
  /** Bytes behind a length of `size` bytes. */
  vector(size: number): Buffer;
  skip(count: number): void;
  rest(): number;
  /** Something was asked for beyond the end; everything read since is empty. */
  failed(): boolean;
}

function createReader(data: Buffer): Reader {
  let at = 0;
  let failed = false;
  const take = (count: number): Buffer => {
    failed ||= at + count > data.length;
    if (failed) return Buffer.alloc(0);
    at += count;
    return data.subarray(at - count, at);
  };
  const number = (size: number): number => {
    const bytes = take(size);
    return failed ? 0 : bytes.readUIntBE(0, size);
  };
  return {
    number,
    vector: (size) => take(number(size)),
    skip: (count) => void take(count),
    rest: () => data.length - at,
    failed: () => failed,
  };
}

function refused(reason: string): HelloRead {
  return { kind: 'refused', reason };
}
