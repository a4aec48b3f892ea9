import { closeSync, constants, openSync, rmSync } from 'node:fs';
import { join } from 'node:path';

/** Name of a live run's control socket in its directory. */
export const CONTROL_SOCKET = 'control.sock';
/** sun_path of sockaddr_un (unix(7)), without its NUL. */
const LONGEST_ADDRESS = 107;

/** The directory of a socket, held open so that its address fits however long the path is. The caller closes it after bind or connect. */
export interface SocketAddress {
  readonly path: string;
  close(): void;
}

export function controlAddress(directory: string): SocketAddress {
  const path = join(directory, CONTROL_SOCKET);
  if (Buffer.byteLength(path) <= LONGEST_ADDRESS) return { path, close: () => undefined };
  const fd = openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  return {
    path: `/proc/self/fd/${fd}/${CONTROL_SOCKET}`,
    close: () => {
      closeSync(fd);
    },
  };
}

/** Takes the name of a socket away: of one whose run ends, or that a dead owner left. */
export function removeControlSocket(directory: string): void {
  rmSync(join(directory, CONTROL_SOCKET), { force: true });
}
