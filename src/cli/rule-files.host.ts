import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, ProofrunError } from '../core/errors.ts';

/** Names (without `.yaml`) of the files in a directory of policies or profiles; none when it isn't there. */
export async function namesIn(directory: string): Promise<readonly string[]> {
  try {
    return (await readdir(directory))
      .filter((name) => name.endsWith('.yaml'))
      .map((name) => name.slice(0, -'.yaml'.length))
      .sort();
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENOTDIR') return [];
    throw error;
  }
}

/** The text of a shipped file of policies/, from the package or from the source tree. Throws ERR_INTERNAL when the package lacks it. */
export async function readShipped(kind: 'policy' | 'profile', file: string): Promise<string> {
  const name = kind === 'profile' ? join('profiles', file) : file;
  // A bundle lies in dist/, a chunk of it one deeper, this source two deep.
  for (const up of ['../policies/', '../../policies/']) {
    try {
      return await readFile(new URL(name, new URL(up, import.meta.url)), 'utf8');
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'ENOTDIR') throw error;
    }
  }
  throw new ProofrunError('ERR_INTERNAL', { message: `the package lacks policies/${name}`, hint: 'install the package again' });
}
