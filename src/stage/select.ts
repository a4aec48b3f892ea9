import { posix } from 'node:path';
import picomatch from 'picomatch';
import type { Change, StagedRoot } from '../core/change.ts';
import { ProofrunError } from '../core/errors.ts';
import { displayPath, safeText } from '../core/text-safety.ts';
import { ancestorsOf, bytePathOfText, isWithin, lossyTextOf, parentOf, type BytePath } from './byte-path.ts';
import type { StagedEntry } from './change-set.ts';

/** What the person asked for. Without `paths` and `include` everything is meant. Paths are absolute or relative to `cwd`. */
export interface Selection {
  readonly cwd: string;
  readonly paths: readonly string[];
  /** Globs on paths beneath the root; one without a slash is matched against names. A directory covers what lies in it. */
  readonly include: readonly string[];
  readonly exclude: readonly string[];
  /** Paths that the host would execute and that may be applied nevertheless. */
  readonly allowExec: readonly string[];
  /** Conflicting paths that may be replaced. */
  readonly overwrite: readonly string[];
  /** Leave out what would be refused, instead of refusing all: a person picks among what can be had. */
  readonly leaveRefused?: boolean;
}

export interface SelectedChanges {
  readonly entries: readonly StagedEntry[];
  /** Taken along, or left behind, beyond what was asked, each with its reason. */
  readonly notes: readonly { readonly path: string; readonly because: string }[];
}

interface Target {
  readonly root: number;
  readonly path: BytePath;
}

/** A path of the job's in a message: one line, nothing that a screen acts on. */
function shown(entry: StagedEntry): string {
  return displayPath(entry.change.path, entry.change.encoding);
}

