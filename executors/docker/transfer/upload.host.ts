import { createHash } from 'node:crypto';
import { readFileSync, type BigIntStats } from 'node:fs';
import { Readable } from 'node:stream';
import { ProofrunError } from '../../../src/core/errors.ts';
import { bytePathOfText, type BytePath } from '../../../src/stage/byte-path.ts';
import type { Moment } from '../../../src/stage/entry-facts.ts';
import { mountsBelow } from '../../../src/stage/stage-directory.host.ts';
import { beyondLimit, DEFAULT_LIMITS, type TransferLimits } from './limits.ts';
import type { Manifest, ManifestEntry } from './manifest.ts';
import { closeFile, readEntry, readFully, SMALL_FILE, type ReadItem } from './read-entry.host.ts';
import { paddingOf, type TarType } from './tar-header.ts';
import { END_OF_ARCHIVE, encodeEntry } from './tar-writer.ts';
import { nameForMessage } from './tree-check.ts';
import { walkTree } from './tree-walk.host.ts';

export interface UploadInput {
  /** Absolute real path of the directory to send. */
  readonly root: string;
  /** Absolute paths that are left out, with all below them. */
  readonly hidden: readonly string[];
  /** Directory of the archive under which the tree is put: `work/space`. Default: the archive's own root. */
  readonly under?: string;
  /** Owner of everything at the other end. Default: each thing's own. */
  readonly owner?: { readonly uid: number; readonly gid: number };
  readonly limits?: TransferLimits;
  /** Entries that are looked at and read at the same time. Default 16. */
  readonly parallel?: number;
}

export interface Upload {
  /** A tar stream of the tree; its root is the entry `./`, or `under`. Destroying it ends the walk. */
  readonly stream: Readable;
  /** What was sent: there when the stream ended. Throws before that. */
  manifest(): Manifest;
}

const PARALLEL = 16;
/** Bytes of content that may wait for their turn. */
const AHEAD_BYTES = 8 << 20;
const CHUNK = 256 << 10;
const NO_DEVICE = { major: 0, minor: 0 };
const NONE = '' as BytePath;

/**
 * A tree as a tar stream: types, modes, owners, times, symlinks, hard links and the bytes of names exactly; sockets, devices, what can't be
 * read and other filesystems are left out and named in the manifest. No link is followed. It reads only as fast as the stream is taken, with
 * a bounded number of files read ahead. The stream fails with ERR_TRANSFER_LIMIT, or ERR_TRANSFER_READ for a file that got shorter.
 */
export function uploadTree(input: UploadInput): Upload {
  const entries = new Map<BytePath, ManifestEntry>();
  const leftOut = new Map<BytePath, string>();
  let done = false;
  const pack = async function* (): AsyncGenerator<Buffer, void, undefined> {
    yield* gathered(packed(input, entries, leftOut));
    done = true;
  };
  return {
    stream: Readable.from(pack(), { objectMode: false, highWaterMark: 2 * CHUNK }),
    manifest: () => {
      if (!done) throw new ProofrunError('ERR_INTERNAL', { message: 'the workspace was not sent whole, so there is no record of what was sent' });
      return { entries, leftOut };
    },
  };
}

/** Small buffers joined to chunks of a useful size. */
async function* gathered(parts: AsyncGenerator<Buffer, void, undefined>): AsyncGenerator<Buffer, void, undefined> {
  let waiting: Buffer[] = [];
  let bytes = 0;
  for await (const part of parts) {
    waiting.push(part);
    bytes += part.length;
    if (bytes < CHUNK) continue;
    yield waiting.length === 1 ? part : Buffer.concat(waiting, bytes);
    waiting = [];
    bytes = 0;
  }
  if (bytes > 0) yield Buffer.concat(waiting, bytes);
}

/** Items in the order of the walk, several of them being read at a time. */
async function* readAhead(input: UploadInput, limits: TransferLimits): AsyncGenerator<ReadItem, void, undefined> {
  const { root } = input;
  const beneath = (path: string): readonly BytePath[] => (path.startsWith(`${root}/`) ? [bytePathOfText(path.slice(root.length + 1))] : []);
  const mountinfo = readFileSync('/proc/self/mountinfo', 'latin1');
  const walk = walkTree({
    root,
    hidden: new Set(input.hidden.flatMap(beneath)),
    mounts: new Set(mountsBelow(mountinfo, root).flatMap(beneath)),
    tooDeep: (path) => beyondLimit('depth', limits, nameForMessage(path), 'up'),
    maxDepth: limits.depth,
  });
  const waiting: Promise<ReadItem>[] = [];
  let aheadBytes = 0;
  const sizeOf = (item: ReadItem): number => (item.kind === 'file' ? item.content.length : 0);
  const parallel = input.parallel ?? PARALLEL;
  let more = true;
  try {
    for (;;) {
      while (more && waiting.length < parallel && aheadBytes < AHEAD_BYTES) {
        const next = walk.next();
        if (next.done === true) {
          more = false;
          break;
        }
        const reading = readEntry(next.value).then((item) => {
          aheadBytes += sizeOf(item);
          return item;
        });
        // A failure is seen when its turn comes; until then it must not count as unhandled.
        reading.catch(() => undefined);
        waiting.push(reading);
      }
      const first = waiting.shift();
      if (first === undefined) return;
      const item = await first;
      aheadBytes -= sizeOf(item);
      yield item;
    }
  } finally {
    walk.return();
    for (const item of await Promise.allSettled(waiting)) {
      if (item.status === 'fulfilled' && item.value.kind === 'large') await closeFile(item.value.fd);
    }
  }
}

