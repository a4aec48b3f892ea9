import type { Change } from '../core/change.ts';
import { safeText } from '../core/text-safety.ts';
import { compareBytes, lossyTextOf, type BytePath } from './byte-path.ts';
import { readContent, type StageView } from './change-set.host.ts';
import type { StagedEntry } from './change-set.ts';
import type { LayerFacts } from './entry-facts.ts';
import { NO_BLOB, binaryLiteral, blobId, fileLineName, gitMode, patchName, quoteName } from './git-patch.ts';
import { DIFF_BYTES, diffLines, type LineDiff } from './line-diff.ts';

export interface DiffOptions {
  /** patch: bytes that `git apply` takes. text: for reading; names and lines went through the sanitiser. */
  readonly form: 'patch' | 'text';
  /** Undefined: every change. */
  readonly wanted?: (entry: StagedEntry) => boolean;
}

export interface StageDiff {
  readonly bytes: Buffer;
  /** Changes, or parts of them, that the form can't express. */
  readonly omitted: readonly { readonly path: string; readonly because: string }[];
}

/** Content above this size is named, not shown, in either form. */
const PATCH_BYTES = 64 << 20;

type GitType = 'file' | 'symlink';

/** One side as git sees it. */
interface Side {
  readonly type: GitType;
  readonly mode: string;
  readonly content: Buffer;
  readonly binary: boolean;
}

function gitType(facts: LayerFacts | undefined): GitType | undefined {
  return facts?.type === 'file' || facts?.type === 'symlink' ? facts.type : undefined;
}

/** For a person: the one sanitiser, on bytes. */
function readable(latin1: string): string {
  return safeText(Buffer.from(latin1, 'latin1'));
}

function readableLine(latin1: string): string {
  return safeText(Buffer.from(latin1, 'latin1'), { lines: true });
}

function isBinary(content: Buffer): boolean {
  return content.subarray(0, 8000).includes(0);
}

function sideOf(entry: StagedEntry, which: 'before' | 'after', view: StageView): Side | 'absent' | 'unreadable' {
  const facts = which === 'before' ? entry.before : entry.after;
  const type = gitType(facts);
  const root = view.roots[entry.change.root];
  if (facts === undefined || type === undefined) return 'absent';
  if (root === undefined || facts.size > PATCH_BYTES) return 'unreadable';
  const content = type === 'symlink' ? Buffer.from(facts.target ?? '', 'latin1') : readContent(entry, which, root);
  if (content === undefined) return 'unreadable';
  return { type, mode: gitMode(type, facts.mode), content, binary: type === 'file' && isBinary(content) };
}

function hunkText(diff: LineDiff, line: (text: string) => string): string {
  const range = (start: number, count: number) => (count === 1 ? `${start}` : `${start},${count}`);
  return diff.hunks
    .map(
      (hunk) =>
        `@@ -${range(hunk.oldStart, hunk.oldLines)} +${range(hunk.newStart, hunk.newLines)} @@\n${hunk.lines.map((text) => `${line(text)}\n`).join('')}`,
    )
    .join('');
}

interface Section {
  readonly from: BytePath;
  readonly to: BytePath;
  readonly before: Side | undefined;
  readonly after: Side | undefined;
  readonly renamed: boolean;
}

async function sectionText(section: Section, form: DiffOptions['form']): Promise<string> {
  const patch = form === 'patch';
  const name = (prefix: string, path: BytePath) => (patch ? quoteName(prefix + patchName(path)) : prefix + readable(path));
  const fileName = (prefix: string, path: BytePath) => (patch ? fileLineName(prefix + patchName(path)) : prefix + readable(path));
  const { before, after, from, to } = section;
  const lines = [`diff --git ${name('a/', from)} ${name('b/', to)}`];
  if (before === undefined && after !== undefined) lines.push(`new file mode ${after.mode}`);
  if (before !== undefined && after === undefined) lines.push(`deleted file mode ${before.mode}`);
  if (before !== undefined && after !== undefined && before.mode !== after.mode) lines.push(`old mode ${before.mode}`, `new mode ${after.mode}`);
  const same = before !== undefined && after !== undefined && before.content.equals(after.content);
  if (section.renamed) {
    lines.push(`similarity index ${same ? 100 : 50}%`, `rename from ${name('', from)}`, `rename to ${name('', to)}`);
  }
  if (same) return `${lines.join('\n')}\n`;
  const old = before === undefined ? NO_BLOB : blobId(before.content);
  const fresh = after === undefined ? NO_BLOB : blobId(after.content);
  if (patch) lines.push(`index ${old}..${fresh}${before !== undefined && before.mode === after?.mode ? ` ${after.mode}` : ''}`);
  const oldName = before === undefined ? '/dev/null' : fileName('a/', from);
  const newName = after === undefined ? '/dev/null' : fileName('b/', to);
  const empty = Buffer.alloc(0);
  const oldContent = before?.content ?? empty;
  const newContent = after?.content ?? empty;
  const large = Math.max(oldContent.length, newContent.length) > DIFF_BYTES && before !== undefined && after !== undefined;
  if (before?.binary === true || after?.binary === true || (large && patch)) {
    return patch
      ? `${lines.join('\n')}\nGIT binary patch\n${binaryLiteral(newContent)}${binaryLiteral(oldContent)}`
      : `${lines.join('\n')}\nBinary files ${oldName} and ${newName} differ (${oldContent.length} and ${newContent.length} bytes)\n`;
  }
  if (large) return `${lines.join('\n')}\nFiles ${oldName} and ${newName} differ (${oldContent.length} and ${newContent.length} bytes)\n`;
  const diff = await diffLines(oldContent.toString('latin1'), newContent.toString('latin1'));
  const body = hunkText(diff, (text) => (patch ? text : readableLine(text)));
  if (body === '') return `${lines.join('\n')}\n`;
  return `${lines.join('\n')}\n--- ${oldName}\n+++ ${newName}\n${body}`;
}

