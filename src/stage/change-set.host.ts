import { readFileSync } from 'node:fs';
import type { AppliedPath, ChangeSet, StagedRoot } from '../core/change.ts';
import { ProofrunError, errnoOf, messageOf } from '../core/errors.ts';
import { bytePathOfText, decodePath, type BytePath } from './byte-path.ts';
import { buildChanges, isSameThing, type StagedEntry } from './change-set.ts';
import type { LayerFacts } from './entry-facts.ts';
import type { Generation } from './generations.ts';
import { readLayerIndex } from './layer.host.ts';
import { parseLayerListing, type LayerListing } from './layer-reader.ts';
import { DIFF_BYTES, diffLines } from './line-diff.ts';
import { clockFellBack, type AppliedState, type RestoredState } from './preimage-check.ts';
import { parsePreimage, type Preimage } from './preimage.ts';
import { readFileBeneath } from './read-beneath.host.ts';
import { compareForReview, totalsOf } from './review-order.ts';
import { runShim } from './shim-process.host.ts';

/** Which extended attributes the overlay wrote its marks under: `user` when it was mounted with userxattr. */
export type OverlayMarkers = 'user' | 'trusted';

export interface ReadStageInput {
  /** Absolute path of proofrun-shim. */
  readonly shim: string;
  /** In the order of the run's list; index 0 is the workspace. */
  readonly roots: readonly StagedRoot[];
  readonly markers: OverlayMarkers;
  /** Absolute paths that the job could not see. */
  readonly hidden: readonly string[];
  /** What earlier applies of this run touched. */
  readonly applied: readonly AppliedPath[];
  /** Why the host would run what lies at this path beneath a staged root; undefined when it would not. */
  readonly executes: (relativePath: string, root: number) => string | undefined;
  /** Bytes above which a staged file is not read and can't be applied. Default 16 GiB. */
  readonly fileLimitBytes?: number;
}

/** What a stage would change, against the tree as it is at this moment. */
export interface StageView {
  readonly changeSet: ChangeSet;
  /** Parallel to `changeSet.changes`. */
  readonly entries: readonly StagedEntry[];
  readonly roots: readonly StagedRoot[];
  /** Per root: what there is now of the root itself (empty path) and of every directory above a change. */
  readonly directories: readonly ReadonlyMap<BytePath, LayerFacts>[];
}

/** Bytes of text that one look spends on line counts of modified files; beyond it they are null. */
const COUNTED_BYTES = 64 << 20;

function beneath(root: string, absolute: string): BytePath | undefined {
  if (absolute === root) return '' as BytePath;
  return absolute.startsWith(`${root}/`) ? bytePathOfText(absolute.slice(root.length + 1)) : undefined;
}

/** What earlier applies left in one root; the latest word on a path counts. */
function touchedIn(applied: readonly AppliedPath[], root: number): { applied: Map<BytePath, AppliedState>; restored: Map<BytePath, RestoredState> } {
  const found = { applied: new Map<BytePath, AppliedState>(), restored: new Map<BytePath, RestoredState>() };
  for (const touched of applied) {
    if (touched.root !== root) continue;
    const path = decodePath(touched.path, touched.encoding);
    const identity = { dev: BigInt(touched.dev), ino: BigInt(touched.ino) };
    if (touched.state !== 'restored') {
      found.restored.delete(path);
      found.applied.set(path, { ...identity, state: touched.state });
      continue;
    }
    found.applied.delete(path);
    const [seconds, nanoseconds] = touched.ctime ?? [0, 0];
    found.restored.set(path, { ...identity, ctime: { seconds, nanoseconds } });
  }
  return found;
}

function readPreimage(path: string): Preimage {
  let bytes: Buffer;
  try {
    bytes = readFileSync(path);
  } catch (error) {
    throw new ProofrunError('ERR_STAGE_LAYER', {
      message: `the record of the workspace before the run can't be read: ${messageOf(error)}`,
      data: { errno: errnoOf(error) ?? '' },
      cause: error,
    });
  }
  return parsePreimage(bytes);
}

/** Where the content of one side of a change lies. */
export function readContent(entry: StagedEntry, side: 'before' | 'after', root: StagedRoot): Buffer | undefined {
  const facts: LayerFacts | undefined = side === 'before' ? entry.before : entry.after;
  if (facts?.type !== 'file' || facts.sha256 === undefined) return undefined;
  if (side === 'before') return readFileBeneath(root.root, entry.from ?? entry.path, facts);
  if (entry.source !== undefined) return readFileBeneath(root.root, entry.source, { ...facts, ino: undefined });
  return readFileBeneath(root.upper, entry.path, facts);
}

/** Looks at a layer and at the tree that it lies over, or would lie over. */
async function scanLayer(input: ReadStageInput, root: StagedRoot): Promise<LayerListing> {
  const limit = input.fileLimitBytes === undefined ? [] : ['--hash-limit', String(input.fileLimitBytes)];
  const scan = await runShim(input.shim, ['scan', root.upper, '--lower', root.root, '--markers', input.markers, ...limit]);
  return parseLayerListing(scan.stdout);
}

