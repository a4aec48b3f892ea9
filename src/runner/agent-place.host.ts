import { chmodSync, closeSync, constants, mkdirSync, openSync } from 'node:fs';
import { join } from 'node:path';

const HOST_SOCKET = 'host.sock';
/** sun_path of sockaddr_un (unix(7)), without its NUL. */
const LONGEST_ADDRESS = 107;

/** The directory of a run's AgentCtl socket for its owner: 0700, also above. */
export function agentDirectory(runDirectory: string): string {
  return join(runDirectory, 'agentctl');
}

export function makeAgentDirectory(runDirectory: string): string {
  const directory = agentDirectory(runDirectory);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  chmodSync(directory, 0o700);
  return directory;
}

/** An address that fits however long the path is. The caller closes it after connecting. */
export function agentAddress(runDirectory: string): { readonly path: string; close(): void } {
  const directory = agentDirectory(runDirectory);
  const path = join(directory, HOST_SOCKET);
  if (Buffer.byteLength(path) <= LONGEST_ADDRESS) return { path, close: () => undefined };
  const fd = openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  return {
    path: `/proc/self/fd/${fd}/${HOST_SOCKET}`,
    close: () => {
      closeSync(fd);
    },
  };
}