function omission(entry: StagedEntry, change: Change): string | undefined {
  const { before, after } = entry;
  const type = (after ?? before)?.type;
  if (type === 'directory' && gitType(before) === undefined) {
    if (change.implied === true) return undefined;
    return change.kind === 'attributes'
      ? 'attributes of a directory'
      : change.kind === 'added'
        ? 'an empty directory'
        : change.kind === 'deleted'
          ? 'a directory by itself'
          : 'a directory';
  }
  if (gitType(before) === undefined && gitType(after) === undefined) return `a ${type ?? 'thing'}`;
  if (after !== undefined && after.type !== 'directory' && gitType(after) === undefined) return `a ${after.type}`;
  if (before?.type === 'file' && after?.type === 'file') {
    const beyond = (before.mode & ~0o111) !== (after.mode & ~0o111);
    const xattrs =
      before.xattrs.length !== after.xattrs.length || before.xattrs.some((x, i) => x.name !== after.xattrs[i]?.name || !x.value.equals(after.xattrs[i].value));
    if (beyond || xattrs) return xattrs ? 'extended attributes' : 'permission bits other than executable';
  }
  return undefined;
}

function escaped(form: DiffOptions['form'], text: string): string {
  // Text form holds real characters, patch form holds bytes: both end as one string of bytes.
  return form === 'patch' ? text : Buffer.from(text, 'utf8').toString('latin1');
}

/**
 * Unified diff of a stage against the tree. In patch form `git apply` (with --binary in old versions) carries it over,
 * for all that git can express; the rest is listed. Reads files beneath the roots, follows no link.
 */
export async function diffText(view: StageView, options: DiffOptions): Promise<StageDiff> {
  const omitted: { path: string; because: string }[] = [];
  const parts: string[] = [];
  const chosen = view.entries.filter((entry) => options.wanted?.(entry) ?? true);
  // A patch is ordered by path; a reading keeps the order of the review.
  const entries = options.form === 'patch' ? [...chosen].sort((a, b) => a.change.root - b.change.root || compareBytes(a.path, b.path)) : chosen;
  for (const entry of entries) {
    const path = lossyTextOf(entry.path);
    const because = omission(entry, entry.change);
    if (because !== undefined) omitted.push({ path, because });
    const before = sideOf(entry, 'before', view);
    const after = sideOf(entry, 'after', view);
    if (before === 'unreadable' || after === 'unreadable') {
      omitted.push({ path, because: 'content that is too large, or changed while it was read' });
      continue;
    }
    const old = before === 'absent' ? undefined : before;
    const fresh = after === 'absent' ? undefined : after;
    if (old === undefined && fresh === undefined) continue;
    if (fresh !== undefined && old?.mode === fresh.mode && entry.from === undefined && old.content.equals(fresh.content)) continue;
    const base = { from: entry.from ?? entry.path, to: entry.path, renamed: entry.from !== undefined };
    const sections: Section[] =
      old !== undefined && fresh !== undefined && old.type !== fresh.type
        ? [
            { ...base, before: old, after: undefined },
            { ...base, before: undefined, after: fresh },
          ]
        : [{ ...base, before: old, after: fresh }];
    for (const section of sections) parts.push(escaped(options.form, await sectionText(section, options.form)));
  }
  return { bytes: Buffer.from(parts.join(''), 'latin1'), omitted };
}
