import { coversCidr, parseCidr } from '../policy/cidr.ts';
import type { CanonicalHost } from '../policy/decide.ts';
import { isOwnLoopback } from './decide.ts';

/** A proxy that the host itself has to use. */
export interface UpstreamProxy {
  /** Of the connection to the proxy. */
  readonly secure: boolean;
  /** Name or address, without brackets. */
  readonly host: string;
  readonly port: number;
  /** Value of Proxy-Authorization. */
  readonly authorization: string | undefined;
}

/** What the proxy variables of the host say. */
export interface UpstreamProxies {
  /** For plain HTTP requests. */
  readonly http: UpstreamProxy | undefined;
  /** For TLS connections. */
  readonly https: UpstreamProxy | undefined;
  readonly noProxy: readonly string[];
}

export type ProxyVariables = Readonly<Partial<Record<'HTTP_PROXY' | 'http_proxy' | 'HTTPS_PROXY' | 'https_proxy' | 'NO_PROXY' | 'no_proxy', string>>>;

export type UpstreamRead = { readonly kind: 'ok'; readonly proxies: UpstreamProxies } | { readonly kind: 'error'; readonly message: string };

/** Reads the proxy variables of the host. The lower-case one wins, as in curl. A value that can't be used is an error: going around a proxy that is required would fail, or worse, work. */
export function readProxyVariables(env: ProxyVariables): UpstreamRead {
  const read: Partial<Record<'http' | 'https', UpstreamProxy>> = {};
  for (const scheme of ['http', 'https'] as const) {
    const name = `${scheme}_proxy` as const;
    const variable = env[name] === undefined ? (`${scheme.toUpperCase()}_PROXY` as 'HTTP_PROXY') : name;
    const value = env[variable];
    if (value === undefined || value === '') continue;
    const proxy = readProxyUrl(value);
    if (proxy === undefined) {
      return { kind: 'error', message: `${variable} of this machine: expected http://[user:password@]host:port or https://..., got ${withoutPassword(value)}` };
    }
    read[scheme] = proxy;
  }
  const noProxy = (env.no_proxy ?? env.NO_PROXY ?? '').split(/[\s,]+/).filter((entry) => entry !== '');
  return { kind: 'ok', proxies: { http: read.http, https: read.https, noProxy } };
}

function readProxyUrl(text: string): UpstreamProxy | undefined {
  const url = URL.parse(text.includes('://') ? text : `http://${text}`);
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:') || url.hostname === '') return undefined;
  const secure = url.protocol === 'https:';
  const user = decode(url.username);
  const password = decode(url.password);
  if (user === undefined || password === undefined) return undefined;
  return {
    secure,
    host: url.hostname.replace(/^\[(.*)\]$/, '$1'),
    port: url.port === '' ? (secure ? 443 : 80) : Number(url.port),
    authorization: user === '' && password === '' ? undefined : `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`,
  };
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

function withoutPassword(text: string): string {
  return JSON.stringify(text.replace(/\/\/[^/@]*@/, '//***@').slice(0, 200));
}

/**
 * The proxy that a connection takes, or undefined for a direct one. `NO_PROXY`: `*`, names that cover what is below them (with or without a leading dot
 * or `*.`), addresses, blocks, each with an optional port. The host's own loopback never takes a proxy.
 */
export function proxyFor(proxies: UpstreamProxies, protocol: 'tcp' | 'tls' | 'http', { kind, host }: CanonicalHost, port: number): UpstreamProxy | undefined {
  const proxy = protocol === 'http' ? proxies.http : protocol === 'tls' ? proxies.https : undefined;
  if (proxy === undefined || isOwnLoopback(host)) return undefined;
  return proxies.noProxy.some((entry) => exempts(entry.toLowerCase(), kind, host, port)) ? undefined : proxy;
}

function exempts(entry: string, kind: CanonicalHost['kind'], host: string, port: number): boolean {
  if (entry === '*') return true;
  const block = parseCidr(entry.replace(/^\[(.*)\]$/, '$1'));
  if (block !== undefined) return kind === 'address' && coversCidr(block, host);
  const [, text = '', portText] = /^(.*?)(?::([0-9]+))?$/.exec(entry) ?? [];
  if (portText !== undefined && Number(portText) !== port) return false;
  const bare = text
    .replace(/^\[(.*)\]$/, '$1')
    .replace(/^\*?\./, '')
    .replace(/\.$/, '');
  if (kind === 'address') return bare === host;
  return host === bare || host.endsWith(`.${bare}`);
}
