import { closeSync, constants, existsSync, fstatSync, lstatSync, openSync, readdirSync, readSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { HiddenPath } from '../core/bundle.ts';
import type { StagedRoot } from '../core/change.ts';
import { errnoOf, ProofrunError } from '../core/errors.ts';
import type { EffectiveJob, PathRule } from '../core/job.ts';
import { hiddenPatterns, holdsPrivateKey, KEY_HEAD_BYTES, matchHidden, type HiddenPatterns } from '../policy/hidden.ts';
import { isWithin, literalBase } from '../policy/path-rule.ts';
import { findMatches, prepareStage, type PreparedStage } from '../stage/stage-directory.host.ts';
import { originWords } from './account.ts';
import type { LiveRun } from './live-run.ts';
import { layBases } from './stage-base.host.ts';
import { relativeRoot, STAGE_RECORD, type OverlayMarkers, type StageRecord } from './stage-record.ts';
import { walkPatterns } from './walk-patterns.ts';

/** The stage of one run as it was prepared. */
export interface Staging {
  readonly roots: readonly StagedRoot[];
  /** Every path that the job could not see, with its rule: also what was hidden from the run that it starts from. */
  readonly hidden: readonly HiddenPath[];
  /** Those of them that must read as absent. What an earlier run wrote in the place of what was hidden from it can be read. */
  readonly absent: readonly string[];
  /** Those of them that exist: what a review lists. */
  readonly present: readonly HiddenPath[];
  readonly markers: OverlayMarkers;
  /** Names that match a hiding glob now and didn't at the start. null: no glob hides anything. */
  possiblyRead(): Promise<readonly string[] | null>;
}

const NOTHING: HiddenPatterns = { literals: [], globs: [], privateKeys: [], except: [] };

/** A person can read only so many. */
const MOST_NAMED = 5;

/**
 * Makes the layers, walks each root once (preimage, and the names that globs hide), decides what is hidden, and records it beside the
 * layers for the commands that come later. Throws ERR_STAGE_FULL, ERR_STAGE_LAYER, ERR_LAUNCH for a name that has to be hidden and can't be
 * named.
 */
export async function prepareStaging(run: Pick<LiveRun, 'parts' | 'job' | 'plan' | 'paths' | 'warnings' | 'options'>): Promise<Staging> {
  const { job, plan, paths, parts } = run;
  const { shim } = parts;
  const roots = plan.dimensions.file_write.controls.includes('staged_workspace') ? job.permissions.fileWrite.stage : [];
  const hides = plan.dimensions.file_read.controls.includes('hidden_paths');
  const markers: OverlayMarkers = process.geteuid?.() === 0 ? 'trusted' : 'user';
  if (roots.length === 0 && !hides) return { roots: [], hidden: [], absent: [], present: [], markers, possiblyRead: () => Promise.resolve(null) };
  const patterns = hides ? hiddenPatterns(job) : NOTHING;
  const globs = [...patterns.globs, ...patterns.privateKeys];
  const prepared = await prepareStage({ shim, directory: paths.stage, roots, patterns: [...new Set(roots.flatMap((root) => walkPatterns(globs, root)))] });
  if (prepared.mounts.length > 0) run.warnings.push(`filesystems are mounted below the workspace: ${named(prepared.mounts)}`);
  if (prepared.unreadable.length > 0) {
    run.warnings.push(`directories that can't be read, so that a change below them is always a conflict: ${named(prepared.unreadable)}`);
  }
  refuseUnnameable(prepared, job);

  const { from } = run.options;
  const laid = from === undefined ? undefined : await layBases(parts, from, prepared.roots, paths.stage);
  const staged = laid?.roots ?? prepared.roots;
  const inBases = await matchesInBases(shim, staged, globs);
  const others = await matchesElsewhere(shim, job, globs);
  const found = hiddenOf([...prepared.matches, ...inBases, ...others], job, (path) => laid?.locate(path) ?? path);
  const literals = patterns.literals.map((rule) => hiddenPath(rule.pattern, rule, job));
  const own = [...literals, ...found];
  const ownPaths = new Set(own.map(({ path }) => path));
  const inherited = (from?.hidden ?? []).filter((path) => !ownPaths.has(path)).map((path): HiddenPath => ({ path, rule: `hidden from ${from?.name ?? ''}` }));
  const hidden = [...own, ...inherited];
  const here = (path: string): boolean => [path, laid?.locate(path) ?? path].some((at) => lstatSync(at, { throwIfNoEntry: false }) !== undefined);
  const behind = inherited.filter(({ path }) => lstatSync(path, { throwIfNoEntry: false }) !== undefined && laid?.locate(path) === undefined);
  const present = [...literals.filter(({ path }) => here(path)), ...found, ...behind];
  writeRecord(paths.stage, { version: 1, markers, hidden, present, roots: staged.map((root) => relativeRoot(root, paths.stage)) });

  const known = new Set(found.map(({ path }) => path));
  return {
    roots: staged,
    hidden,
    absent: own.map(({ path }) => path),
    present,
    markers,
    possiblyRead: async () => {
      if (globs.length === 0) return null;
      const now = await Promise.all(roots.map(async (root) => smallTree(root) ?? (await findMatches(shim, root, walkPatterns(globs, root)))));
      return hiddenOf(now.flat(), job)
        .map(({ path }) => path)
        .filter((path) => !known.has(path));
    },
  };
}

/** A tree of at most this many entries is looked through here: that takes less time than starting a program. */
const SMALL_ENTRIES = 256;

/** Every path of a small tree, other filesystems left out; undefined when it is larger. */
function smallTree(root: string): readonly string[] | undefined {
  const { dev } = lstatSync(root);
  const found: string[] = [];
  const visit = (directory: string): boolean => {
    const below: string[] = [];
    for (const entry of readdirSync(directory, { withFileTypes: true })) {
      const path = join(directory, entry.name);
      if (found.push(path) > SMALL_ENTRIES) return false;
      if (entry.isDirectory()) below.push(path);
    }
    return below.every((path) => lstatSync(path).dev !== dev || visit(path));
  };
  try {
    return visit(root) ? found : undefined;
  } catch (error) {
    // A directory that can't be read, or went away meanwhile: the walk knows what to make of it.
    if (errnoOf(error) === undefined) throw error;
    return undefined;
  }
}

/** What must be hidden in a read-only view of the result of another run: absolute paths of its roots, present or literal. */
export async function hiddenInView(shim: string, job: EffectiveJob, views: readonly Pick<StagedRoot, 'root' | 'base'>[]): Promise<readonly string[]> {
  const patterns = hiddenPatterns(job);
  const globs = [...patterns.globs, ...patterns.privateKeys];
  const inRoots = await Promise.all(views.map(({ root }) => findMatches(shim, root, walkPatterns(globs, root))));
  const inBases = await matchesInBases(shim, views, globs);
  const others = await matchesElsewhere(shim, job, globs);
  const locate = (path: string): string => {
    const view = views.find(({ root }) => isWithin(path, root));
    const inside = view?.base === undefined ? path : `${view.base}${path.slice(view.root.length)}`;
    return lstatSync(inside, { throwIfNoEntry: false }) === undefined ? path : inside;
  };
  const found = hiddenOf([...inRoots.flat(), ...inBases, ...others], job, locate);
  return [...patterns.literals.map((rule) => rule.pattern), ...found.map(({ path }) => path)];
}

/** Matches of globs in the results that the run starts from, as paths of the roots. */
async function matchesInBases(shim: string, roots: readonly Pick<StagedRoot, 'root' | 'base'>[], globs: readonly PathRule[]): Promise<readonly string[]> {
  const found = await Promise.all(
    roots.map(async ({ root, base }) =>
      base === undefined ? [] : (await findMatches(shim, base, walkPatterns(globs, root))).map((path) => `${root}${path.slice(base.length)}`),
    ),
  );
  return found.flat();
}

/** Matches of globs that lead out of the staged roots, where the job can see them. */
async function matchesElsewhere(shim: string, job: EffectiveJob, globs: readonly PathRule[]): Promise<readonly string[]> {
  const { fileRead, fileWrite } = job.permissions;
  const trees = new Map<string, PathRule[]>();
  for (const glob of globs) {
    const base = literalBase(glob);
    if (fileWrite.stage.some((root) => isWithin(base, root))) continue;
    for (const tree of visibleTrees(base, fileRead)) trees.set(tree, [...(trees.get(tree) ?? []), glob]);
  }
  const found: string[] = [];
  for (const [tree, rules] of trees) {
    if (existsSync(tree)) found.push(...(await findMatches(shim, tree, walkPatterns(rules, tree))));
  }
  return found;
}

/** Of a projected root only what is allowed by name can hold a match. */
function visibleTrees(base: string, fileRead: EffectiveJob['permissions']['fileRead']): readonly string[] {
  if (fileRead.root === 'host') return [base];
  return fileRead.allow.flatMap((rule) => {
    const allowed = literalBase(rule);
    if (isWithin(base, allowed)) return [base];
    return isWithin(allowed, base) ? [allowed] : [];
  });
}

/** Those of the candidates that are hidden, in the order of their paths: a directory before what lies in it. */
function hiddenOf(candidates: readonly string[], job: EffectiveJob, locate: (path: string) => string = (path) => path): readonly HiddenPath[] {
  return matchHidden([...new Set(candidates)].sort(), job)
    .filter((match) => !match.needsContent || holdsPrivateKey(readHead(locate(match.path))))
    .map((match) => hiddenPath(match.path, match.rule, job));
}

function hiddenPath(path: string, rule: PathRule, job: EffectiveJob): HiddenPath {
  const pattern = rule.pattern.startsWith(`${job.workspace}/`) ? rule.pattern.slice(job.workspace.length + 1) : rule.pattern;
  return { path, rule: rule.origin.layer === 'flag' ? rule.origin.name : `${originWords(rule.origin)} ${pattern}` };
}

/** The beginning of a regular file; empty when there is none to read. Never blocks on a FIFO. */
function readHead(path: string | Buffer): Uint8Array {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
    return new Uint8Array();
  }
  try {
    if (!fstatSync(fd).isFile()) return new Uint8Array();
    const head = Buffer.alloc(KEY_HEAD_BYTES);
    return head.subarray(0, readSync(fd, head, 0, head.length, 0));
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
    return new Uint8Array();
  } finally {
    closeSync(fd);
  }
}

