import type { JsonValue } from '../../src/core/json.ts';
import { parseMountinfo, summariseTable, summariseUppers, tmpfsBytes, type MountLine } from './mountinfo.ts';

/** The places for temporary files, each a tmpfs with the same limit. */
const SIZED = new Set(['/tmp', '/var/tmp', '/dev/shm']);

export type MountValues = Readonly<Record<'table' | 'propagation' | 'writable' | 'executable' | 'stage' | 'tmp_size', JsonValue>>;

const pointsOf = (lines: readonly MountLine[]): readonly string[] => [...new Set(lines.map((line) => line.mountPoint))].sort();

/** Writable mounts that a program can be executed from; a mount of one device node holds no file. */
export function executableMounts(lines: readonly MountLine[]): readonly string[] {
  return pointsOf(
    lines.filter((line) => line.options.includes('rw') && !line.options.includes('noexec') && !(line.fsType === 'devtmpfs' && line.root !== '/')),
  );
}

/** The largest limit of the places for temporary files, in bytes; null: one has none, or there is none. */
export function tmpSize(lines: readonly MountLine[]): number | null {
  const sizes = lines.filter((line) => line.fsType === 'tmpfs' && SIZED.has(line.mountPoint)).map(tmpfsBytes);
  return sizes.length === 0 ? null : sizes.reduce((most, size) => (most === null || size === null ? null : Math.max(most, size)));
}

/** What the receipts say of a sandbox's mount table. */
export function readMounts(text: string, staged: readonly string[]): MountValues {
  const lines = parseMountinfo(text);
  return {
    table: summariseTable(lines),
    propagation: pointsOf(lines.filter((line) => line.propagates)),
    writable: pointsOf(lines.filter((line) => line.options.includes('rw'))),
    executable: executableMounts(lines),
    stage: summariseUppers(lines).filter((one) => staged.includes(one.mount_point)),
    tmp_size: tmpSize(lines),
  };
}
