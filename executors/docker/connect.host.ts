import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { Agent } from 'node:http';
import { Agent as SecureAgent } from 'node:https';
import { join } from 'node:path';
import { Duplex } from 'node:stream';
import type Docker from 'dockerode';
import { ProofrunError } from '../../src/core/errors.ts';
import { chooseEndpoint, type ChosenEndpoint, type Endpoint } from './endpoint.ts';
import { explainFailure, negotiate, type Obstacle } from './obstacle.ts';

/** An engine that answered: dockerode, bound to the API version that both speak. */
export interface Engine {
  readonly docker: Docker;
  readonly chosen: ChosenEndpoint;
  readonly apiVersion: string;
  /** The engine's own version. */
  readonly version: string;
}

/** With what it said of itself: /info, and the names of its bridge networks. */
export type Connection = { readonly engine: Engine; readonly info: unknown; readonly networks: readonly string[] } | { readonly obstacle: Obstacle };

/** How long an engine may take to answer the first question. */
const ANSWER_MS = 10_000;

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}

/** Which engine this environment names. Throws ERR_EXECUTOR_UNAVAILABLE. */
export function findEndpoint(environment: NodeJS.ProcessEnv, home: string): ChosenEndpoint {
  const directory = environment['DOCKER_CONFIG'] ?? join(home, '.docker');
  return chooseEndpoint(environment, {
    config: readText(join(directory, 'config.json')),
    meta: (name) => readText(join(directory, 'contexts', 'meta', name, 'meta.json')),
    home,
  });
}

/** Connects, and agrees on an API version. An engine that can't be used is a value. */
export async function connect(chosen: ChosenEndpoint): Promise<Connection> {
  try {
    const make = await dockerFor(chosen.endpoint);
    const docker = make(undefined);
    // Asked at the same time, before it is known whether the versions fit: each is one turn of waiting.
    const [answer, info, networks] = await withTime(Promise.all([docker.version(), docker.info() as Promise<unknown>, listBridges(docker)]));
    const agreed = negotiate(answer.ApiVersion, answer.MinAPIVersion);
    if ('reason' in agreed) return { obstacle: agreed };
    return { engine: { docker: make(`v${agreed.version}`), chosen, apiVersion: agreed.version, version: answer.Version }, info, networks };
  } catch (error) {
    return { obstacle: explainFailure(error, chosen) };
  }
}

async function listBridges(docker: Docker): Promise<readonly string[]> {
  return (await docker.listNetworks({ filters: { driver: ['bridge'] } })).map((one) => one.Name);
}

function withTime<T>(answer: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      reject(new ProofrunError('ERR_EXECUTOR_UNAVAILABLE', { message: `no answer within ${ANSWER_MS / 1000} s` }));
    }, ANSWER_MS);
    answer.then(resolve, reject).finally(() => {
      clearTimeout(timer);
    });
  });
}

/** dockerode is loaded here, when an engine is first asked for. Every option is stated: none of its own readings of the environment takes part. */
async function dockerFor(endpoint: Endpoint): Promise<(version: string | undefined) => Docker> {
  const { default: Dockerode } = await import('dockerode');
  const shared = (version: string | undefined) => (version === undefined ? {} : { version });
  switch (endpoint.kind) {
    case 'unix':
      return (version) => new Dockerode({ socketPath: endpoint.path, host: undefined, protocol: 'http', ...shared(version) });
    case 'tcp': {
      const { tls } = endpoint;
      // The agent's own options win over what dockerode reads from the environment.
      const secure =
        tls === undefined
          ? ({ protocol: 'http' } as const)
          : ({
              protocol: 'https',
              agent: new SecureAgent({
                ...named('ca', readText(join(tls.directory, 'ca.pem'))),
                ...named('cert', readText(join(tls.directory, 'cert.pem'))),
                ...named('key', readText(join(tls.directory, 'key.pem'))),
                rejectUnauthorized: tls.verify,
              }),
            } as const);
      return (version) => new Dockerode({ host: endpoint.host, port: endpoint.port, ...secure, ...shared(version) });
    }
    case 'ssh': {
      const through = { host: 'docker', port: 80, protocol: 'http', agent: sshAgent(endpoint) } as const;
      return (version) => new Dockerode({ ...through, ...shared(version) });
    }
  }
}

function named<K extends string>(name: K, value: string | undefined): Partial<Record<K, string>> {
  return value === undefined ? {} : ({ [name]: value } as Record<K, string>);
}

/**
 * Connections through the system's own ssh, with the person's keys and configuration, to `docker system dial-stdio` over there: what the docker
 * command itself does.
 */
function sshAgent(endpoint: Extract<Endpoint, { readonly kind: 'ssh' }>): Agent {
  const agent = new Agent();
  const port = endpoint.port === undefined ? [] : ['-p', String(endpoint.port)];
  Object.assign(agent, {
    createConnection: (): Duplex => {
      const argv = ['-o', 'BatchMode=yes', '-o', 'ConnectTimeout=10', ...port, '-T', '--', endpoint.destination, 'docker', 'system', 'dial-stdio'];
      const child = spawn('ssh', argv, { stdio: ['pipe', 'pipe', 'pipe'] });
      let said = '';
      child.stderr.on('data', (part: Buffer) => {
        said = `${said}${part.toString('utf8')}`.slice(-500);
      });
      const duplex = Duplex.from({ readable: child.stdout, writable: child.stdin });
      child.once('error', (error) => duplex.destroy(error));
      child.once('exit', (code) => {
        if (code !== 0) duplex.destroy(new Error(`ssh ended with ${String(code)}: ${said.trim()}`));
      });
      duplex.once('close', () => child.kill());
      return duplex;
    },
  });
  return agent;
}
