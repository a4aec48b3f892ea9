import dnsPacket from 'dns-packet';

export const RECORD_TYPES = { A: 1, NS: 2, SOA: 6, PTR: 12, AAAA: 28, OPT: 41 } as const;
export const RCODES = { NOERROR: 0, FORMERR: 1, SERVFAIL: 2, NXDOMAIN: 3, NOTIMP: 4, REFUSED: 5 } as const;

/** A question as a resolver understands it (RFC 1035 4.1). */
export interface DnsQuestion {
  readonly id: number;
  readonly recursionDesired: boolean;
  /** The name in text, as it was sent; undefined when its labels are no text (a dot, a control character or a byte above 126 in a label). */
  readonly name: string | undefined;
  readonly type: number;
  readonly recordClass: number;
  /** The question section, byte by byte: it is repeated in the answer. */
  readonly section: Uint8Array;
  /** The sender speaks EDNS (RFC 6891), so the answer says so too. */
  readonly edns: boolean;
}

/** `drop`: nothing can be answered (no header, or an answer itself: answering those makes loops). `error`: answered with a code alone. */
export type DnsRead =
  | { readonly kind: 'drop' }
  | { readonly kind: 'error'; readonly id: number; readonly rcode: number }
  | { readonly kind: 'question'; readonly question: DnsQuestion };

/** Longest message that is read. Questions are far shorter. */
export const MAX_DNS_MESSAGE = 4096;

/** Reads one message. Total: any bytes give a result. Exactly one question, no compression in it, labels of at most 63, 255 in all. */
export function readDnsMessage(bytes: Uint8Array): DnsRead {
  const message = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (message.length < 12 || message.length > MAX_DNS_MESSAGE) return { kind: 'drop' };
  const id = message.readUInt16BE(0);
  const flags = message.readUInt16BE(2);
  if ((flags & 0x8000) !== 0) return { kind: 'drop' };
  const error = (rcode: number): DnsRead => ({ kind: 'error', id, rcode });
  if ((flags & 0x7800) !== 0) return error(RCODES.NOTIMP);
  if (message.readUInt16BE(4) !== 1 || message.readUInt16BE(6) !== 0) return error(RCODES.FORMERR);
  const name = readName(message, 12);
  if (name === undefined || name.end + 4 > message.length) return error(RCODES.FORMERR);
  const edns = hasEdns(message);
  if (edns === undefined) return error(RCODES.FORMERR);
  return {
    kind: 'question',
    question: {
      id,
      recursionDesired: (flags & 0x0100) !== 0,
      name: name.text,
      type: message.readUInt16BE(name.end),
      recordClass: message.readUInt16BE(name.end + 2),
      section: message.subarray(12, name.end + 4),
      edns,
    },
  };
}

/** Undefined when the rest of the message can't be read. The library throws on what it can't read, and joins labels: names are read here. */
function hasEdns(message: Buffer): boolean | undefined {
  if (message.readUInt16BE(8) === 0 && message.readUInt16BE(10) === 0) return false;
  // Each record costs work: a question has an OPT, and perhaps a signature.
  if (message.readUInt16BE(8) > 0 || message.readUInt16BE(10) > 4) return undefined;
  try {
    return dnsPacket.decode(message).additionals?.some((record) => record.type === 'OPT') ?? false;
  } catch {
    return undefined;
  }
}

function readName(message: Buffer, start: number): { readonly text: string | undefined; readonly end: number } | undefined {
  const labels: string[] = [];
  let at = start;
  let isText = true;
  for (;;) {
    const length = message[at];
    if (length === undefined || length > 63 || at - start + length + 1 > 255) return undefined;
    at += 1;
    if (length === 0) return { text: isText ? labels.join('.') : undefined, end: at };
    if (at + length > message.length) return undefined;
    const label = message.toString('latin1', at, at + length);
    isText &&= /^[\x21-\x2d\x2f-\x7e]+$/.test(label);
    labels.push(label);
    at += length;
  }
}

/** What is answered: a code, and records for the name that was asked for. */
export interface DnsAnswer {
  readonly rcode: number;
  readonly records: readonly DnsRecord[];
}

export type DnsRecord =
  | { readonly type: typeof RECORD_TYPES.A | typeof RECORD_TYPES.AAAA; readonly address: Uint8Array; readonly ttlSeconds: number }
  | { readonly type: typeof RECORD_TYPES.PTR; readonly name: string; readonly ttlSeconds: number };

/** The answer in wire form: authoritative-looking recursion, the question repeated byte by byte (clients compare its case), never over 512 bytes. */
export function encodeDnsAnswer(question: DnsQuestion, answer: DnsAnswer): Buffer {
  const records = answer.records.map((record) => {
    const data = record.type === RECORD_TYPES.PTR ? encodeName(record.name) : Buffer.from(record.address);
    const head = Buffer.alloc(12);
    head.writeUInt16BE(0xc00c, 0);
    head.writeUInt16BE(record.type, 2);
    head.writeUInt16BE(1, 4);
    head.writeUInt32BE(record.ttlSeconds, 6);
    head.writeUInt16BE(data.length, 10);
    return Buffer.concat([head, data]);
  });
  const opt = question.edns ? [Buffer.from([0, 0, RECORD_TYPES.OPT, 0x10, 0, 0, 0, 0, 0, 0, 0])] : [];
  const header = headerOf(question.id, answer.rcode, question.recursionDesired);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(records.length, 6);
  header.writeUInt16BE(opt.length, 10);
  return Buffer.concat([header, question.section, ...records, ...opt]);
}

/** A canonical name in wire form. */
function encodeName(name: string): Buffer {
  return Buffer.concat([...name.split('.').map((label) => Buffer.from(`${String.fromCharCode(label.length)}${label}`, 'latin1')), Buffer.alloc(1)]);
}

/** An answer that is a code alone. */
export function encodeDnsError(id: number, rcode: number): Buffer {
  return headerOf(id, rcode, false);
}

function headerOf(id: number, rcode: number, recursionDesired: boolean): Buffer {
  const header = Buffer.alloc(12);
  header.writeUInt16BE(id, 0);
  header.writeUInt16BE(0x8080 | (recursionDesired ? 0x0100 : 0) | rcode, 2);
  return header;
}
