import { canonicalHost, type CanonicalHost } from '../policy/decide.ts';

export interface Authority {
  readonly host: CanonicalHost;
  readonly port: number | undefined;
}

/**
 * Reads `host`, `host:port` or `[v6]:port` as in a Host header or a CONNECT target (RFC 9110 7.2, RFC 3986 3.2). No userinfo, no empty
 * port, an IPv6 address only in brackets. Undefined for anything else.
 */
export function readAuthority(text: string): Authority | undefined {
  const match = /^(\[[^\]]*\]|[^:[\]]*)(?::([0-9]+))?$/.exec(text);
  const [, hostText = '', portText] = match ?? [];
  if (match === null || hostText === '') return undefined;
  const host = canonicalHost(hostText);
  if (host === undefined) return undefined;
  if (portText === undefined) return { host, port: undefined };
  const port = readPort(portText);
  return port === undefined ? undefined : { host, port };
}

/** A port from 1 to 65535 without a leading zero. */
export function readPort(text: string): number | undefined {
  const port = /^[1-9][0-9]{0,4}$/.test(text) ? Number(text) : undefined;
  return port !== undefined && port <= 65535 ? port : undefined;
}
