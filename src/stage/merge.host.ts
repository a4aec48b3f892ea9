import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Change } from '../core/change.ts';
import type { BytePath } from './byte-path.ts';
import { readContent, type StageView } from './change-set.host.ts';
import type { StagedEntry } from './change-set.ts';
import { withContent } from './choice.host.ts';
import { compareMoments } from './entry-facts.ts';
import { keptDirectory, loadKept } from './ledger.host.ts';
import { DIFF_BYTES } from './line-diff.ts';
import { mergeThree } from './merge-three.ts';
import { parsePlan, type PlanContent } from './plan-bytes.ts';
import { parsePreimage, type Preimage } from './preimage.ts';
import { readFileBeneath } from './read-beneath.host.ts';

export interface MergeResult {
  readonly entries: readonly StagedEntry[];
  /** Content of merged entries, by the name that they give. */
  readonly given: ReadonlyMap<string, Buffer>;
  /** Merged paths, with the places that need a person. */
  readonly merged: readonly { readonly entry: StagedEntry; readonly conflicts: number }[];
}

interface KeptApply {
  readonly id: string;
  readonly plan: PlanContent;
}

function keptApplies(stateDirectory: string): KeptApply[] {
  const directory = keptDirectory(stateDirectory);
  return readdirSync(directory).flatMap((name): KeptApply[] => {
    const id = /^([0-9A-Z]{26})\.json$/.exec(name)?.[1];
    const kept = id === undefined ? undefined : loadKept(directory, id);
    return id === undefined || kept === undefined ? [] : [{ id, plan: parsePlan(kept.plan) }];
  });
}

/** The content that the run saw at a path, where an apply since then has kept it: the same file, unchanged since the run began. */
function baseOf(stateDirectory: string, applies: readonly KeptApply[], preimage: Preimage, root: string, path: BytePath): Buffer | undefined {
  const seen = preimage.entry(path);
  if (seen === undefined) return undefined;
  for (const { id, plan } of applies) {
    for (const [index, operation] of plan.operations.entries()) {
      const { kind, before } = operation;
      if (operation.path !== path || plan.roots[operation.root]?.path !== root) continue;
      if ((kind !== 'replace' && kind !== 'delete') || before?.type !== 'file' || before.ino !== seen.ino) continue;
      if (compareMoments(before.ctime, preimage.t0) >= 0 || before.size > DIFF_BYTES) continue;
      const name = `${kind === 'delete' ? 'd' : 'n'}${index}` as BytePath;
      const content = readFileBeneath(join(keptDirectory(stateDirectory), `${id}.${operation.root}`), name, { ino: undefined, size: before.size });
      if (content !== undefined) return content;
    }
  }
  return undefined;
}

function withoutConflict(change: Change): Change {
  const rest: { conflict?: unknown } & Change = { ...change };
  delete rest.conflict;
  return rest;
}

/**
 * Merges every conflict of a text that changed here and in the stage, where what the run saw was kept by an earlier apply; the others stay
 * conflicts, with that reason. Reads only.
 */
export async function mergeConflicts(view: StageView, stateDirectory: string): Promise<MergeResult> {
  const applies = keptApplies(stateDirectory);
  const preimages = view.roots.map((root) => parsePreimage(readFileSync(root.preimage)));
  const given = new Map<string, Buffer>();
  const merged: { entry: StagedEntry; conflicts: number }[] = [];
  const entries: StagedEntry[] = [];
  for (const entry of view.entries) {
    const { change, before, after } = entry;
    const root = view.roots[change.root];
    const preimage = preimages[change.root];
    if (change.conflict === undefined || root === undefined || preimage === undefined) {
      entries.push(entry);
      continue;
    }
    const text =
      change.kind === 'modified' &&
      !change.binary &&
      before?.type === 'file' &&
      after?.type === 'file' &&
      before.size <= DIFF_BYTES &&
      after.size <= DIFF_BYTES;
    const base = text ? baseOf(stateDirectory, applies, preimage, root.root, entry.path) : undefined;
    const here = readContent(entry, 'before', root);
    const staged = readContent(entry, 'after', root);
    if (base === undefined || base.includes(0) || here === undefined || staged === undefined) {
      const why = text ? "what the run saw of it isn't kept, so it can't be merged" : 'only texts on both sides can be merged';
      entries.push({ ...entry, change: { ...change, conflict: { ...change.conflict, reason: `${change.conflict.reason}; ${why}` } } });
      continue;
    }
    const { text: content, conflicts } = await mergeThree(base.toString('latin1'), here.toString('latin1'), staged.toString('latin1'));
    const name = `m${given.size}`;
    const bytes = Buffer.from(content, 'latin1');
    given.set(name, bytes);
    const settled = withoutConflict(change);
    const fresh = withContent({ ...entry, change: settled }, bytes, name as BytePath);
    merged.push({ entry: fresh, conflicts });
    entries.push(fresh);
  }
  return { entries, given, merged };
}
