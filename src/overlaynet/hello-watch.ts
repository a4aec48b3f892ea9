import { createHelloReader, type HelloReader } from './client-hello.ts';

/**
 * Watches a TLS connection behind its first ClientHello, until the server has answered. A server may ask for a second ClientHello (HelloRetryRequest,
 * RFC 8446 4.1.4), and one that is lenient takes another name from it. Early data and ChangeCipherSpec may come before it.
 */
export interface HelloWatch {
  /** What the client sends. A text: the connection must end, this piece must not go on. */
  fromClient(chunk: Buffer): string | undefined;
  /** What the server sends. */
  fromServer(chunk: Buffer): void;
}

/** RFC 8446 4.1.3: the random of a ServerHello that asks for another ClientHello. */
const RETRY_RANDOM = Buffer.from('cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c', 'hex');
const HANDSHAKE = 22;

/** `agrees` judges the SNI of a second ClientHello; undefined: it may go on. */
export function createHelloWatch(agrees: (serverName: string | undefined) => string | undefined): HelloWatch {
  let watching = true;
  let answered = false;
  let serverHead = Buffer.alloc(0);
  const header = Buffer.alloc(5);
  let headerBytes = 0;
  let left = 0;
  let reader: HelloReader | undefined;

  const fromClient = (chunk: Buffer): string | undefined => {
    for (let at = 0; watching && at < chunk.length;) {
      if (left === 0) {
        const count = Math.min(5 - headerBytes, chunk.length - at);
        chunk.copy(header, headerBytes, at, at + count);
        headerBytes += count;
        at += count;
        if (headerBytes < 5) return undefined;
        headerBytes = 0;
        left = header.readUInt16BE(3);
        if (header[0] === HANDSHAKE) {
          reader ??= createHelloReader();
          reader.push(header);
        } else if (reader !== undefined) return 'another record inside the second ClientHello';
        continue;
      }
      const piece = chunk.subarray(at, at + left);
      left -= piece.length;
      at += piece.length;
      if (reader === undefined) continue;
      const read = reader.push(piece);
      if (read.kind === 'refused') return `second ClientHello: ${read.reason}`;
      if (read.kind === 'hello') {
        const objection = agrees(read.hello.serverName);
        if (objection !== undefined) return objection;
        // A third one is a fault in every version of TLS; it is judged all the same while the server hasn't answered.
        reader = undefined;
        if (answered) watching = false;
      }
    }
    return undefined;
  };

  const fromServer = (chunk: Buffer): void => {
    if (answered) return;
    serverHead = Buffer.concat([serverHead, chunk.subarray(0, 64)]);
    // Record header, handshake header, version, random.
    if (serverHead.length < 5 + 4 + 2 + 32 && serverHead[0] === HANDSHAKE) return;
    answered = true;
    const retry = serverHead[0] === HANDSHAKE && serverHead[5] === 2 && serverHead.subarray(11, 43).equals(RETRY_RANDOM);
    // A second ClientHello that is half way here is judged to its end.
    if (!retry && reader === undefined) watching = false;
  };
  return { fromClient, fromServer };
}
