import { chmodSync, chownSync, closeSync, constants, openSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { basename, dirname, join } from 'node:path';

/** A listener that takes one connection and is gone with it. */
export interface OneAccept {
  readonly accepted: Promise<Socket>;
  /** Idempotent; a connection that came stays. */
  close(): void;
}

/** unix(7) leaves 107 bytes for a path: a long one goes through the descriptor of its directory. */
async function listen(server: Server, path: string): Promise<void> {
  const directory = openSync(dirname(path), constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen({ path: join('/proc/self/fd', String(directory), basename(path)) }, () => {
        server.removeListener('error', reject);
        resolve();
      });
    });
  } finally {
    closeSync(directory);
  }
}

/** Listens at `path` for the shim of one container; `ids` may connect. */
export async function acceptOnce(path: string, ids: { readonly uid: number; readonly gid: number } | undefined): Promise<OneAccept> {
  const server = createServer();
  let open = true;
  const close = (): void => {
    if (!open) return;
    open = false;
    // Unlinked by us: Node would remove a path that is gone by then.
    server.close();
    rmSync(path, { force: true });
  };
  const accepted = new Promise<Socket>((resolve) => {
    server.once('connection', (socket) => {
      close();
      resolve(socket);
    });
  });
  await listen(server, path);
  chmodSync(path, 0o600);
  if (ids !== undefined) chownSync(path, ids.uid, ids.gid);
  return { accepted, close };
}

/** Sockets of the caller's own that the job must not reach: abstract, with a path, TCP on 127.0.0.1. */
export interface ProbeTargets {
  readonly tcpPort: number | undefined;
  close(): void;
}

/** They listen until closed, so that a probe that is refused can't be explained by nobody listening. */
export async function openProbeTargets(abstract: string, path: string): Promise<ProbeTargets> {
  const refuse = (socket: Socket): void => {
    socket.destroy();
  };
  const named = createServer(refuse);
  const unnamed = createServer(refuse);
  const tcp = createServer(refuse);
  const servers = [named, unnamed, tcp];
  await listen(named, path);
  await new Promise<void>((resolve, reject) => {
    unnamed.once('error', reject);
    unnamed.listen({ path: `\0${abstract}` }, resolve);
  });
  const port = await new Promise<number | undefined>((resolve) => {
    tcp.once('error', () => {
      resolve(undefined);
    });
    tcp.listen({ host: '127.0.0.1', port: 0 }, () => {
      const address = tcp.address();
      resolve(typeof address === 'object' && address !== null ? address.port : undefined);
    });
  });
  return {
    tcpPort: port,
    close: () => {
      for (const server of servers) server.close();
      rmSync(path, { force: true });
    },
  };
}
