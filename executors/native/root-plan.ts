import { basename, dirname } from 'node:path';
import type { LaunchRequest } from '../../src/executor/executor.ts';
import { overlayFiles } from '../shim/overlay-plan.ts';
import { MOUNT, type OuterOperation } from '../shim/protocol.ts';
import type { HostFacts, Mask } from './facts.host.ts';
import { formatMount } from './mountinfo.ts';
import { NO_SHADOW } from './shadow.host.ts';

/** The root that outer builds, and what its mount table has to say afterwards. */
export interface RootPlan {
  readonly operations: readonly OuterOperation[];
  /** formatMount lines of every mount below the root that outer makes; bubblewrap adds its own. */
  readonly table: readonly string[];
  /** Mount points that the job may write. */
  readonly writable: readonly string[];
  readonly uppers: readonly { readonly mount_point: string; readonly upper: string | null }[];
  /** Where the private home's upper directory lies on the host. */
  readonly homeUpper: string;
}

type Target =
  | { readonly kind: 'tree'; readonly path: string; readonly bind: boolean }
  | { readonly kind: 'file'; readonly path: string }
  | { readonly kind: 'symlink'; readonly path: string; readonly target: string }
  | { readonly kind: 'directory'; readonly path: string }
  | { readonly kind: 'tmpfs'; readonly path: string; readonly bytes: number }
  | { readonly kind: 'home'; readonly path: string }
  | { readonly kind: 'stage'; readonly path: string; readonly index: number }
  | { readonly kind: 'view'; readonly path: string; readonly base: string }
  | { readonly kind: 'direct'; readonly path: string; readonly source: string; readonly directory: boolean };

/** A file that may be executed as far as its mode and its mount go: only the list of programs refuses it. Without the list it is ENOEXEC. */
export const UNLISTED = '/.unlisted';
/** The client of AgentCtl in a sandbox that has it: the shim's own file, read-only. */
export const AGENT_CLIENT = '/.proofrun/agentctl';

const LONGEST_NAMED_LAYER = 255;
const within = (path: string, root: string): boolean => path === root || root === '/' || path.startsWith(`${root}/`);
const depth = (path: string): number => path.split('/').length;

/** Directories of the private tmpfs: everything that is made for one sandbox lies below `base`. */
export function placesOf(base: string): {
  readonly root: string;
  readonly empty: string;
  readonly masks: string;
  readonly skeleton: string;
  readonly shm: string;
} {
  return { root: `${base}/root`, empty: `${base}/empty`, masks: `${base}/mask`, skeleton: `${base}/home`, shm: `${base}/shm` };
}

/**
 * The operations that build the root on a tmpfs at `base`. Host directories are shown through read-only overlays (through
 * one, sockets and FIFOs of the host don't answer), staged roots and HOME through overlays with an upper layer of ours.
 * Pure: the same request and facts give the same list.
 */
