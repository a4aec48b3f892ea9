import { bytePath, type BytePath } from '../../src/stage/byte-path.ts';
import { encodeHeader, paddingOf, type TarHeader, type TarType } from '../../executors/docker/transfer/tar-header.ts';
import { paxRecord } from '../../executors/docker/transfer/pax.ts';

export interface ForgedEntry {
  readonly name: string;
  readonly type?: TarType;
  readonly content?: string | Buffer;
  readonly link?: string;
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly mtime?: TarHeader['mtime'];
  /** Said instead of the length of the content. */
  readonly size?: number;
  readonly device?: TarHeader['device'];
  /** Changes the finished header block before its checksum is put right. */
  readonly alter?: (block: Buffer) => void;
  readonly badChecksum?: true;
  /** An extended header before it: records, or its raw body. */
  readonly pax?: Readonly<Record<string, string>> | Buffer;
}

export const END = Buffer.alloc(1024);

export function padded(bytes: Buffer): Buffer {
  return Buffer.concat([bytes, Buffer.alloc(paddingOf(bytes.length))]);
}

/** Puts the checksum of an altered block right. */
export function sealed(block: Buffer): Buffer {
  block.fill(0x20, 148, 156);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return block;
}

/** The blocks of one entry, right or wrong as the caller wants them. */
export function forged(entry: ForgedEntry): Buffer {
  const content = Buffer.from(entry.content ?? '');
  const type = entry.type ?? 'file';
  const block = encodeHeader({
    type,
    name: bytePath(Buffer.from(entry.name, 'latin1')),
    mode: entry.mode ?? (type === 'directory' ? 0o755 : 0o644),
    uid: entry.uid ?? 0,
    gid: entry.gid ?? 0,
    size: entry.size ?? content.length,
    mtime: entry.mtime ?? { seconds: 1_000_000_000, nanoseconds: 0 },
    link: (entry.link ?? '') as BytePath,
    device: entry.device ?? { major: 0, minor: 0 },
  });
  if (entry.alter !== undefined) {
    entry.alter(block);
    sealed(block);
  }
  if (entry.badChecksum === true) block[0] = (block[0] ?? 0) ^ 1;
  const parts: Buffer[] = [];
  if (entry.pax !== undefined) {
    const body = Buffer.isBuffer(entry.pax) ? entry.pax : Buffer.concat(Object.entries(entry.pax).map(([key, value]) => paxRecord(key, value)));
    parts.push(forged({ name: 'PaxHeader', type: 'pax', content: body }));
  }
  return Buffer.concat([...parts, block, padded(content)]);
}

/** A whole archive whose root directory is `ws`. */
export function archive(...entries: readonly (ForgedEntry | Buffer)[]): Buffer {
  return Buffer.concat([forged({ name: 'ws/', type: 'directory' }), ...entries.map((entry) => (Buffer.isBuffer(entry) ? entry : forged(entry))), END]);
}
