import { read, readSync, writeSync } from 'node:fs';
import { promisify } from 'node:util';
import type { AtPoint, LoginPoint } from '../runner/points.ts';

/**
 * How the process has to be called (argv[0], which only the one who starts it chooses) to announce the points of its runs. No environment
 * leads here.
 */
export const POINTS_ARGV0 = 'job-announcing-points';
/** A socket or a pair of pipes: the name of the point and a newline go out, one byte that comes in lets the run go on. */
const POINTS_FD = 3;

/** The same for moments inside the writing back of a login, which must not be left in between. */
export function announcedLoginPoints(): ((point: LoginPoint) => void) | undefined {
  if (process.argv0 !== POINTS_ARGV0) return undefined;
  return (point) => {
    writeSync(POINTS_FD, `${point}\n`);
    readSync(POINTS_FD, Buffer.alloc(1), 0, 1, null);
  };
}

/** For crash tests: undefined unless the process was started to announce its points. */
export function announcedPoints(): AtPoint | undefined {
  if (process.argv0 !== POINTS_ARGV0) return undefined;
  const readByte = promisify(read);
  return async (point) => {
    writeSync(POINTS_FD, `${point}\n`);
    // 0 bytes: nobody listens any more.
    await readByte(POINTS_FD, Buffer.alloc(1), 0, 1, null);
  };
}
