import type { JsonValue } from '../../src/core/json.ts';
import { parseMountinfo, summariseTable, summariseUppers, tmpfsBytes, type MountLine } from './mountinfo.ts';

/** The places for temporary files, each a tmpfs with the same limit. */
const SIZED = new Set(['/tmp', '/var/tmp', '/dev/shm']);

export type MountValues = Readonly<Record<'table' | 'propagation' | 'writable' | 'executable' | 'stage' | 'tmp_size', JsonValue>>;

const pointsOf = (lines: readonly MountLine[]): readonly string[] => [...new Set(lines.map((line) => line.mountPoint))].sort();

/** What the receipts say of a sandbox's mount table. */
export function readMounts(text: string, staged: readonly string[]): MountValues {
  const lines = parseMountinfo(text);
  const sizes = lines.filter((line) => line.fsType === 'tmpfs' && SIZED.has(line.mountPoint)).map(tmpfsBytes);
  const writable = lines.filter((line) => line.options.includes('rw'));
  return {
    table: summariseTable(lines),
    propagation: pointsOf(lines.filter((line) => line.propagates)),
    writable: pointsOf(writable),
    // A mount of one device node holds no file.
    executable: pointsOf(writable.filter((line) => !line.options.includes('noexec') && !(line.fsType === 'devtmpfs' && line.root !== '/'))),
    stage: summariseUppers(lines).filter((one) => staged.includes(one.mount_point)),
    // The largest counts; one without a limit, or none at all, is no limit.
    tmp_size: sizes.length === 0 ? null : sizes.reduce((most, size) => (most === null || size === null ? null : Math.max(most, size))),
  };
}
