import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { errnoOf } from '../../src/core/errors.ts';
import { parseSocketTable, type SocketLine } from './socket-table.ts';

/** Inodes of the sockets that this process holds. */
export function ownSockets(): ReadonlySet<number> {
  const inodes = new Set<number>();
  for (const fd of readdirSync('/proc/self/fd')) {
    try {
      const inode = /^socket:\[([0-9]+)\]$/.exec(readlinkSync(`/proc/self/fd/${fd}`))?.[1];
      if (inode !== undefined) inodes.add(Number(inode));
    } catch {
      // Closed since it was listed.
    }
  }
  return inodes;
}

/** Everything of a network namespace that waits for connections or datagrams. */
export function waitingSockets(process: number | 'self'): readonly SocketLine[] {
  return (['tcp', 'udp'] as const).flatMap((kind) =>
    ['', '6'].flatMap((suffix) => {
      try {
        return parseSocketTable(kind, readFileSync(`/proc/${process}/net/${kind}${suffix}`, 'utf8')).filter((line) => line.waits);
      } catch (error) {
        // A kernel without IPv6 has no such table.
        if (suffix !== '' && errnoOf(error) === 'ENOENT') return [];
        throw error;
      }
    }),
  );
}
