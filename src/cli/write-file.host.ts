import { writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { errnoOf, messageOf, ProofrunError } from '../core/errors.ts';

/** Writes a file for the person and returns its absolute path. Throws ERR_USAGE when it exists without `replace`, or can't be written. */
export function writeNewFile(directory: string, name: string, text: string, replace: boolean): string {
  const path = resolve(directory, name);
  try {
    writeFileSync(path, text, { flag: replace ? 'w' : 'wx' });
  } catch (cause) {
    if (errnoOf(cause) === 'EEXIST') {
      throw new ProofrunError('ERR_USAGE', {
        message: `${name} exists already`,
        hint: `job init --force ${name} replaces it; job init OTHER.yaml writes beside it`,
        cause,
      });
    }
    throw new ProofrunError('ERR_USAGE', { message: `${name} can't be written: ${messageOf(cause)}`, hint: 'job init FILE', cause });
  }
  return path;
}
