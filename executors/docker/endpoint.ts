import { createHash } from 'node:crypto';
import { ProofrunError } from '../../src/core/errors.ts';

/** How an engine is reached. Paths of keys and certificates are read when the connection is made. */
export type Endpoint =
  | { readonly kind: 'unix'; readonly path: string }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number; readonly tls: TlsFiles | undefined }
  | { readonly kind: 'ssh'; readonly destination: string; readonly port: number | undefined };

export interface TlsFiles {
  /** Directory of ca.pem, cert.pem and key.pem; each may be missing. */
  readonly directory: string;
  /** False: the engine's certificate is not checked, as a context may say. */
  readonly verify: boolean;
}

export interface ChosenEndpoint {
  readonly endpoint: Endpoint;
  /** Who chose it: `DOCKER_HOST`, `the context NAME (DOCKER_CONTEXT)`, `the context NAME (~/.docker/config.json)`, `the default`. */
  readonly from: string;
}

export const DEFAULT_SOCKET = '/var/run/docker.sock';
const PLAIN_PORT = 2375;
const TLS_PORT = 2376;

function unusable(message: string, hint: string): ProofrunError {
  return new ProofrunError('ERR_EXECUTOR_UNAVAILABLE', { message, hint });
}

/** Text of DOCKER_HOST or of a context's Host. Throws ERR_EXECUTOR_UNAVAILABLE, naming where it came from. */
export function parseHost(text: string, from: string, tls: TlsFiles | undefined): Endpoint {
  const expected = 'unix:///path/docker.sock, tcp://host:2376 or ssh://user@host';
  if (text.startsWith('unix://')) {
    const path = text.slice('unix://'.length);
    if (!path.startsWith('/')) throw unusable(`${from} names no absolute socket: ${JSON.stringify(text)}`, `expected ${expected}`);
    return { kind: 'unix', path };
  }
  if (!/^(tcp|http|https|ssh):\/\//.test(text)) throw unusable(`${from} is no address of an engine: ${JSON.stringify(text)}`, `expected ${expected}`);
  let url: URL;
  try {
    // `tcp:` has no host in the URL standard's sense; the others keep theirs.
    url = new URL(text.replace(/^(tcp|https?|ssh):/, 'http:'));
  } catch {
    throw unusable(`${from} is no address of an engine: ${JSON.stringify(text)}`, `expected ${expected}`);
  }
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  if (text.startsWith('ssh:')) {
    if (url.password !== '') throw unusable(`${from} holds a password`, 'ssh asks for it, or use a key');
    // ssh reads a word that begins with a dash as an option.
    if (host === '' || host.startsWith('-') || url.username.startsWith('-')) {
      throw unusable(`${from} names no host: ${JSON.stringify(text)}`, `expected ${expected}`);
    }
    return {
      kind: 'ssh',
      destination: url.username === '' ? host : `${decodeURIComponent(url.username)}@${host}`,
      port: url.port === '' ? undefined : Number(url.port),
    };
  }
  const port = url.port !== '' ? Number(url.port) : /^http:.*:80(\/|$)/.test(text) ? 80 : tls === undefined ? PLAIN_PORT : TLS_PORT;
  return { kind: 'tcp', host, port, tls };
}

/** Files of ~/.docker as far as they matter here. Absent: the file is not there. */
export interface DockerFiles {
  /** Text of config.json. */
  readonly config: string | undefined;
  /** Text of contexts/meta/<sha256 of the name>/meta.json. */
  readonly meta: (directory: string) => string | undefined;
  readonly home: string;
}

/** Directory of a context's files: the SHA-256 of its name, as the docker command stores it. */
export function contextDirectory(name: string): string {
  return createHash('sha256').update(name).digest('hex');
}

function record(text: string, where: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw unusable(`${where} is no JSON`, 'repair it, or set DOCKER_HOST');
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw unusable(`${where} holds no object`, 'repair it, or set DOCKER_HOST');
  return value as Record<string, unknown>;
}

function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name) ? (value as Record<string, unknown>)[name] : undefined;
}

/**
 * Which engine, in the order of the docker command: DOCKER_HOST, DOCKER_CONTEXT, the current context of config.json, the default socket.
 * Throws ERR_EXECUTOR_UNAVAILABLE for a context that isn't there or can't be read.
 */
export function chooseEndpoint(environment: Readonly<Record<string, string | undefined>>, files: DockerFiles): ChosenEndpoint {
  const directory = environment['DOCKER_CONFIG'] ?? `${files.home}/.docker`;
  const host = environment['DOCKER_HOST'];
  if (host !== undefined && host !== '') {
    const verify = (environment['DOCKER_TLS_VERIFY'] ?? '') !== '';
    const certificates = environment['DOCKER_CERT_PATH'];
    const tls = verify || certificates !== undefined ? { directory: certificates ?? directory, verify } : undefined;
    return { endpoint: parseHost(host, 'DOCKER_HOST', tls), from: 'DOCKER_HOST' };
  }
  const asked = environment['DOCKER_CONTEXT'];
  const config = files.config === undefined ? {} : record(files.config, `${directory}/config.json`);
  const current = member(config, 'currentContext');
  const name = asked !== undefined && asked !== '' ? asked : typeof current === 'string' ? current : '';
  if (name === '' || name === 'default') return { endpoint: { kind: 'unix', path: DEFAULT_SOCKET }, from: 'the default' };
  const from = `the context ${name} (${asked === name ? 'DOCKER_CONTEXT' : `${directory}/config.json`})`;
  const folder = contextDirectory(name);
  const text = files.meta(folder);
  if (text === undefined) throw unusable(`there is no docker context ${JSON.stringify(name)}`, 'docker context ls, or set DOCKER_HOST');
  const endpoint = member(member(record(text, `the context ${name}`), 'Endpoints'), 'docker');
  const address = member(endpoint, 'Host');
  if (typeof address !== 'string' || address === '') throw unusable(`the docker context ${name} names no engine`, 'docker context inspect, or set DOCKER_HOST');
  const secure = address.startsWith('tcp:') || address.startsWith('https:');
  const tls = secure ? { directory: `${directory}/contexts/tls/${folder}/docker`, verify: member(endpoint, 'SkipTLSVerify') !== true } : undefined;
  return { endpoint: parseHost(address, `the docker context ${name}`, tls), from };
}

/** For messages: `unix:///var/run/docker.sock`, `tcp://build:2376`. */
export function formatEndpoint(endpoint: Endpoint): string {
  switch (endpoint.kind) {
    case 'unix':
      return `unix://${endpoint.path}`;
    case 'tcp':
      return `tcp://${endpoint.host.includes(':') ? `[${endpoint.host}]` : endpoint.host}:${endpoint.port}`;
    case 'ssh':
      return `ssh://${endpoint.destination}${endpoint.port === undefined ? '' : `:${endpoint.port}`}`;
  }
}
