import { execFileSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { chmodSync, existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer, type RequestListener } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { join } from 'node:path';
import { decode, encode } from 'dns-packet';
import { publicDirectory } from './native-programs.host.ts';

/** Servers on this machine's loopback that stand for the internet, and a resolver that says where they are. */
export interface StandIn {
  readonly nameserver: string;
  /** Certificate of the authority that signed every server's. */
  readonly authority: string;
  readonly ports: { readonly https: number; readonly http: number; readonly ssh: number; readonly postgres: number; readonly bytes: number };
  /** Names that were asked for, in order. */
  readonly asked: readonly string[];
  /** What the first client of the SSH stand-in said. */
  readonly sshClients: readonly string[];
  close(): Promise<void>;
}

const run = (program: string, args: readonly string[], cwd: string): void => {
  const env = {
    PATH: '/usr/bin:/bin',
    HOME: cwd,
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_AUTHOR_NAME: 'a',
    GIT_AUTHOR_EMAIL: 'a@a',
    GIT_COMMITTER_NAME: 'a',
    GIT_COMMITTER_EMAIL: 'a@a',
  };
  execFileSync(program, args, { cwd, stdio: 'pipe', env });
};

/** A repository that any file server can serve (git-update-server-info(1)). */
function repository(directory: string): string {
  const work = join(directory, 'work');
  const bare = join(directory, 'repo.git');
  if (existsSync(bare)) return bare;
  run('git', ['init', '-q', '-b', 'main', work], directory);
  writeFileSync(join(work, 'README'), 'from the stand-in\n');
  run('git', ['add', '.'], work);
  run('git', ['commit', '-q', '-m', 'one'], work);
  run('git', ['clone', '-q', '--bare', work, bare], directory);
  run('git', ['update-server-info'], bare);
  return bare;
}

function certificates(directory: string, names: readonly string[]): { readonly authority: string; readonly key: Buffer; readonly cert: Buffer } {
  const at = (name: string): string => join(directory, name);
  if (!existsSync(at('ca.pem'))) {
    const openssl = (...args: readonly string[]): void => run('openssl', args, directory);
    openssl(
      'req',
      '-x509',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:P-256',
      '-nodes',
      '-days',
      '2',
      '-subj',
      '/CN=stand-in',
      '-keyout',
      at('ca.key'),
      '-out',
      at('ca.pem'),
    );
    openssl(
      'req',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:P-256',
      '-nodes',
      '-subj',
      '/CN=allowed.test',
      '-keyout',
      at('server.key'),
      '-out',
      at('server.csr'),
    );
    writeFileSync(at('names'), `subjectAltName=${names.map((name) => `DNS:${name}`).join(',')}\n`);
    openssl(
      'x509',
      '-req',
      '-in',
      at('server.csr'),
      '-CA',
      at('ca.pem'),
      '-CAkey',
      at('ca.key'),
      '-CAcreateserial',
      '-days',
      '2',
      '-extfile',
      at('names'),
      '-out',
      at('server.pem'),
    );
    chmodSync(at('ca.pem'), 0o644);
  }
  return { authority: at('ca.pem'), key: readFileSync(at('server.key')), cert: readFileSync(at('server.pem')) };
}

/** Starts everything on ports of the kernel's choice. Every name below `.test` leads to 127.0.0.1. */
export async function standInInternet(): Promise<StandIn> {
  const directory = publicDirectory();
  const { authority, key, cert } = certificates(directory, ['allowed.test', '*.wild.test', 'other.test']);
  const bare = repository(directory);
  const answer: RequestListener = (request, response) => {
    const path = (request.url ?? '/').replace(/\?.*$/, '');
    const file = join(bare, path.replace(/^\/repo\.git/, ''));
    if (path.startsWith('/repo.git/') && !path.includes('..') && existsSync(file) && statSync(file).isFile()) {
      response.end(readFileSync(file));
      return;
    }
    if (path === '/') response.end(`hello ${String(request.headers.host?.replace(/:.*/, ''))}\n`);
    else response.writeHead(404).end();
  };
  const sshClients: string[] = [];
  const https = createHttpsServer({ key, cert }, answer);
  const http = createHttpServer(answer);
  const ssh = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.write('SSH-2.0-StandIn_1.0\r\n');
    socket.once('data', (said) => {
      sshClients.push(said.toString('latin1').split('\r\n')[0] ?? '');
      socket.end();
    });
  });
  // Answers SSLRequest with N, and the start-up message with an error that names it (PostgreSQL protocol 3.0).
  const postgres = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.on('data', (said: Buffer) => {
      if (said.length === 8) {
        socket.write('N');
        return;
      }
      const fields = Buffer.from('SFATAL\0C28000\0Mhello from the database\0\0');
      const head = Buffer.from([0x45, 0, 0, 0, fields.length + 4]);
      socket.end(Buffer.concat([head, fields]));
    });
  });
  const bytes = createServer((socket) => socket.on('error', () => undefined).pipe(socket));
  const servers: readonly Server[] = [https, http, ssh, postgres, bytes];
  for (const server of servers) server.listen(0, '127.0.0.1');
  const asked: string[] = [];
  const dns = createSocket('udp4');
  dns.on('message', (message, from) => {
    const query = decode(message);
    const [question] = query.questions ?? [];
    if (question === undefined) return;
    asked.push(question.name);
    const known = question.name.endsWith('.test');
    const reply = encode({
      type: 'response',
      ...(query.id === undefined ? {} : { id: query.id }),
      flags: 0x0180 | (known ? 0 : 3),
      questions: [question],
      answers: known && question.type === 'A' ? [{ type: 'A', name: question.name, ttl: 1, data: '127.0.0.1' }] : [],
    });
    dns.send(reply, from.port, from.address);
  });
  dns.bind(0, '127.0.0.1');
  await Promise.all([...servers, dns].map((one) => once(one, 'listening')));
  const port = (server: Server): number => (server.address() as AddressInfo).port;
  return {
    nameserver: `127.0.0.1:${dns.address().port}`,
    authority,
    ports: { https: port(https), http: port(http), ssh: port(ssh), postgres: port(postgres), bytes: port(bytes) },
    asked,
    sshClients,
    close: async () => {
      dns.close();
      https.closeAllConnections();
      http.closeAllConnections();
      await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
    },
  };
}