/** A name that isn't UTF-8 can't be named to an executor: one that has to be hidden keeps the job from starting. */
function refuseUnnameable({ unnameable, roots }: Pick<PreparedStage, 'unnameable' | 'roots'>, job: EffectiveJob): void {
  for (const { root, path } of unnameable) {
    const bytes = Buffer.concat([Buffer.from(`${roots[root]?.root ?? ''}/`), Buffer.from(path, 'base64')]);
    const [match] = matchHidden([bytes.toString('utf8')], job);
    if (match === undefined || (match.needsContent && !holdsPrivateKey(readHead(bytes)))) continue;
    throw new ProofrunError('ERR_LAUNCH', {
      message: `a name that has to be hidden (${hiddenPath('', match.rule, job).rule}) is not UTF-8: ${JSON.stringify(bytes.toString('latin1'))}`,
      hint: 'rename it, or leave out the rule that hides it',
    });
  }
}

function named(paths: readonly string[]): string {
  return `${paths.slice(0, MOST_NAMED).join(', ')}${paths.length > MOST_NAMED ? ` and ${paths.length - MOST_NAMED} more` : ''}`;
}

/** Not synced: after a crash of the machine the layers below it aren't either. */
function writeRecord(stage: string, record: StageRecord): void {
  writeFileSync(join(stage, STAGE_RECORD), JSON.stringify(record), { mode: 0o600, flag: 'wx' });
}
