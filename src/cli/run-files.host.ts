import { closeSync, openSync, writeSync } from 'node:fs';
import { resolve } from 'node:path';
import { messageOf, ProofrunError } from '../core/errors.ts';
import { writeDurably } from '../store/durable-file.host.ts';

/** A file for the id of a run, opened before anything starts, so that a path that can't be written is an error of the command line. ERR_USAGE. */
export interface IdFile {
  write(id: string): void;
  /** Idempotent. */
  close(): void;
}

export function openIdFile(path: string, cwd: string): IdFile {
  let fd: number | undefined;
  try {
    fd = openSync(resolve(cwd, path), 'w', 0o644);
  } catch (cause) {
    throw new ProofrunError('ERR_USAGE', {
      message: `--id-file ${path} can't be written: ${messageOf(cause)}`,
      hint: 'name a file in a directory that exists',
      cause,
    });
  }
  return {
    write: (id) => {
      if (fd !== undefined) writeSync(fd, `${id}\n`);
    },
    close: () => {
      if (fd !== undefined) closeSync(fd);
      fd = undefined;
    },
  };
}

/** Writes the result as a whole or not at all. ERR_USAGE. */
export function writeResultFile(path: string, cwd: string, text: string): void {
  try {
    writeDurably(resolve(cwd, path), text);
  } catch (cause) {
    throw new ProofrunError('ERR_USAGE', {
      message: `--result ${path} can't be written: ${messageOf(cause)}`,
      hint: 'the result is in the bundle: job status last --json',
      cause,
    });
  }
}
