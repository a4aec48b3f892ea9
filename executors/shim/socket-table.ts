import { SocketAddress } from 'node:net';

/** One socket of /proc/<pid>/net/{tcp,tcp6,udp,udp6} (proc_pid_net(5)). */
export interface SocketLine {
  readonly kind: 'tcp' | 'udp';
  readonly address: string;
  readonly port: number;
  /** TCP in the state LISTEN, or any UDP socket that has a port. */
  readonly waits: boolean;
  readonly inode: number;
}

const TCP_LISTEN = '0A';

/** Reads one table. Lines that aren't whole are left out. */
export function parseSocketTable(kind: 'tcp' | 'udp', text: string): readonly SocketLine[] {
  return text
    .split('\n')
    .slice(1)
    .flatMap((line): SocketLine[] => {
      const fields = line.trim().split(/\s+/);
      const [hex = '', portHex = ''] = (fields[1] ?? '').split(':');
      const inode = Number(fields[9]);
      if (!/^(?:[0-9A-F]{8}|[0-9A-F]{32})$/.test(hex) || !/^[0-9A-F]{4}$/.test(portHex) || !Number.isSafeInteger(inode)) return [];
      return [{ kind, address: formatAddress(hex), port: Number.parseInt(portHex, 16), waits: kind === 'udp' || fields[3] === TCP_LISTEN, inode }];
    });
}

/** The kernel prints words of 32 bits in the byte order of the machine; every machine that this runs on is little endian. */
function formatAddress(hex: string): string {
  const bytes = [...hex.matchAll(/.{8}/g)].flatMap(([word]) => [6, 4, 2, 0].map((at) => Number.parseInt(word.slice(at, at + 2), 16)));
  if (bytes.length === 4) return bytes.join('.');
  const groups = Array.from({ length: 8 }, (_, index) => (((bytes[index * 2] ?? 0) << 8) | (bytes[index * 2 + 1] ?? 0)).toString(16));
  return new SocketAddress({ family: 'ipv6', address: groups.join(':') }).address;
}
