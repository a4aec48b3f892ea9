import { canonicalHost, type CanonicalHost } from '../policy/decide.ts';
import { formatAddress } from '../policy/cidr.ts';

/** What a SOCKS client wants (RFC 1928, RFC 1929, SOCKS4 and 4A). `reply` is to be sent before more is read. */
export type SocksRead =
  | { readonly kind: 'more' }
  | { readonly kind: 'reply'; readonly reply: Buffer; readonly bytes: number; readonly password: string | undefined; readonly next: SocksPhase }
  | { readonly kind: 'connect'; readonly destination: CanonicalHost; readonly port: number; readonly bytes: number; readonly version: 4 | 5 }
  | { readonly kind: 'refused'; readonly reply: Buffer | undefined; readonly reason: string };

export type SocksPhase = 'greeting' | 'password' | 'request';

/** Whether the connection stands, in the client's version. */
export function socksReply(version: 4 | 5, outcome: 'established' | 'denied' | 'failed'): Buffer {
  if (version === 4) return Buffer.from([0, outcome === 'established' ? 90 : 91, 0, 0, 0, 0, 0, 0]);
  const code = outcome === 'established' ? 0 : outcome === 'denied' ? 2 : 4;
  return Buffer.from([5, code, 0, 1, 0, 0, 0, 0, 0, 0]);
}

/** Reads the next message of a negotiation from the first bytes that are there. Total. `needsPassword`: only username and password will do. */
export function readSocks(bytes: Buffer, phase: SocksPhase, needsPassword: boolean): SocksRead {
  switch (phase) {
    case 'greeting':
      return bytes[0] === 4 ? readSocks4(bytes, needsPassword) : readGreeting(bytes, needsPassword);
    case 'password':
      return readPassword(bytes);
    case 'request':
      return readRequest5(bytes);
  }
}

function readGreeting(bytes: Buffer, needsPassword: boolean): SocksRead {
  const [version, count] = bytes;
  if (version === undefined) return { kind: 'more' };
  if (version !== 5) return { kind: 'refused', reply: undefined, reason: 'no SOCKS version that exists' };
  if (count === undefined || bytes.length < 2 + count) return { kind: 'more' };
  const methods = bytes.subarray(2, 2 + count);
  const method = needsPassword ? 2 : methods.includes(0) ? 0 : 2;
  if (!methods.includes(method)) return { kind: 'refused', reply: Buffer.from([5, 0xff]), reason: 'no way to authenticate that is offered' };
  return { kind: 'reply', reply: Buffer.from([5, method]), bytes: 2 + count, password: undefined, next: method === 2 ? 'password' : 'request' };
}

function readPassword(bytes: Buffer): SocksRead {
  const [version, userLength] = bytes;
  if (version === undefined) return { kind: 'more' };
  if (version !== 1) return { kind: 'refused', reply: Buffer.from([1, 1]), reason: 'no version of authentication that exists' };
  const passwordLength = userLength === undefined ? undefined : bytes[2 + userLength];
  if (userLength === undefined || passwordLength === undefined || bytes.length < 3 + userLength + passwordLength) return { kind: 'more' };
  const end = 3 + userLength + passwordLength;
  return { kind: 'reply', reply: Buffer.from([1, 0]), bytes: end, password: bytes.toString('latin1', 3 + userLength, end), next: 'request' };
}

function readRequest5(bytes: Buffer): SocksRead {
  const [version, command, reserved, type] = bytes;
  if (version === undefined) return { kind: 'more' };
  const refuse = (code: number, reason: string): SocksRead => ({ kind: 'refused', reply: Buffer.from([5, code, 0, 1, 0, 0, 0, 0, 0, 0]), reason });
  if (version !== 5) return refuse(1, 'no SOCKS version that exists');
  if (command === undefined || reserved === undefined || type === undefined) return { kind: 'more' };
  if (command !== 1) return refuse(7, 'a SOCKS command other than CONNECT');
  const length = type === 1 ? 4 : type === 4 ? 16 : type === 3 ? bytes[4] : 0;
  if (length === 0) return refuse(8, 'no type of address that exists');
  const start = type === 3 ? 5 : 4;
  if (length === undefined || bytes.length < start + length + 2) return { kind: 'more' };
  const port = bytes.readUInt16BE(start + length);
  const raw = bytes.subarray(start, start + length);
  const destination = type === 3 ? canonicalHost(raw.toString('latin1')) : addressOf(raw);
  if (destination === undefined || port === 0) return refuse(2, 'a SOCKS destination that is no host');
  return { kind: 'connect', destination, port, bytes: start + length + 2, version: 5 };
}

const MAX_TEXT = 255;

/** SOCKS4, and 4A: an address 0.0.0.x announces a name behind the user. */
function readSocks4(bytes: Buffer, needsPassword: boolean): SocksRead {
  const refuse = (reason: string): SocksRead => ({ kind: 'refused', reply: socksReply(4, 'denied'), reason });
  if (needsPassword) return refuse('SOCKS4, which knows no password');
  if (bytes.length > 1 && bytes[1] !== 1) return refuse('a SOCKS command other than CONNECT');
  const userEnd = bytes.indexOf(0, 8);
  if (userEnd < 0) return bytes.length > 8 + MAX_TEXT ? refuse('an endless user') : { kind: 'more' };
  if (userEnd - 8 > MAX_TEXT) return refuse('an endless user');
  const port = bytes.readUInt16BE(2);
  const raw = bytes.subarray(4, 8);
  const named = raw[0] === 0 && raw[1] === 0 && raw[2] === 0 && raw[3] !== 0;
  const nameEnd = named ? bytes.indexOf(0, userEnd + 1) : userEnd;
  if (nameEnd < 0) return bytes.length - userEnd > MAX_TEXT + 1 ? refuse('an endless name') : { kind: 'more' };
  const destination = named ? canonicalHost(bytes.toString('latin1', userEnd + 1, nameEnd)) : addressOf(raw);
  if (destination === undefined || port === 0) return refuse('a SOCKS destination that is no host');
  return { kind: 'connect', destination, port, bytes: nameEnd + 1, version: 4 };
}

function addressOf(raw: Buffer): CanonicalHost | undefined {
  const bits = raw.length === 4 ? 32 : 128;
  return canonicalHost(formatAddress({ bits, prefix: bits, address: BigInt(`0x${raw.toString('hex')}`) }));
}