export function planRoot(request: LaunchRequest, facts: HostFacts, base: string): RootPlan {
  const { job } = request.plan;
  const { permissions } = job;
  const places = placesOf(base);
  const { uid, gid } = facts.caller;
  const operations: OuterOperation[] = [];
  const table: string[] = [];
  const writable: string[] = [];
  const uppers: { mount_point: string; upper: string | null }[] = [];
  const userxattr = facts.asRoot ? 0 : MOUNT.userxattr;
  const homeUpper = `${request.scratch}/home/upper`;
  // Where programs are listed, no writable place holds one.
  const listed = facts.programs !== undefined;
  const noexec = listed ? MOUNT.noexec : 0;
  const written = ['rw', 'nosuid', 'nodev', ...(listed ? ['noexec'] : [])];

  const directory = (path: string, mode = 0o755, owner: { uid: number; gid: number } = { uid, gid }): void => {
    operations.push({ op: 'dir', path, mode, uid: owner.uid, gid: owner.gid });
  };
  operations.push({ op: 'base', path: base });
  for (const path of [places.root, places.empty, places.masks, places.skeleton]) directory(path);

  // They stand in for the host's, whatever those are: files, links, or absent.
  const ownFiles = permissions.network.kind === 'selective' ? overlayFiles(facts.hostName) : new Map<string, string>();
  const targets = collectTargets(request, facts).filter((one) => !ownFiles.has(one.path));
  const home = targets.find((one) => one.kind === 'home');
  const real = permissions.fileRead.home === 'real';
  const covers = targets.filter((one) => one.kind === 'tree' || one.kind === 'stage' || one.kind === 'view' || one.kind === 'tmpfs' || one.kind === 'home');
  const made = new Set<string>(['/']);

  /** The target that a path lies in, above its own. */
  const coverOf = (path: string): Target | undefined =>
    covers.filter((one) => one.path !== path && within(path, one.path)).sort((a, b) => b.path.length - a.path.length)[0];
  /** Directories of the host keep their mode; one that only leads somewhere is 0755. */
  const makeParents = (path: string, prefix: string, floor: string): void => {
    const missing: string[] = [];
    for (let at = path; at !== floor && at !== '/' && !made.has(at); at = dirname(at)) missing.unshift(at);
    for (const at of missing) {
      directory(`${prefix}${at}`);
      made.add(at);
    }
  };
  /** Makes the place that a target is mounted on, unless the host's own tree has it. */
  const makePlace = (path: string, file: boolean): void => {
    const cover = coverOf(path);
    if (cover !== undefined && cover.kind !== 'tmpfs' && !(cover.kind === 'home' && !real)) return;
    if (cover?.kind === 'home') return; // made in the skeleton, before HOME was mounted
    const floor = cover?.path ?? '/';
    makeParents(dirname(path), places.root, floor);
    if (file) operations.push({ op: 'file', path: `${places.root}${path}`, mode: 0o644, text: '' });
    else makeParents(path, places.root, floor);
  };
  const overlay = (path: string, lowers: readonly string[], upper: string, work: string, flags: number): void => {
    const readonly = upper === '' ? MOUNT.readonly : 0;
    // An overlay without an upper layer needs two lower ones.
    const layers = upper === '' && lowers.length === 1 ? [...lowers, places.empty] : lowers;
    operations.push({ op: 'overlay', target: `${places.root}${path}`, flags: readonly | flags | (readonly === 0 ? noexec : 0), upper, work, lowers: layers });
    table.push(formatMount(path, 'overlay', readonly === 0 ? written : ['ro', 'nosuid', 'nodev']));
    if (upper !== '') {
      writable.push(path);
      uppers.push({ mount_point: path, upper: upper.length <= LONGEST_NAMED_LAYER ? upper : null });
    }
  };

  let maskCount = 0;
  const maskLayer = (mask: Mask | undefined, like: string, files: readonly OwnFile[] = []): readonly string[] => {
    const shown = mask ?? (files.length === 0 ? undefined : NO_MASK);
    if (shown === undefined) return [];
    const layer = `${places.masks}/${maskCount++}`;
    operations.push(...maskOperations(layer, like, shown, { uid, gid }, files));
    return [layer];
  };
  const maskFor = (path: string): readonly string[] =>
    maskLayer(
      facts.masks.get(path),
      path,
      [...ownFiles].filter(([file]) => dirname(file) === path).map(([file, text]) => ({ name: basename(file), text })),
    );
  /** What lies below a stage: the directory with its mask, and above them the result of an earlier run, in which other names may be hidden. */
  const lowersOf = (root: string, base: string | undefined): readonly string[] => [
    ...(base === undefined ? [] : [...maskLayer(facts.covers.get(root), base), base]),
    ...maskFor(root),
    root,
  ];

  for (const target of targets) {
    switch (target.kind) {
      case 'directory':
        makePlace(target.path, false);
        operations.push({ op: 'like', path: `${places.root}${target.path}`, model: target.path });
        break;
      case 'symlink': {
        const cover = coverOf(target.path);
        if (cover !== undefined) break;
        makeParents(dirname(target.path), places.root, '/');
        operations.push({ op: 'symlink', target: target.target, path: `${places.root}${target.path}` });
        break;
      }
      case 'file': {
        makePlace(target.path, true);
        operations.push({ op: 'bind', source: target.path, target: `${places.root}${target.path}`, flags: MOUNT.readonly });
        table.push(formatMount(target.path, typeOf(target.path, facts), ['ro', 'nosuid', 'nodev']));
        break;
      }
      case 'tree': {
        makePlace(target.path, false);
        if (target.bind) {
          operations.push({ op: 'bind', source: target.path, target: `${places.root}${target.path}`, flags: MOUNT.readonly });
          table.push(formatMount(target.path, typeOf(target.path, facts), ['ro', 'nosuid', 'nodev']));
        } else overlay(target.path, [...maskFor(target.path), target.path], '', '', userxattr);
        break;
      }
      case 'tmpfs':
        makePlace(target.path, false);
        operations.push({ op: 'tmpfs', target: `${places.root}${target.path}`, mode: 0o1777, bytes: target.bytes, uid, gid, flags: noexec });
        table.push(formatMount(target.path, 'tmpfs', written));
        writable.push(target.path);
        break;
      case 'home': {
        makePlace(target.path, false);
        if (!real) {
          operations.push(...skeletonOperations(targets, facts, places.skeleton, target.path));
          overlay(target.path, [places.skeleton], homeUpper, `${request.scratch}/home/work`, userxattr);
        } else overlay(target.path, [...maskFor(target.path), target.path], homeUpper, `${request.scratch}/home/work`, userxattr);
        break;
      }
      case 'stage': {
        makePlace(target.path, false);
        const staged = request.stage[target.index];
        if (staged === undefined) break;
        // A redirect of the new layer's would lead past the one below it when the two become one.
        const follow = staged.base === undefined || !facts.asRoot ? 0 : MOUNT.follow;
        // It has its price at every look-up of a file: only where a file has several names.
        const index = facts.asRoot && (staged.linked === true || staged.base !== undefined) ? MOUNT.index : 0;
        overlay(target.path, lowersOf(staged.root, staged.base), staged.upper, staged.work, userxattr | follow | index);
        break;
      }
      case 'view':
        makePlace(target.path, false);
        overlay(target.path, lowersOf(target.path, target.base), '', '', userxattr);
        break;
      case 'direct':
        makePlace(target.path, !target.directory);
        operations.push({ op: 'bind', source: target.source, target: `${places.root}${target.path}`, flags: noexec });
        table.push(formatMount(target.path, typeOf(target.source, facts), written));
        writable.push(target.path);
        break;
    }
  }

  for (const [path, text] of ownFiles) {
    const parent = targets.find((one) => one.path === dirname(path));
    if (parent?.kind === 'tree' && !parent.bind) continue; // in its mask
    operations.push({ op: 'file', path: `${places.root}${path}`, mode: 0o644, text });
  }

  if (request.agent !== undefined) {
    directory(`${places.root}${dirname(AGENT_CLIENT)}`);
    operations.push(
      { op: 'file', path: `${places.root}${AGENT_CLIENT}`, mode: 0o644, text: '' },
      { op: 'bind', source: facts.shim, target: `${places.root}${AGENT_CLIENT}`, flags: MOUNT.readonly },
    );
    table.push(formatMount(AGENT_CLIENT, typeOf(facts.shim, facts), ['ro', 'nosuid', 'nodev']));
  }

  // Places that bubblewrap mounts on, and links that programs expect.
  for (const path of ['/proc', '/dev', '/run', '/var']) if (!made.has(path) && !targets.some((one) => one.path === path)) directory(`${places.root}${path}`);
  if (permissions.fileRead.root === 'projected') {
    operations.push({ op: 'symlink', target: '../run', path: `${places.root}/var/run` });
    if (facts.resolverFile !== undefined && permissions.network.kind === 'public') {
      makeParents(dirname(facts.resolverFile), places.root, '/');
      operations.push({ op: 'copy', source: facts.resolverFile, path: `${places.root}${facts.resolverFile}`, mode: 0o644, uid, gid });
    }
  }
  if (listed) {
    const bytes = permissions.resources.limits.tmpSizeBytes ?? 0;
    directory(places.shm);
    operations.push({ op: 'tmpfs', target: places.shm, mode: 0o1777, bytes, uid, gid, flags: noexec });
    operations.push({ op: 'file', path: `${places.root}${UNLISTED}`, mode: 0o755, text: 'no program' });
  }
  if (home === undefined) throw new Error('a sandbox without a home');
  return { operations, table, writable, uppers, homeUpper };
}