async function* packed(input: UploadInput, entries: Map<BytePath, ManifestEntry>, leftOut: Map<BytePath, string>): AsyncGenerator<Buffer, void, undefined> {
  const limits = input.limits ?? DEFAULT_LIMITS;
  /** First names of files with several. */
  const linked = new Map<string, BytePath>();
  const above = input.under === undefined ? '' : bytePathOfText(`${input.under}/`);
  let bytes = 0;
  let pathBytes = 0;

  const record = (path: BytePath, entry: ManifestEntry): void => {
    if (entries.size >= limits.entries) throw beyondLimit('entries', limits, nameForMessage(path), 'up');
    pathBytes += path.length + entry.target.length;
    if (pathBytes > limits.allPathBytes) throw beyondLimit('allPathBytes', limits, nameForMessage(path), 'up');
    if (path.length > limits.pathBytes) throw beyondLimit('pathBytes', limits, nameForMessage(path), 'up');
    entries.set(path, entry);
  };
  const count = (path: BytePath, size: number): void => {
    if (size > limits.fileBytes) throw beyondLimit('fileBytes', limits, nameForMessage(path), 'up');
    bytes += size;
    if (bytes > limits.bytes) throw beyondLimit('bytes', limits, nameForMessage(path), 'up');
  };

  for await (const item of readAhead(input, limits)) {
    if (item.kind === 'gone') continue;
    const { path } = item;
    if (item.kind === 'left-out') {
      leftOut.set(path, item.why);
      continue;
    }
    const facts = factsOf(item.facts, input.owner);
    const header = (type: TarType, name: BytePath, size: number, link: BytePath): Buffer =>
      encodeEntry({ ...facts, type, name: `${above}${name}` as BytePath, size, link, device: NO_DEVICE });
    switch (item.kind) {
      case 'directory':
        record(path, { ...facts, type: 'directory', size: 0, sha256: '', target: NONE });
        yield header('directory', path === '' ? ((above === '' ? './' : '') as BytePath) : (`${path}/` as BytePath), 0, NONE);
        break;
      case 'symlink':
        record(path, { ...facts, type: 'symlink', size: 0, sha256: '', target: item.target });
        yield header('symlink', path, 0, item.target);
        break;
      case 'fifo':
        record(path, { ...facts, type: 'fifo', size: 0, sha256: '', target: NONE });
        yield header('fifo', path, 0, NONE);
        break;
      case 'file':
      case 'large': {
        const identity = `${item.facts.dev}:${item.facts.ino}`;
        const first = item.facts.nlink > 1n ? linked.get(identity) : undefined;
        const known = first === undefined ? undefined : entries.get(first);
        if (first !== undefined && known !== undefined) {
          if (item.kind === 'large') await closeFile(item.fd);
          record(path, known);
          yield header('link', path, 0, `${above}${first}` as BytePath);
          break;
        }
        if (item.facts.nlink > 1n) linked.set(identity, path);
        if (item.kind === 'file') {
          const size = item.content.length;
          count(path, size);
          record(path, { ...facts, type: 'file', size, sha256: createHash('sha256').update(item.content).digest('hex'), target: NONE });
          yield header('file', path, size, NONE);
          if (size > 0) yield item.content;
          if (paddingOf(size) > 0) yield ZEROS.subarray(0, paddingOf(size));
        } else {
          const size = Number(item.facts.size);
          try {
            count(path, size);
            yield header('file', path, size, NONE);
            const hash = createHash('sha256');
            for await (const chunk of largeContent(item.fd, size, path)) {
              hash.update(chunk);
              yield chunk;
            }
            record(path, { ...facts, type: 'file', size, sha256: hash.digest('hex'), target: NONE });
            if (paddingOf(size) > 0) yield ZEROS.subarray(0, paddingOf(size));
          } finally {
            await closeFile(item.fd);
          }
        }
        break;
      }
    }
  }
  yield END_OF_ARCHIVE;
}

const ZEROS = Buffer.alloc(512);

/** Exactly `size` bytes; what a file grew by meanwhile is left. One chunk is read while the last is taken. */
async function* largeContent(fd: number, size: number, path: BytePath): AsyncGenerator<Buffer, void, undefined> {
  const readAt = (at: number): Promise<{ chunk: Buffer; got: number }> => {
    const chunk = Buffer.allocUnsafe(Math.min(SMALL_FILE, size - at));
    const reading = readFully(fd, chunk, at).then((got) => ({ chunk, got }));
    reading.catch(() => undefined);
    return reading;
  };
  let next = readAt(0);
  try {
    for (let at = 0; at < size;) {
      const { chunk, got } = await next;
      if (got < chunk.length) {
        throw new ProofrunError('ERR_TRANSFER_READ', {
          message: `${nameForMessage(path)} got shorter while it was sent to the engine: ${size} bytes when it was opened, ${at + got} now`,
          hint: 'run again when nothing writes to it, or hide it: --deny-read PATH',
        });
      }
      at += got;
      if (at < size) next = readAt(at);
      yield chunk;
    }
  } finally {
    // The descriptor is closed after this: no read may be under way.
    await next.catch(() => undefined);
  }
}

function factsOf(facts: BigIntStats, owner: UploadInput['owner']): { mode: number; uid: number; gid: number; mtime: Moment } {
  const { mtimeNs } = facts;
  let seconds = mtimeNs / 1_000_000_000n;
  if (mtimeNs < 0n && mtimeNs % 1_000_000_000n !== 0n) seconds -= 1n;
  return {
    mode: Number(facts.mode) & 0o7777,
    uid: owner?.uid ?? Number(facts.uid),
    gid: owner?.gid ?? Number(facts.gid),
    mtime: { seconds: Number(seconds), nanoseconds: Number(mtimeNs - seconds * 1_000_000_000n) },
  };
}
