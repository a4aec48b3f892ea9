import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { StagedRoot } from '../core/change.ts';
import { bytePath, lossyTextOf, textOf } from './byte-path.ts';
import { runShim } from './shim-process.host.ts';

export interface PrepareStageInput {
  readonly shim: string;
  /** A 0700 directory of this run, on the filesystem that is to hold the layers; made when missing. */
  readonly directory: string;
  /** Absolute real paths of the directories to stage. */
  readonly roots: readonly string[];
  /** fnmatch patterns of names or paths that may have to be hidden; a superset of the globs. */
  readonly patterns: readonly string[];
  /** Bounds of the walk of one root. */
  readonly maxEntries?: number;
  readonly maxMs?: number;
}

export interface PreparedStage {
  readonly roots: readonly StagedRoot[];
  /** Absolute paths whose name matches a pattern; the caller decides which are hidden. */
  readonly matches: readonly string[];
  /** Absolute paths of mount points beneath the roots. */
  readonly mounts: readonly string[];
  /** Absolute paths of directories that can't be read. */
  readonly unreadable: readonly string[];
  /** Matches whose path is no UTF-8, so that no text can name them: base64 of the path beneath its root. */
  readonly unnameable: readonly { readonly root: number; readonly path: string }[];
}

/** Mount points at or below a directory, from mountinfo (proc(5)): octal escapes undone. Pure. */
export function mountsBelow(mountinfo: string, root: string): string[] {
  const prefix = root.endsWith('/') ? root : `${root}/`;
  const found = new Set<string>();
  for (const line of mountinfo.split('\n')) {
    const point = line.split(' ')[4]?.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(parseInt(octal, 8)));
    if (point === undefined) continue;
    const text = Buffer.from(point, 'latin1').toString('utf8');
    if (text.startsWith(prefix)) found.add(text);
  }
  return [...found].sort();
}

function limits(input: PrepareStageInput): string[] {
  return [
    ...(input.maxEntries === undefined ? [] : ['--max-entries', String(input.maxEntries)]),
    ...(input.maxMs === undefined ? [] : ['--max-ms', String(input.maxMs)]),
  ];
}

/**
 * Makes the layers of a run and records each root as it is now. Touches nothing in the roots. Throws ERR_STAGE_LAYER
 * (too many entries, too long, or the call that failed), ERR_STAGE_FULL.
 */
export async function prepareStage(input: PrepareStageInput): Promise<PreparedStage> {
  mkdirSync(input.directory, { recursive: true, mode: 0o700 });
  const mountinfo = readFileSync('/proc/self/mountinfo', 'latin1');
  const roots: StagedRoot[] = [];
  const matches: string[] = [];
  const mounts = new Set<string>();
  const unreadable: string[] = [];
  const unnameable: { root: number; path: string }[] = [];
  for (const [index, root] of input.roots.entries()) {
    const directory = join(input.directory, `root-${index}`);
    mkdirSync(directory, { mode: 0o700 });
    const foreign: string[] = [];
    let linked = false;
    const staged: StagedRoot = { root, upper: join(directory, 'upper'), work: join(directory, 'work'), preimage: join(directory, 'preimage'), foreign };
    mkdirSync(staged.upper, { mode: 0o700 });
    mkdirSync(staged.work, { mode: 0o700 });
    const patterns = input.patterns.flatMap((pattern) => ['--match', pattern]);
    const { stdout } = await runShim(input.shim, ['walk', root, staged.preimage, ...limits(input), '--like', staged.upper, ...patterns]);
    for (const line of stdout.toString('latin1').split('\0')) {
      if (line === '') continue;
      const path = bytePath(Buffer.from(line.slice(1), 'latin1'));
      const absolute = join(root, lossyTextOf(path));
      if (line.startsWith('x')) mounts.add(absolute);
      else if (line.startsWith('u')) unreadable.push(absolute);
      else if (line.startsWith('f')) foreign.push(absolute);
      else if (line === 'h') linked = true;
      else if (textOf(path) === undefined) unnameable.push({ root: index, path: Buffer.from(path, 'latin1').toString('base64') });
      else matches.push(absolute);
    }
    mountsBelow(mountinfo, root).forEach((mount) => mounts.add(mount));
    roots.push(linked ? { ...staged, linked } : staged);
  }
  return { roots, matches, mounts: [...mounts].sort(), unreadable, unnameable };
}

/** Walks a root again without making a layer: absolute paths whose name matches a pattern now. */
export async function findMatches(shim: string, root: string, patterns: readonly string[]): Promise<string[]> {
  if (patterns.length === 0) return [];
  const { stdout } = await runShim(shim, ['walk', root, '-', ...patterns.flatMap((pattern) => ['--match', pattern])]);
  return stdout
    .toString('utf8')
    .split('\0')
    .filter((line) => line.startsWith('m'))
    .map((line) => join(root, line.slice(1)));
}

/** Removes a stage directory and all in it, whatever its modes and however deep. No link is followed; absent is fine. */
export async function dropStage(input: { readonly shim: string; readonly directory: string }): Promise<void> {
  await runShim(input.shim, ['apply', '--remove', input.directory]);
}