/** What is mounted where, parents before children. */
function collectTargets(request: LaunchRequest, facts: HostFacts): readonly Target[] {
  const { job } = request.plan;
  const { permissions } = job;
  const views = request.views ?? [];
  const staged = [...request.stage, ...views].map((one) => one.root);
  const { tmpSizeBytes } = permissions.resources.limits;
  const shown = facts.projected.entries.filter((one) => !staged.includes(one.path));
  const tmpBytes = tmpSizeBytes ?? 0;
  const targets: Target[] = [
    ...shown,
    { kind: 'tmpfs', path: '/tmp', bytes: tmpBytes },
    { kind: 'home', path: job.home },
    ...request.stage.map((one, index): Target => ({ kind: 'stage', path: one.root, index })),
    ...views.map(({ root, base }): Target => ({ kind: 'view', path: root, base })),
    ...facts.directShares.map(({ path, directory }): Target => ({ kind: 'direct', path, source: path, directory })),
    ...facts.caches.map(({ path, source }): Target => ({ kind: 'direct', path, source, directory: true })),
    ...facts.writeDenied.map((one): Target => (one.directory ? { kind: 'tree', path: one.path, bind: false } : { kind: 'file', path: one.path })),
  ];
  if (!targets.some((one) => one.path === '/var/tmp')) targets.push({ kind: 'tmpfs', path: '/var/tmp', bytes: tmpBytes });
  return targets.sort((a, b) => depth(a.path) - depth(b.path) || (a.path < b.path ? -1 : a.path > b.path ? 1 : 0));
}

