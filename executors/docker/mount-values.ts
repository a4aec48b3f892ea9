import type { JsonValue } from '../../src/core/json.ts';
import { parseMountinfo, summariseTable, summariseUppers, tmpfsBytes } from '../native/mountinfo.ts';

/** The places for temporary files, each a tmpfs with the same limit. */
const SIZED = new Set(['/tmp', '/var/tmp', '/dev/shm']);

/** What the receipts say of a container's mount table. */
export function readMounts(text: string, staged: readonly string[]): Readonly<Record<'table' | 'propagation' | 'writable' | 'stage' | 'tmp_size', JsonValue>> {
  const lines = parseMountinfo(text);
  const sizes = lines.filter((line) => line.fsType === 'tmpfs' && SIZED.has(line.mountPoint)).map(tmpfsBytes);
  return {
    table: summariseTable(lines),
    propagation: [...new Set(lines.filter((line) => line.propagates).map((line) => line.mountPoint))].sort(),
    writable: [...new Set(lines.filter((line) => line.options.includes('rw')).map((line) => line.mountPoint))].sort(),
    stage: summariseUppers(lines).filter((one) => staged.includes(one.mount_point)),
    // The largest counts; one without a limit, or none at all, is no limit.
    tmp_size: sizes.length === 0 ? null : sizes.reduce((most, size) => (most === null || size === null ? null : Math.max(most, size))),
  };
}
