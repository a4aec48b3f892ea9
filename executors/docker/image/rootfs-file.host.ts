import { constants, createReadStream, fstatSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { extract } from 'tar-stream';
import { messageOf, ProofrunError } from '../../../src/core/errors.ts';
import { displayPath } from '../../../src/core/text-safety.ts';

export interface RootfsFacts {
  /** Entries of the archive; null when it is compressed in a way that only the engine reads. */
  readonly entries: number | null;
  readonly compressed: string | undefined;
}

const MAGICS: readonly (readonly [string, string])[] = [
  ['1f8b', 'gzip'],
  ['425a68', 'bzip2'],
  ['fd377a585a00', 'xz'],
  ['28b52ffd', 'zstd'],
];

function unusable(file: string, what: string, cause?: unknown): ProofrunError {
  return new ProofrunError('ERR_IMAGE_SOURCE', {
    message: `${displayPath(file)} ${what}`,
    hint: 'expected a tar archive of a root filesystem: tar -C DIR -cf FILE.tar .',
    ...(cause === undefined ? {} : { cause }),
  });
}

/**
 * Reads an archive from end to end before an engine sees any of it: a damaged one would leave half an image. gzip is looked into; of bzip2,
 * xz and zstd only the beginning. Throws ERR_IMAGE_SOURCE.
 */
export async function checkRootfs(file: string): Promise<RootfsFacts> {
  let head: Buffer;
  try {
    const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const facts = fstatSync(handle.fd);
      if (!facts.isFile()) throw unusable(file, facts.isDirectory() ? 'is a directory' : 'is no regular file');
      if (facts.size === 0) throw unusable(file, 'is empty');
      const first = await handle.read(Buffer.alloc(6), 0, 6, 0);
      head = first.buffer.subarray(0, first.bytesRead);
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (error instanceof ProofrunError) throw error;
    throw unusable(file, `can't be read: ${messageOf(error)}`, error);
  }
  const compressed = MAGICS.find(([magic]) => head.toString('hex').startsWith(magic))?.[1];
  if (compressed !== undefined && compressed !== 'gzip') return { entries: null, compressed };

  let entries = 0;
  const reader = extract();
  reader.on('entry', (_header, content, next) => {
    entries += 1;
    content.on('end', next);
    // The reader's own error is the one that counts.
    content.on('error', () => undefined);
    content.resume();
  });
  try {
    if (compressed === 'gzip') await pipeline(createReadStream(file), createGunzip(), reader);
    else await pipeline(createReadStream(file), reader);
  } catch (error) {
    throw unusable(file, `is damaged, or no tar archive, after ${entries} entries: ${messageOf(error)}`, error);
  }
  if (entries === 0) throw unusable(file, 'holds no entry');
  return { entries, compressed };
}
