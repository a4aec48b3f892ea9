import { chmodSync, chownSync, existsSync, linkSync, lstatSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { EarlierStage, StagedRoot } from '../core/change.ts';
import { ProofrunError } from '../core/errors.ts';
import { isWithin } from '../policy/path-rule.ts';
import type { BytePath } from '../stage/byte-path.ts';
import { mergeLayers, type MergeLayers } from '../stage/layer.host.ts';
import { parsePreimage } from '../stage/preimage.ts';
import { dropStage } from '../stage/stage-directory.host.ts';
import type { LayerPoint } from './points.ts';
import type { RunnerParts } from './runner.ts';
import { relativeRoot, STAGE_RECORD, type StageRecord } from './stage-record.ts';
import type { StartingPoint } from './starting-point.host.ts';

export interface LaidBases {
  readonly roots: readonly StagedRoot[];
  /** Where the result holds what is at a path of a root; undefined: it says nothing about the path. */
  readonly locate: (path: string) => string | undefined;
}

/**
 * Puts the staged result of another run under the layers of a new one, as links in the new run's own directory: whatever becomes of the
 * other run afterwards, this one has what it needs. Throws what `from.holds` throws when the result went away meanwhile, ERR_STAGE_LAYER,
 * ERR_STAGE_FULL.
 */
export async function layBases(parts: Pick<RunnerParts, 'shim'>, from: StartingPoint, roots: readonly StagedRoot[], stage: string): Promise<LaidBases> {
  const laid: StagedRoot[] = [];
  for (const [index, root] of roots.entries()) {
    const source = from.roots[index];
    if (source?.root !== root.root) throw new ProofrunError('ERR_INTERNAL', { message: `${from.name} has no stage of ${root.root}` });
    const { base, earlier } = await takeOver(parts.shim, source, from, join(stage, `root-${index}`), { tree: root.root });
    wearRoot(root, source, base);
    laid.push({ ...root, base, earlier });
  }
  from.holds();
  return {
    roots: laid,
    locate: (path) => {
      const root = laid.find((one) => isWithin(path, one.root));
      if (root?.base === undefined) return undefined;
      const inside = `${root.base}${path.slice(root.root.length)}`;
      return lstatSync(inside, { throwIfNoEntry: false }) === undefined ? undefined : inside;
    },
  };
}

export interface TakenOver {
  readonly base: string;
  readonly earlier: readonly EarlierStage[];
}

/** Links the layer of one staged root, and what is known of the runs behind it, into a directory of ours. */
export async function takeOver(
  shim: string,
  source: StagedRoot,
  from: Pick<StartingPoint, 'hidden'> & { readonly lineage: { readonly parent: string } },
  directory: string,
  how: Pick<MergeLayers, 'copy' | 'sync' | 'tree'> = {},
): Promise<TakenOver> {
  const base = join(directory, 'base');
  const file = (name: string, generation: number): string => join(directory, `${name}-${generation}`);
  // A run that goes on over a base has two layers; what its own touches is known only from it.
  const layers = source.base === undefined ? { base: source.upper } : { base: source.base, over: source.upper };
  await mergeLayers({ ...how, ...layers, shim, to: base, ...(source.index === undefined ? { index: file('index', 0) } : {}) });
  if (source.index !== undefined) linkSync(source.index, file('index', 0));
  linkSync(source.preimage, file('preimage', 0));
  const earlier = (source.earlier ?? []).map((one, count): EarlierStage => {
    linkSync(one.index, file('index', count + 1));
    linkSync(one.preimage, file('preimage', count + 1));
    return { ...one, index: file('index', count + 1), preimage: file('preimage', count + 1) };
  });
  return { base, earlier: [{ run: from.lineage.parent, index: file('index', 0), preimage: file('preimage', 0), hidden: from.hidden }, ...earlier] };
}

/** The top of the new layer looks like the result's where that run changed it; else like the directory, as it was made. */
function wearRoot(root: StagedRoot, source: StagedRoot, base: string): void {
  const oldest = source.earlier?.at(-1)?.preimage ?? source.preimage;
  const was = parsePreimage(readFileSync(oldest)).directory('' as BytePath);
  const now = lstatSync(base);
  if (was?.mode === (now.mode & 0o7777) && was.uid === now.uid && was.gid === now.gid) return;
  if (process.geteuid?.() === 0) chownSync(root.upper, now.uid, now.gid);
  chmodSync(root.upper, now.mode & 0o7777);
}

const MERGED = 'merged';
const OWN_INDEX = 'index';

/**
 * Makes one layer of what a run was given and what it wrote, so that its stage is read, applied and built upon like any other. One rename of
 * the record is the moment at which it counts; repeating it after a crash finishes or begins anew. Resolves to the roots as they are now.
 */
export async function joinBases(
  parts: Pick<RunnerParts, 'shim'>,
  stage: string,
  record: Pick<StageRecord, 'roots'>,
  remember: (roots: readonly StagedRoot[]) => void,
  at: (point: LayerPoint) => Promise<void> = () => Promise.resolve(),
): Promise<readonly StagedRoot[]> {
  const { shim } = parts;
  if (record.roots.every((root) => root.base === undefined)) {
    await removeParts(shim, record.roots);
    return record.roots;
  }
  const roots: StagedRoot[] = [];
  for (const root of record.roots) {
    const { base, ...rest } = root;
    if (base === undefined) {
      roots.push(root);
      continue;
    }
    const directory = dirname(root.upper);
    const merged = join(directory, MERGED);
    const index = join(directory, OWN_INDEX);
    await dropStage({ shim, directory: merged });
    rmSync(index, { force: true });
    await mergeLayers({ shim, to: merged, base, over: root.upper, index, tree: root.root });
    roots.push({ ...rest, upper: merged, index });
  }
  await at('layers-joined');
  remember(roots);
  await at('layers-named');
  await removeParts(shim, roots);
  return roots;
}

/** The parts that a joined layer was made of. */
async function removeParts(shim: string, roots: readonly StagedRoot[]): Promise<void> {
  for (const { upper } of roots) {
    if (!upper.endsWith(`/${MERGED}`)) continue;
    for (const name of ['upper', 'base']) {
      const part = join(dirname(upper), name);
      if (existsSync(part)) await dropStage({ shim, directory: part });
    }
  }
}

/** Writes the record of a stage anew, as a whole or not at all. */
export function replaceRecord(stage: string, record: StageRecord): void {
  const file = join(stage, STAGE_RECORD);
  const fresh = `${file}.new`;
  rmSync(fresh, { force: true });
  writeFileSync(fresh, JSON.stringify({ ...record, roots: record.roots.map((root) => relativeRoot(root, stage)) }), { mode: 0o600, flag: 'wx' });
  renameSync(fresh, file);
}
