import { readAuthority, type Authority } from './authority.ts';

/** The head of a request, as Node's parser gives it. */
export interface RequestHead {
  readonly method: string;
  readonly url: string;
  /** `1.1` or `1.0`. */
  readonly httpVersion: string;
  /** Names and values in turn, as received. */
  readonly rawHeaders: readonly string[];
}

export type RequestRead =
  | {
      readonly kind: 'ok';
      readonly form: 'origin' | 'absolute' | 'asterisk' | 'authority';
      /** What the target itself names: absolute form and CONNECT. */
      readonly target: Authority | undefined;
      /** Just as received. Undefined: an HTTP/1.0 request without Host. */
      readonly hostHeader: string | undefined;
      /** Origin form of the target, byte by byte. */
      readonly path: string;
      readonly hasBody: boolean;
    }
  | { readonly kind: 'refused'; readonly reason: string };

/**
 * Reads what a request is for, and refuses what two servers may read in two ways (RFC 9112 3.2, 6.1, 6.3): two Host or Content-Length,
 * Content-Length beside Transfer-Encoding, any coding but `chunked`, a target of no form, a target and a Host that disagree.
 */
export function readRequest(head: RequestHead): RequestRead {
  const all = (name: string): string[] => head.rawHeaders.filter((_, index) => index % 2 === 1 && head.rawHeaders[index - 1]?.toLowerCase() === name);
  if (head.httpVersion !== '1.1' && head.httpVersion !== '1.0') return refused(`HTTP/${head.httpVersion.slice(0, 8)}`);
  const hosts = all('host');
  const lengths = all('content-length');
  const codings = all('transfer-encoding');
  const [hostHeader] = hosts;
  const [length] = lengths;
  const [coding] = codings;
  if (hosts.length > 1) return refused('more than one Host');
  if (hostHeader === undefined && head.httpVersion === '1.1') return refused('no Host');
  if (lengths.length > 1 || (length !== undefined && !/^[0-9]{1,15}$/.test(length))) return refused('a Content-Length that is not one number');
  if (codings.length > 1 || (coding !== undefined && coding.toLowerCase() !== 'chunked')) return refused('a Transfer-Encoding other than chunked');
  if (coding !== undefined && (length !== undefined || head.httpVersion === '1.0')) return refused('two lengths of the body');
  const hasBody = coding !== undefined || (length !== undefined && Number(length) > 0);
  // What Node's own client refuses to send would be thrown there.
  if (/[^\x21-\x7e\x80-\xff]/.test(head.url)) return refused('a target with characters that no target has');
  const host = hostHeader === undefined ? undefined : readAuthority(hostHeader);
  if (hostHeader !== undefined && host === undefined) return refused('a Host that is no host');

  if (head.method === 'CONNECT') {
    const target = readAuthority(head.url);
    if (target?.port === undefined) return refused('a CONNECT target that is not host:port');
    if (host !== undefined && !agree(target, host, target.port)) return refused('CONNECT target and Host disagree');
    return { kind: 'ok', form: 'authority', target, hostHeader, path: '', hasBody };
  }
  if (head.url.startsWith('/')) return { kind: 'ok', form: 'origin', target: undefined, hostHeader, path: head.url, hasBody };
  if (head.url === '*' && head.method === 'OPTIONS') return { kind: 'ok', form: 'asterisk', target: undefined, hostHeader, path: '*', hasBody };
  const absolute = /^(?:http|ws):\/\/([^/?#\\]*)([/?].*)?$/i.exec(head.url);
  if (absolute === null) return refused('a target that is neither a path nor an http URL');
  const [, authority = '', rest = ''] = absolute;
  const target = readAuthority(authority);
  if (target === undefined) return refused('a target whose host is no host');
  if (host !== undefined && !agree(target, host, 80)) return refused('target and Host disagree');
  return { kind: 'ok', form: 'absolute', target, hostHeader, path: rest.startsWith('/') ? rest : `/${rest}`, hasBody };
}

function agree(target: Authority, host: Authority, defaultPort: number): boolean {
  return target.host.host === host.host.host && (host.port === undefined || host.port === (target.port ?? defaultPort));
}

function refused(reason: string): RequestRead {
  return { kind: 'refused', reason };
}

/** Headers that concern one connection only, and those that Connection names (RFC 9110 7.6.1). Lower case. */
export function connectionHeaders(rawHeaders: readonly string[]): ReadonlySet<string> {
  const names = new Set(['keep-alive', 'proxy-connection', 'proxy-authorization', 'te', 'trailer', 'upgrade', 'http2-settings', 'expect']);
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    if (rawHeaders[index]?.toLowerCase() !== 'connection') continue;
    for (const token of rawHeaders[index + 1]?.toLowerCase().split(',') ?? []) names.add(token.trim());
  }
  // What frames and routes the message is never a connection's own, whatever Connection says.
  for (const name of ['', 'close', 'host', 'content-length', 'transfer-encoding', 'connection']) names.delete(name);
  return names;
}
