import { execFile } from 'node:child_process';
import { closeSync, constants, openSync, unlinkSync } from 'node:fs';
import { Socket } from 'node:net';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { promisify } from 'node:util';

const MKFIFO = '/usr/bin/mkfifo';

/** One pipe: our reading end, and the descriptor that the command gets. */
export interface OutputPipe {
  readonly source: Readable;
  readonly fd: number;
}

/**
 * Two real pipes. spawn(2) of Node would make socket pairs, on which a command can't open /dev/stdout or /dev/stderr (ENXIO).
 * They pass through names in `directory`, which are gone when this resolves. Undefined where mkfifo(1) is missing or fails.
 * The caller closes `fd` once the command has it.
 */
export async function openOutputPipes(directory: string): Promise<readonly [OutputPipe, OutputPipe] | undefined> {
  const paths = [join(directory, 'stdout.fifo'), join(directory, 'stderr.fifo')] as const;
  const opened: OutputPipe[] = [];
  try {
    await promisify(execFile)(MKFIFO, ['-m', '600', ...paths], { env: {} });
    return [openPipe(paths[0], opened), openPipe(paths[1], opened)];
  } catch {
    for (const pipe of opened) dropPipe(pipe);
    return undefined;
  } finally {
    for (const path of paths) {
      try {
        unlinkSync(path);
      } catch {
        // never made
      }
    }
  }
}

function openPipe(path: string, opened: OutputPipe[]): OutputPipe {
  // The reading end first and without waiting, else each open would wait for the other.
  const reading = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  let fd: number;
  try {
    fd = openSync(path, constants.O_WRONLY);
  } catch (error) {
    closeSync(reading);
    throw error;
  }
  const pipe = { source: new Socket({ fd: reading, readable: true, writable: false }), fd };
  opened.push(pipe);
  return pipe;
}

/** Closes both ends of a pipe that no command got. */
export function dropPipe({ source, fd }: OutputPipe): void {
  source.destroy();
  closeSync(fd);
}
