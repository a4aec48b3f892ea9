export const HTTP_PORT = 80;
export const TLS_PORT = 443;

/** What the first bytes of a connection are. `tcp`: neither TLS nor HTTP/1. `more`: too few to tell. */
export type Sniffed = 'more' | 'tls' | 'http' | 'tcp';

/** Bytes of a first line that are waited for. */
export const MAX_REQUEST_LINE = 8192;

/** The beginning of a request line: a method, and a target that is a path, a URL or `*`. */
export const REQUEST_START = /^[!#$%&'*+.^_`|~0-9a-z-]{1,24}[\t\v\f\r ]+(?:\/|\*|https?:)/i;

/** In a first line: that it is a request of HTTP. */
export const HTTP_VERSION = /[\t\v\f\r ]HTTP\/[0-9]/i;

/**
 * Tells TLS and HTTP/1 from everything else by the first bytes that a client sends. Port 80 speaks HTTP or TLS only. Elsewhere a first line that any
 * server might take for a request is HTTP: lenient ones skip empty lines and take other white space (RFC 9112 2.2, 3). HTTP/2 without TLS begins
 * so too, and is refused as HTTP.
 */
export function sniff(bytes: Buffer, port: number): Sniffed {
  const first = bytes[0];
  if (first === undefined) return 'more';
  if (first === 0x16) return 'tls';
  if (port === HTTP_PORT) return 'http';
  let start = 0;
  while (bytes[start] === 0x0a || bytes[start] === 0x0d) start += 1;
  const end = bytes.indexOf(0x0a, start);
  const line = bytes.toString('latin1', start, Math.min(end < 0 ? bytes.length : end, start + MAX_REQUEST_LINE));
  if (!/^[!-~]*(?:[\t\v\f\r ][^\0]*)?$/.test(line)) return 'tcp';
  if (end >= 0 || bytes.length > MAX_REQUEST_LINE) return HTTP_VERSION.test(line) ? 'http' : 'tcp';
  return 'more';
}