/** The lower layer of a private home: directories that others are mounted on, and copies of the profiles' configuration. */
function skeletonOperations(targets: readonly Target[], facts: HostFacts, skeleton: string, home: string): readonly OuterOperation[] {
  const operations: OuterOperation[] = [];
  const owner = { uid: facts.job.uid, gid: facts.job.gid };
  const made = new Set<string>();
  const parents = (path: string): void => {
    const missing: string[] = [];
    for (let at = dirname(path); at !== home && within(at, home) && !made.has(at); at = dirname(at)) missing.unshift(at);
    for (const at of missing) {
      made.add(at);
      operations.push({ op: 'dir', path: `${skeleton}${at.slice(home.length)}`, mode: 0o755, ...owner });
    }
  };
  for (const target of targets) {
    if (target.path === home || !within(target.path, home)) continue;
    if (
      targets.some(
        (other) =>
          other !== target &&
          other.kind !== 'directory' &&
          other.kind !== 'home' &&
          other.path !== target.path &&
          within(target.path, other.path) &&
          within(other.path, home),
      )
    ) {
      continue;
    }
    parents(target.path);
    const path = `${skeleton}${target.path.slice(home.length)}`;
    if (target.kind === 'file' || (target.kind === 'direct' && !target.directory)) operations.push({ op: 'file', path, mode: 0o644, text: '' });
    else if (target.kind === 'symlink') operations.push({ op: 'symlink', target: target.target, path });
    else if (!made.has(target.path)) {
      made.add(target.path);
      operations.push({ op: 'dir', path, mode: 0o755, ...owner });
    }
  }
  const taken = (path: string): boolean =>
    !within(path, home) || targets.some((one) => one.kind !== 'home' && within(one.path, home) && within(path, one.path));
  for (const { path, text } of facts.homeTexts) {
    if (!taken(path)) operations.push({ op: 'file', path: `${skeleton}${path.slice(home.length)}`, mode: 0o644, text });
  }
  for (const { path, source, mode } of facts.homeCopies) {
    if (taken(path)) continue;
    parents(path);
    operations.push({ op: 'copy', source, path: `${skeleton}${path.slice(home.length)}`, mode, ...owner });
  }
  return operations;
}

const NO_MASK: Mask = { directories: [], whiteouts: [], shadow: NO_SHADOW };

/** A layer that hides names: whiteouts, in directories that look like the real ones. */
/** A file of ours that stands in for one of the host's. */
interface OwnFile {
  readonly name: string;
  readonly text: string;
}

export function maskOperations(
  layer: string,
  root: string,
  mask: Mask,
  ids: { readonly uid: number; readonly gid: number },
  files: readonly OwnFile[] = [],
): readonly OuterOperation[] {
  const operations: OuterOperation[] = [{ op: 'dir', path: layer, mode: 0o755, ...ids }];
  for (const name of mask.directories) operations.push({ op: 'dir', path: `${layer}/${name}`, mode: 0o755, ...ids });
  for (const { path, mode } of mask.shadow.files) operations.push({ op: 'copy', source: `${root}/${path}`, path: `${layer}/${path}`, mode, ...ids });
  for (const { name, text } of files) operations.push({ op: 'file', path: `${layer}/${name}`, mode: 0o644, text });
  for (const name of mask.whiteouts) operations.push({ op: 'whiteout', path: `${layer}/${name}` });
  // Deepest first: making an entry changes the times of its directory.
  for (const name of [...mask.directories].reverse()) operations.push({ op: 'like', path: `${layer}/${name}`, model: `${root}/${name}` });
  operations.push({ op: 'like', path: layer, model: root });
  return operations;
}

function typeOf(path: string, facts: HostFacts): string {
  let found = '';
  let length = -1;
  for (const mount of facts.mounts) {
    if (!within(path, mount.mountPoint) || mount.mountPoint.length < length) continue;
    found = mount.fsType;
    length = mount.mountPoint.length;
  }
  return found;
}
