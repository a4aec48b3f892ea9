import { createHash } from 'node:crypto';
import type { BytePath } from './byte-path.ts';
import { readContent, type StageView } from './change-set.host.ts';
import type { StagedEntry } from './change-set.ts';
import type { Choice } from './apply.host.ts';
import { applyHunks } from './hunks.ts';
import { DIFF_BYTES, diffLines, type Hunk } from './line-diff.ts';

/** A changed text whose hunks can be taken one by one. */
export interface HunkedText {
  readonly hunks: readonly Hunk[];
  readonly before: string;
}

/** The hunks of a modified text; undefined for whatever is taken whole or not at all. */
export async function hunksOf(entry: StagedEntry, view: StageView): Promise<HunkedText | undefined> {
  const { before, after, change } = entry;
  const root = view.roots[change.root];
  if (change.kind !== 'modified' || change.binary || root === undefined || before?.type !== 'file' || after?.type !== 'file') return undefined;
  // Other names of the same file would have to get the same part.
  if (before.size > DIFF_BYTES || after.size > DIFF_BYTES || after.nlink > 1) return undefined;
  const [old, fresh] = [readContent(entry, 'before', root), readContent(entry, 'after', root)];
  if (old === undefined || fresh === undefined) return undefined;
  const { hunks } = await diffLines(old.toString('latin1'), fresh.toString('latin1'));
  return hunks.length < 2 ? undefined : { hunks, before: old.toString('latin1') };
}

/** What a person took: whole entries, and of some texts only hunks. */
export interface TakenEntry {
  readonly entry: StagedEntry;
  /** Undefined: all of it. */
  readonly part?: { readonly text: HunkedText; readonly hunks: ReadonlySet<number> };
}

/** Turns answers into what an apply takes. Pure. */
export function choiceOf(taken: readonly TakenEntry[]): Choice {
  const given = new Map<string, Buffer>();
  const partial = new Set<StagedEntry>();
  const entries = taken.map(({ entry, part }, index): StagedEntry => {
    if (part === undefined || entry.after === undefined) return entry;
    const content = Buffer.from(applyHunks(part.text.before, part.text.hunks, part.hunks), 'latin1');
    const name = `g${index}`;
    given.set(name, content);
    const mixed = withContent(entry, content, name as BytePath);
    partial.add(mixed);
    return mixed;
  });
  return { entries, partial, given };
}

/** The entry with other content than the stage has. */
export function withContent(entry: StagedEntry, content: Buffer, name: BytePath): StagedEntry {
  const { after } = entry;
  if (after === undefined) return entry;
  return {
    ...entry,
    after: { ...after, ino: 0n, nlink: 1, size: content.length, sha256: createHash('sha256').update(content).digest('hex') },
    source: undefined,
    given: name,
  };
}