/** Words that a person may paste into a shell: a name of the job's must not become a command of theirs. */
function shellWord(entry: StagedEntry): string {
  const text = lossyTextOf(entry.path);
  if (safeText(text) !== text) return `$'${safeText(text.replaceAll('\\', '\\\\').replaceAll("'", "\\'"))}'`;
  return /^[A-Za-z0-9_@%+=:,./^-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** Flags for the first few paths; a longer list is nothing to type. */
const MOST_FLAGS = 20;

function flags(flag: string, entries: readonly StagedEntry[]): string {
  return entries
    .slice(0, MOST_FLAGS)
    .map((entry) => `${flag} ${shellWord(entry)}`)
    .join(' ');
}

/** The staged root that a path of the person's lies in, and the path beneath it. Undefined: in none. */
function locate(text: string, cwd: string, roots: readonly StagedRoot[]): Target | undefined {
  const absolute = posix.resolve(cwd, text);
  let best: Target | undefined;
  let bestLength = -1;
  roots.forEach((root, index) => {
    const inside = absolute === root.root || absolute.startsWith(root.root === '/' ? '/' : `${root.root}/`);
    if (inside && root.root.length > bestLength) {
      best = { root: index, path: bytePathOfText(absolute.slice(root.root.length).replace(/^\//, '')) };
      bestLength = root.root.length;
    }
  });
  return best;
}

function covers(target: Target, entry: StagedEntry): boolean {
  return target.root === entry.change.root && (isWithin(entry.path, target.path) || (entry.from !== undefined && isWithin(entry.from, target.path)));
}

function isExactly(target: Target, entry: StagedEntry): boolean {
  return target.root === entry.change.root && (entry.path === target.path || entry.from === target.path);
}

function matcher(globs: readonly string[]): (entry: StagedEntry) => boolean {
  const tests = globs.map((glob) => {
    const trimmed = glob.replace(/^\.\//, '').replace(/\/+$/, '');
    const named = !trimmed.includes('/');
    const test = picomatch(trimmed, { dot: true });
    return (path: BytePath) => [path, ...ancestorsOf(path)].some((at) => test(lossyTextOf(named ? (at.slice(at.lastIndexOf('/') + 1) as BytePath) : at)));
  });
  return (entry) => tests.some((test) => test(entry.path) || (entry.from !== undefined && test(entry.from)));
}

/** Edits between two texts, given up above `limit`. */
function distance(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) > limit) return limit + 1;
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next.push(Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length] ?? limit + 1;
}

/** Up to three changed paths that resemble what was typed: the same name elsewhere, else few edits away. */
function nearPaths(typed: string, entries: readonly StagedEntry[]): string[] {
  const wanted = typed.replace(/\/+$/, '');
  const name = posix.basename(wanted);
  const limit = (text: string) => Math.min(3, Math.floor(text.length / 3));
  const scored = entries.slice(0, 5000).flatMap((entry) => {
    const path = lossyTextOf(entry.path);
    const whole = distance(wanted, path, limit(wanted));
    const last = distance(name, posix.basename(path), limit(name));
    if (whole > limit(wanted) && last > limit(name)) return [];
    return [{ path, score: last === 0 ? 0 : Math.min(whole, last + 1) }];
  });
  return scored
    .sort((a, b) => a.score - b.score || (a.path < b.path ? -1 : 1))
    .slice(0, 3)
    .map((candidate) => candidate.path);
}

function notFound(typed: string, entries: readonly StagedEntry[]): ProofrunError {
  const near = nearPaths(typed, entries);
  return new ProofrunError('ERR_PATH_NOT_FOUND', {
    message: `no staged change at ${safeText(typed)}`,
    hint: near.length > 0 ? `did you mean ${near.map((path) => safeText(path)).join(' or ')}?` : 'see job diff for what is staged',
    data: { path: typed, near },
  });
}

function resolveAll(
  texts: readonly string[],
  selection: Selection,
  roots: readonly StagedRoot[],
  entries: readonly StagedEntry[],
  fits: typeof covers,
): Target[] {
  return texts.map((text) => {
    const target = locate(text, selection.cwd, roots);
    if (target === undefined || !entries.some((entry) => fits(target, entry))) {
      throw notFound(text, entries);
    }
    return target;
  });
}

function key(root: number, path: BytePath): string {
  return `${root}/${path}`;
}

function removesDirectory(entry: StagedEntry): boolean {
  return entry.before?.type === 'directory' && entry.after?.type !== 'directory';
}

/** Adds the directories that added entries need and the deletions that a vanishing directory needs. */
function close(chosen: Set<StagedEntry>, entries: readonly StagedEntry[], excluded: (entry: StagedEntry) => boolean): SelectedChanges['notes'] {
  const notes: { path: string; because: string }[] = [];
  const byPath = new Map(entries.map((entry) => [key(entry.change.root, entry.path), entry]));
  for (const entry of [...chosen]) {
    if (entry.after === undefined) continue;
    for (let above = parentOf(entry.path); above !== ''; above = parentOf(above)) {
      const maker = byPath.get(key(entry.change.root, above));
      // A directory that is there, or that is taken already with all that it needs: nothing above it is missing.
      if (maker === undefined || chosen.has(maker) || (maker.change.kind !== 'added' && maker.change.kind !== 'type_changed')) break;
      chosen.add(maker);
      notes.push({ path: shown(maker), because: `${shown(entry)} lies in it` });
    }
  }
  // Everything below a directory that goes has to go with it.
  const going = [...chosen].filter(removesDirectory).sort((a, b) => b.path.length - a.path.length);
  if (going.length === 0) return notes;
  const vanishing = new Map(going.map((entry) => [key(entry.change.root, entry.path), entry]));
  for (const entry of entries) {
    const gone = entry.change.kind === 'renamed' ? entry.from : entry.before !== undefined ? entry.path : undefined;
    if (gone === undefined || chosen.has(entry)) continue;
    for (let above = parentOf(gone); above !== ''; above = parentOf(above)) {
      const directory = vanishing.get(key(entry.change.root, above));
      if (directory === undefined || !chosen.has(directory)) continue;
      if (!excluded(entry)) {
        chosen.add(entry);
        notes.push({ path: shown(entry), because: `it lies in ${shown(directory)}, which goes away` });
      } else if (directory.after === undefined) {
        chosen.delete(directory);
        notes.push({ path: shown(directory), because: `it stays, because ${shown(entry)} was excluded` });
      } else {
        throw new ProofrunError('ERR_STAGE_REFUSED', {
          message: `${shown(directory)} becomes a ${directory.after.type}, but ${shown(entry)} in it was excluded`,
          hint: `exclude ${shown(directory)} too`,
        });
      }
    }
  }
  return notes;
}

function clock(ms: number | null): string {
  return ms === null ? '' : ` ${new Date(ms).toTimeString().slice(0, 8)}`;
}

function shortHash(hash: string | null, side: unknown): string {
  return hash !== null ? `${hash.slice(0, 4)}..` : side === undefined ? 'nothing' : 'no content';
}

/** `conflict: PATH   staged HASH TIME   here HASH TIME (reason)`; times are local. */
function conflictLine(change: Change, path: string): string {
  const conflict = change.conflict;
  if (conflict === undefined) return '';
  const staged = change.after === undefined ? 'deleted' : `${shortHash(conflict.stagedSha256, change.after)}${clock(conflict.stagedTimeMs)}`;
  const here = `${shortHash(conflict.hereSha256, change.before)}${clock(conflict.hereTimeMs)}`;
  return `conflict: ${path}   staged ${staged}   here ${here} (${conflict.reason})`;
}

function isRefused({ change, ...entry }: StagedEntry, allowed: readonly Target[], overwrite: readonly Target[]): boolean {
  const named = (targets: readonly Target[]): boolean => targets.some((target) => isExactly(target, { change, ...entry }));
  if (change.unappliable !== undefined) return true;
  if (change.executes !== undefined && change.implied !== true && !named(allowed)) return true;
  return change.conflict !== undefined && !named(overwrite);
}

function refuse(chosen: readonly StagedEntry[], allowed: readonly Target[], overwrite: readonly Target[]): void {
  const unappliable = chosen.filter((entry) => entry.change.unappliable !== undefined);
  if (unappliable.length > 0) {
    throw new ProofrunError('ERR_STAGE_REFUSED', {
      message: unappliable.map((entry) => `${shown(entry)} can't be applied: ${entry.change.unappliable ?? ''}`).join('\n') + '\nnothing was applied',
      hint: flags('--exclude', unappliable),
      data: { paths: unappliable.map((entry) => ({ path: entry.change.path, encoding: entry.change.encoding, reason: entry.change.unappliable ?? '' })) },
    });
  }
  // A directory that only leads to what was chosen runs nothing by itself.
  const executing = chosen.filter(
    (entry) => entry.change.executes !== undefined && entry.change.implied !== true && !allowed.some((target) => isExactly(target, entry)),
  );
  if (executing.length > 0) {
    throw new ProofrunError('ERR_STAGE_EXECUTES', {
      message:
        executing.map((entry) => `${shown(entry)} would run by itself on your machine: ${entry.change.executes ?? ''}`).join('\n') + '\nnothing was applied',
      hint: flags('--allow-exec', executing),
      data: { paths: executing.map((entry) => ({ path: entry.change.path, encoding: entry.change.encoding, reason: entry.change.executes ?? '' })) },
    });
  }
  const conflicts = chosen.filter((entry) => entry.change.conflict !== undefined && !overwrite.some((target) => isExactly(target, entry)));
  if (conflicts.length > 0) {
    throw new ProofrunError('ERR_STAGE_CONFLICT', {
      message: conflicts.map((entry) => conflictLine(entry.change, shown(entry))).join('\n') + '\nnothing was applied',
      hint: `${flags('--exclude', conflicts)} | ${flags('--overwrite', conflicts)}`,
      data: { paths: conflicts.map((entry) => ({ path: entry.change.path, encoding: entry.change.encoding, ...entry.change.conflict })) },
    });
  }
}

/** Some of the changes with all that they need, and with nothing else but that: what a person picked one by one. Pure. */
export function completeSelection(picked: readonly StagedEntry[], entries: readonly StagedEntry[], refused: ReadonlySet<StagedEntry>): SelectedChanges {
  const chosen = new Set(picked);
  const notes = close(chosen, entries, (entry) => refused.has(entry));
  return { entries: entries.filter((entry) => chosen.has(entry)), notes };
}

/**
 * The changes that an apply takes, closed under what they need. Pure. Refuses the whole selection, naming every path:
 * ERR_PATH_NOT_FOUND, then ERR_STAGE_REFUSED, ERR_STAGE_EXECUTES, ERR_STAGE_CONFLICT.
 */
export function selectChanges(entries: readonly StagedEntry[], roots: readonly StagedRoot[], selection: Selection): SelectedChanges {
  const paths = resolveAll(selection.paths, selection, roots, entries, covers);
  const allowed = resolveAll(selection.allowExec, selection, roots, entries, isExactly);
  const overwrite = resolveAll(selection.overwrite, selection, roots, entries, isExactly);
  const included = matcher(selection.include);
  const excluded = matcher(selection.exclude);
  const everything = selection.paths.length === 0 && selection.include.length === 0;
  const unused = selection.include.find((glob) => !entries.some(matcher([glob])));
  if (unused !== undefined) {
    throw notFound(unused, entries);
  }
  const chosen = new Set(entries.filter((entry) => (everything || paths.some((target) => covers(target, entry)) || included(entry)) && !excluded(entry)));
  const left = selection.leaveRefused === true ? [...chosen].filter((entry) => isRefused(entry, allowed, overwrite)) : [];
  for (const entry of left) chosen.delete(entry);
  const refused = new Set(left);
  const notes = [
    ...left.map((entry) => ({
      path: shown(entry),
      because: `it is left out: ${entry.change.unappliable ?? entry.change.conflict?.reason ?? entry.change.executes ?? ''}`,
    })),
    ...close(chosen, entries, (entry) => excluded(entry) || refused.has(entry)),
  ];
  const selected = entries.filter((entry) => chosen.has(entry));
  refuse(selected, allowed, overwrite);
  return { entries: selected, notes };
}
