import { createHash, type Hash } from 'node:crypto';
import { mkdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { StagedRoot } from '../../../src/core/change.ts';
import { errnoOf, messageOf, ProofrunError } from '../../../src/core/errors.ts';
import type { BytePath } from '../../../src/stage/byte-path.ts';
import type { OverlayMarkers } from '../../../src/stage/change-set.host.ts';
import { dropStage } from '../../../src/stage/stage-directory.host.ts';
import { buildLayer } from './build-layer.host.ts';
import { copyFromTree } from './copy-from-tree.host.ts';
import { differs, planLayer, type KeptContent } from './layer-plan.ts';
import { beyondLimit, DEFAULT_LIMITS, type TransferLimits } from './limits.ts';
import type { Manifest } from './manifest.ts';
import { SMALL_FILE } from './read-entry.host.ts';
import { openSpool, type Spool, type SpooledFile } from './spool.host.ts';
import { TarFault } from './tar-header.ts';
import { createTarReader } from './tar-reader.ts';
import { createTreeCheck, nameForMessage, strangeStream, type PlacedEntry, type ReturnedEntry } from './tree-check.ts';

export interface DownloadInput {
  /** Absolute path of proofrun-shim. */
  readonly shim: string;
  /** The tar stream of the tree, as the engine gives it for one directory. Destroyed when this is done. */
  readonly stream: Readable;
  /** What was sent before. */
  readonly sent: Manifest;
  /** The staged root whose upper directory, empty until now, takes the result. */
  readonly root: StagedRoot;
  readonly markers: OverlayMarkers;
  readonly limits?: TransferLimits;
}

export interface Download {
  /** What came back and isn't staged, with the reason. */
  readonly leftOut: readonly { readonly path: BytePath; readonly why: string }[];
  /** Entries that came back, and bytes of their files. */
  readonly entries: number;
  readonly bytes: number;
  /** Extended attributes that came along and were not taken, by name. */
  readonly xattrs: readonly string[];
}

/** What a file that is coming in is gathered in. */
interface Incoming {
  readonly placed: PlacedEntry;
  readonly hash: Hash;
  readonly parts: Buffer[];
  readonly whole: SpooledFile | undefined;
  left: number;
}

const TRAILING_BYTES = 1 << 20;

/**
 * Reads a tree that came back from an engine, and makes the staged root's upper directory what an overlay's would be: only what differs from
 * what was sent. All or nothing: contents wait under names of ours until the stream was read to its end, the layer is built beside the upper
 * directory, one component at a time beneath an open directory, and takes its place by one rename. Whatever the stream holds, nothing else
 * is written.
 *
 * Throws ERR_TRANSFER_STREAM for what no engine sends, ERR_TRANSFER_LIMIT, ERR_STAGE_FULL, ERR_STAGE_LAYER; then the upper directory is as
 * it was.
 */
export async function downloadTree(input: DownloadInput): Promise<Download> {
  const { root, shim, stream } = input;
  const beside = `${root.upper}.coming`;
  // What an earlier attempt left: its owner died.
  await dropStage({ shim, directory: beside });
  try {
    mkdirSync(beside, { mode: 0o700 });
    const spool = openSpool(join(beside, 'spool'));
    let result: Download;
    try {
      const returned = await receive(input, spool);
      const plan = planLayer({ ...returned, sent: input.sent, compareOwners: comparesOwners(input), nextNumber: spool.nextNumber });
      await spool.close();
      const upper = join(beside, 'upper');
      mkdirSync(upper, { mode: 0o700 });
      await buildLayer({ shim, upper, spool: join(beside, 'spool'), tree: root.root, markers: input.markers, steps: plan.steps });
      put(upper, root.upper);
      result = { leftOut: plan.leftOut, entries: returned.returned.size, bytes: returned.bytes, xattrs: returned.xattrs };
    } finally {
      await spool.close();
    }
    return result;
  } catch (error) {
    const errno = errnoOf(error);
    if (error instanceof ProofrunError || errno === undefined) throw error;
    throw new ProofrunError(errno === 'ENOSPC' || errno === 'EDQUOT' ? 'ERR_STAGE_FULL' : 'ERR_STAGE_LAYER', {
      message: `what came back from the engine could not be staged: ${messageOf(error)}`,
      data: { errno },
      cause: error,
    });
  } finally {
    stream.destroy();
    await dropStage({ shim, directory: beside });
  }
}

function comparesOwners({ markers }: Pick<DownloadInput, 'markers'>): boolean {
  return markers === 'trusted';
}

/** rename(2) replaces an empty directory only: a stage that holds something is never lost. */
function put(built: string, upper: string): void {
  try {
    renameSync(built, upper);
  } catch (error) {
    if (errnoOf(error) !== 'ENOTEMPTY' && errnoOf(error) !== 'EEXIST') throw error;
    throw new ProofrunError('ERR_STAGE_LAYER', { message: `${upper} holds a staged result already`, cause: error });
  }
}

interface Received {
  readonly returned: ReadonlyMap<BytePath, ReturnedEntry>;
  readonly content: (path: BytePath) => KeptContent | undefined;
  readonly sha256: (path: BytePath) => string;
  readonly bytes: number;
  readonly xattrs: readonly string[];
}

/** Reads the stream to its end; contents that differ from what was sent are in the spool afterwards. */
async function receive(input: DownloadInput, spool: Spool): Promise<Received> {
  const limits = input.limits ?? DEFAULT_LIMITS;
  const { sent } = input;
  const owners = comparesOwners(input);
  const reader = createTarReader({ paxBytes: limits.paxBytes, trailingBytes: TRAILING_BYTES });
  const check = createTreeCheck(limits);
  const contents = new Map<BytePath, KeptContent>();
  const hashes = new Map<BytePath, string>();
  const xattrs = new Set<string>();
  let kept = 0;
  let bytes = 0;
  let incoming: Incoming | undefined;

  const keep = (size: number, path: BytePath): void => {
    kept += size;
    if (kept > limits.keptBytes) throw beyondLimit('keptBytes', limits, nameForMessage(path), 'down');
  };
  const begin = (placed: PlacedEntry): Incoming => {
    const { path, entry } = placed;
    const before = sent.entries.get(path);
    const surelyNew = before?.type !== 'file' || before.size !== entry.size;
    if (surelyNew) keep(entry.size, path);
    return { placed, hash: createHash('sha256'), parts: [], whole: entry.size > SMALL_FILE ? spool.addWhole() : undefined, left: entry.size };
  };
  const finish = async ({ placed, hash, parts, whole }: Incoming): Promise<void> => {
    const { path, entry } = placed;
    const sha256 = hash.digest('hex');
    hashes.set(path, sha256);
    const before = sent.entries.get(path);
    if (!differs(before, entry, sha256, owners)) {
      whole?.discard();
      return;
    }
    if (before?.type === 'file' && before.size === entry.size) keep(entry.size, path);
    await whole?.finish();
    contents.set(path, whole?.content ?? (await spool.addPart(parts.length === 1 && parts[0] !== undefined ? Buffer.from(parts[0]) : Buffer.concat(parts))));
  };

  try {
    for await (const chunk of input.stream as AsyncIterable<Buffer>) {
      for (const event of reader.take(chunk)) {
        switch (event.kind) {
          case 'entry': {
            const placed = check.place(event.entry);
            for (const name of event.entry.xattrs) if (xattrs.size < MOST_XATTRS) xattrs.add(name);
            if (placed.entry.type === 'file' && placed.entry.linkOf === undefined) {
              bytes += placed.entry.size;
              incoming = begin(placed);
            }
            break;
          }
          case 'content':
            if (incoming === undefined) break;
            incoming.hash.update(event.bytes);
            incoming.left -= event.bytes.length;
            if (incoming.whole !== undefined) await incoming.whole.append(event.bytes);
            // A view into a chunk is fine for a file that ends in it; a file of many chunks must not keep them all alive.
            else incoming.parts.push(incoming.left === 0 && incoming.parts.length === 0 ? event.bytes : Buffer.from(event.bytes));
            break;
          case 'entry-end':
            if (incoming !== undefined) await finish(incoming);
            incoming = undefined;
            break;
        }
      }
    }
    reader.end();
  } catch (error) {
    if (error instanceof TarFault) throw strangeStream(error.message, incoming?.placed.path);
    if (error instanceof ProofrunError || errnoOf(error) === 'ENOSPC' || errnoOf(error) === 'EDQUOT') throw error;
    throw new ProofrunError('ERR_TRANSFER_STREAM', {
      message: `the stream of the tree that came back from the engine broke off: ${messageOf(error)}; nothing of it was staged`,
      cause: error,
    });
  }

  await fetchLinked(input, check.placed, contents, hashes, spool, owners);
  return {
    returned: check.placed,
    content: (path) => contents.get(path),
    sha256: (path) => hashes.get(path) ?? '',
    bytes,
    xattrs: [...xattrs].sort(),
  };
}

const MOST_XATTRS = 20;

/** New names of a file whose content was as it was sent, and so wasn't kept: it is taken from the tree, if that still has it. */
async function fetchLinked(
  { root, sent }: DownloadInput,
  placed: ReadonlyMap<BytePath, ReturnedEntry>,
  contents: Map<BytePath, KeptContent>,
  hashes: ReadonlyMap<BytePath, string>,
  spool: Spool,
  owners: boolean,
): Promise<void> {
  for (const [path, entry] of placed) {
    const first = entry.linkOf;
    if (first === undefined || contents.has(first)) continue;
    const sha256 = hashes.get(first) ?? '';
    if (!differs(sent.entries.get(path), entry, sha256, owners)) continue;
    const file = spool.addWhole();
    if (await copyFromTree({ root: root.root, path: first, size: entry.size, sha256, into: file.append })) {
      await file.finish();
      contents.set(first, file.content);
    } else {
      file.discard();
    }
  }
}
