import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { BlockList, isIP, type LookupFunction } from 'node:net';
import { lookup, type LookupAddress, type LookupAllOptions } from 'node:dns';
import { messageOf, ProofrunError } from '../core/errors.ts';
import { redaction } from './redact.ts';

export interface KeyedRequest {
  /** https, or http to a loopback address. */
  readonly url: string;
  readonly method: 'POST' | 'GET';
  readonly headers: Readonly<Record<string, string>>;
  /** The header that carries the key. */
  readonly key: { readonly header: string; readonly value: string };
  readonly body: string | undefined;
  readonly signal: AbortSignal;
  /** How names are looked up for plain http. Default: as the system does. */
  readonly resolve?: Resolve;
}

/** All addresses of a name. */
export type Resolve = (
  name: string,
  options: LookupAllOptions,
  callback: (error: NodeJS.ErrnoException | null, addresses: readonly LookupAddress[]) => void,
) => void;

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addAddress('::1', 'ipv6');
loopback.addSubnet('::ffff:127.0.0.0', 104, 'ipv6');

/** Whether a dialled address is this machine's own. */
export function isLoopback(address: string): boolean {
  const family = isIP(address);
  return family !== 0 && loopback.check(address, family === 4 ? 'ipv4' : 'ipv6');
}

/**
 * Sends a request with a key to where it was meant to go, and nowhere else: no redirect is followed, no proxy variable is read, and over plain http
 * the address that is really dialled must be a loopback one. The caller reads and ends the response. Rejects with ERR_USAGE for a place that a
 * key may not go to, else with ERR_LAUNCH; no message holds the key.
 */
export async function sendKeyed(plan: KeyedRequest): Promise<IncomingMessage> {
  const redact = redaction([plan.key.value]);
  const url = readUrl(plan.url, redact);
  const plain = url.protocol === 'http:';
  // A literal address is dialled without a look-up, so it is judged here.
  const literal = url.hostname.replace(/^\[|\]$/g, '');
  if (plain && isIP(literal) !== 0 && !isLoopback(literal)) throw notThere(url);
  return await new Promise<IncomingMessage>((resolve, reject) => {
    const fail = (error: unknown): void => {
      reject(
        error instanceof ProofrunError
          ? error
          : new ProofrunError('ERR_LAUNCH', { message: redact(`${url.origin}: ${messageOf(error)}`), hint: 'look whether it answers' }),
      );
    };
    const send = plain ? httpRequest : httpsRequest;
    const sent = send(url, {
      method: plan.method,
      headers: { ...plan.headers, [plan.key.header]: plan.key.value },
      agent: false,
      signal: plan.signal,
      ...(plain ? { lookup: loopbackLookup(url, plan.resolve ?? lookup) } : {}),
    });
    sent.on('error', fail);
    sent.on('response', (response) => {
      const { statusCode = 0 } = response;
      if (statusCode >= 300 && statusCode < 400) {
        response.resume();
        sent.destroy();
        fail(
          new ProofrunError('ERR_USAGE', {
            message: `${url.origin}: it answers with a redirect (${statusCode}), and a key follows none`,
            hint: 'name the place itself',
          }),
        );
        return;
      }
      resolve(response);
    });
    sent.end(plan.body);
  });
}

/** Resolves once, and gives only loopback addresses: what is checked is what is dialled. */
function loopbackLookup(url: URL, resolve: Resolve): LookupFunction {
  return (hostname, options, callback) => {
    resolve(hostname, { ...options, all: true }, (error, addresses) => {
      const found = error === null ? addresses : [];
      const [first] = found;
      if (error !== null) callback(error, '', 0);
      else if (first === undefined || !found.every(({ address }) => isLoopback(address))) callback(notThere(url), '', 0);
      else if (options.all === true) callback(null, [...found]);
      else callback(null, first.address, first.family);
    });
  };
}

function readUrl(text: string, redact: (text: string) => string): URL {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new ProofrunError('ERR_USAGE', { message: `expected a URL, received ${JSON.stringify(redact(text)).slice(0, 200)}`, hint: 'write https://...' });
  }
  if (url.protocol !== 'https:' && url.protocol !== 'http:') {
    throw new ProofrunError('ERR_USAGE', { message: `${url.protocol} carries no key`, hint: 'write https://...' });
  }
  if (url.username !== '' || url.password !== '') {
    throw new ProofrunError('ERR_USAGE', { message: 'a URL with a user or password in it', hint: 'state the key apart' });
  }
  return url;
}

function notThere(url: URL): ProofrunError {
  return new ProofrunError('ERR_USAGE', { message: `${url.origin}: over plain http a key goes to this machine only`, hint: 'write https://...' });
}
