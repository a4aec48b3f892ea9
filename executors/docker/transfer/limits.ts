import { ProofrunError } from '../../../src/core/errors.ts';
import { formatSize } from '../../../src/core/units.ts';

/** What one transfer may take, in either direction. Each has an error of its own. */
export interface TransferLimits {
  /** Files, directories, links and pipes together. */
  readonly entries: number;
  /** Apparent size of all files together: a hole counts like what it reads as. */
  readonly bytes: number;
  /** Apparent size of one file. */
  readonly fileBytes: number;
  /** Apparent size of what is kept of a download. */
  readonly keptBytes: number;
  /** Directories above an entry. */
  readonly depth: number;
  /** Bytes of one name. */
  readonly nameBytes: number;
  /** Bytes of a path beneath the root, and of the target of a symlink. */
  readonly pathBytes: number;
  /** Bytes of all paths and targets together: they are held in memory. */
  readonly allPathBytes: number;
  /** Bytes of the extended header of one entry (PAX). */
  readonly paxBytes: number;
}

/** 255 and 4095 are what Linux itself allows (NAME_MAX, PATH_MAX less the NUL). */
export const DEFAULT_LIMITS: TransferLimits = {
  entries: 1_000_000,
  bytes: 64 * 2 ** 30,
  fileBytes: 16 * 2 ** 30,
  keptBytes: 16 * 2 ** 30,
  depth: 512,
  nameBytes: 255,
  pathBytes: 4095,
  allPathBytes: 256 * 2 ** 20,
  paxBytes: 256 * 2 ** 10,
};

const WORDS: Readonly<Record<keyof TransferLimits, (limit: number) => string>> = {
  entries: (limit) => `more than ${limit} entries`,
  bytes: (limit) => `more than ${formatSize(limit)} of files in all`,
  fileBytes: (limit) => `a file of more than ${formatSize(limit)}`,
  keptBytes: (limit) => `more than ${formatSize(limit)} of changed files`,
  depth: (limit) => `more than ${limit} directories one in another`,
  nameBytes: (limit) => `a name of more than ${limit} bytes`,
  pathBytes: (limit) => `a path of more than ${limit} bytes`,
  allPathBytes: (limit) => `more than ${formatSize(limit)} of paths`,
  paxBytes: (limit) => `more than ${formatSize(limit)} of extended header`,
};

/** The error of one limit. `where`: the entry, already made safe for a screen. */
export function beyondLimit(limit: keyof TransferLimits, limits: TransferLimits, where: string, direction: 'up' | 'down'): ProofrunError {
  const what = direction === 'up' ? 'the workspace is too large to be sent to the engine' : 'what came back from the engine is too large';
  return new ProofrunError('ERR_TRANSFER_LIMIT', {
    message: `${what}: ${WORDS[limit](limits[limit])}${where === '' ? '' : ` (at ${where})`}`,
    hint:
      direction === 'up'
        ? 'hide what the job does not need: --deny-read PATH'
        : 'nothing of it was staged; run again with less output in the workspace, or write it to a path outside',
    data: { limit, value: limits[limit] },
  });
}