function directoriesOf(listing: LayerListing): Map<BytePath, LayerFacts> {
  return new Map(listing.entries.flatMap(({ path, before }) => (before?.type === 'directory' ? [[path, before] as const] : [])));
}

/** Counts the lines of modified texts, as far as `budget` bytes go. */
async function countLines(found: readonly StagedEntry[], root: StagedRoot, budget: { left: number }): Promise<StagedEntry[]> {
  const entries: StagedEntry[] = [];
  for (const entry of found) {
    const { before, after, change } = entry;
    const size = Math.max(before?.size ?? 0, after?.size ?? 0);
    const wanted = change.addedLines === null && !change.binary && before?.type === 'file' && after?.type === 'file' && size <= DIFF_BYTES;
    if (!wanted || budget.left < size) {
      entries.push(entry);
      continue;
    }
    budget.left -= size;
    const old = readContent(entry, 'before', root);
    const fresh = readContent(entry, 'after', root);
    if (old === undefined || fresh === undefined) {
      entries.push(entry);
      continue;
    }
    const diff = await diffLines(old.toString('latin1'), fresh.toString('latin1'));
    entries.push({ ...entry, change: { ...change, addedLines: diff.added, removedLines: diff.removed } });
  }
  return entries;
}

function viewOf(entries: StagedEntry[], roots: readonly StagedRoot[], directories: StageView['directories']): StageView {
  entries.sort((a, b) => compareForReview(a.change, b.change, a.path, b.path));
  const changes = entries.map((entry) => entry.change);
  return { changeSet: { changes, totals: totalsOf(changes) }, entries, roots, directories };
}

/**
 * Reads every staged root and compares it with the tree as it is now: exact changes with the hashes of both sides,
 * conflicts by the preimage, in the order of a review. Reads only; no link is followed. Throws ERR_STAGE_LAYER.
 */
export async function readChangeSet(input: ReadStageInput): Promise<StageView> {
  const entries: StagedEntry[] = [];
  const directories: Map<BytePath, LayerFacts>[] = [];
  const budget = { left: COUNTED_BYTES };
  for (const [index, root] of input.roots.entries()) {
    const listing = await scanLayer(input, root);
    const preimage = readPreimage(root.preimage);
    const clock = { ...listing.clock, realMs: Date.now() };
    const earlier = (root.earlier ?? []).map((one): Generation => {
      const before = readPreimage(one.preimage);
      const hidden = one.hidden.flatMap((path) => beneath(root.root, path) ?? []);
      return { run: one.run, preimage: before, hidden, index: readLayerIndex(one.index), clockFellBack: clockFellBack(before, clock) };
    });
    const found = buildChanges({
      root: index,
      rootPath: root.root,
      entries: listing.entries,
      preimage,
      hidden: input.hidden.flatMap((path) => beneath(root.root, path) ?? []),
      ...touchedIn(input.applied, index),
      clockFellBack: clockFellBack(preimage, clock),
      ...(root.index === undefined ? {} : { index: readLayerIndex(root.index) }),
      earlier,
      ownership: input.markers === 'trusted' ? 'compare' : 'ignore',
      executes: (path) => input.executes(path, index),
    });
    directories.push(directoriesOf(listing));
    entries.push(...(await countLines(found, root, budget)));
  }
  return viewOf(entries, input.roots, directories);
}

/**
 * What the stage of the workspace (the first root) would change in another directory. A path is in conflict where that directory has
 * something else than the workspace, or where the workspace itself is no longer what the run saw. Throws ERR_STAGE_LAYER.
 */
export async function readTargetSet(input: ReadStageInput, target: string): Promise<StageView> {
  const [workspace] = input.roots;
  if (workspace === undefined) return viewOf([], [], []);
  const seen = await readChangeSet({ ...input, roots: [workspace] });
  const conflicts = new Set(
    seen.entries.flatMap(({ change, path, from }) => (change.conflict === undefined ? [] : [path, ...(from === undefined ? [] : [from])])),
  );
  const here = new Map((await scanLayer(input, workspace)).entries.map(({ path, before }) => [path, before]));
  const root: StagedRoot = { ...workspace, root: target };
  const listing = await scanLayer(input, root);
  const found = buildChanges({
    root: 0,
    rootPath: target,
    entries: listing.entries,
    preimage: readPreimage(workspace.preimage),
    hidden: [],
    applied: new Map(),
    restored: new Map(),
    clockFellBack: false,
    ownership: input.markers === 'trusted' ? 'compare' : 'ignore',
    executes: (path) => input.executes(path, 0),
    judge: (path, before, attributesOnly) => {
      const expected = here.get(path);
      if (conflicts.has(path)) return 'the workspace itself changed here since the run began';
      if (!isSameThing(before, expected)) return 'it is not what the workspace has here';
      return attributesOnly && before?.mode !== expected?.mode ? 'its mode is not the one that it has in the workspace' : undefined;
    },
  });
  return viewOf(await countLines(found, root, { left: COUNTED_BYTES }), [root], [directoriesOf(listing)]);
}
