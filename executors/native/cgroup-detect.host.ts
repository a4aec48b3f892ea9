import { accessSync, constants } from 'node:fs';
import { join } from 'node:path';
import { parseControllers, parseCgroupMounts, parseMembers, parseMembership } from './cgroup-files.ts';
import { exists, readOr, statOr, subdirectories } from './cgroup-read.host.ts';
import {
  LIMIT_CONTROLLERS,
  decideCgroups,
  reach,
  type CgroupFacts,
  type CgroupSupport,
  type LegacyFacts,
  type ScopeSupport,
  type UnifiedFacts,
} from './cgroup.ts';

export interface DetectOptions {
  /** Decides whether the caller may write a path. Default: access(2). */
  readonly canWrite?: (path: string) => boolean;
  /** Default: the caller's. */
  readonly uid?: number;
}

function mayWrite(path: string): boolean {
  try {
    accessSync(path, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** True when swap is counted, false when memory is and swap isn't, undefined when no directory with memory was found. */
function swapIn(directory: string): boolean | undefined {
  for (const candidate of [directory, ...subdirectories(directory).map((name) => join(directory, name))]) {
    if (exists(join(candidate, 'memory.max'))) return exists(join(candidate, 'memory.swap.max'));
  }
  return undefined;
}

function readScope(root: string, uid: number): ScopeSupport | undefined {
  const program = ['/usr/bin/systemd-run', '/bin/systemd-run'].find((path) => {
    const facts = statOr(join(root, path));
    return facts?.isFile() === true && (root !== '/' || facts.uid === 0);
  });
  const runtime = `/run/user/${uid}`;
  if (program === undefined || !exists(join(root, runtime, 'systemd/private'))) return undefined;
  const manager = join(root, `/sys/fs/cgroup/user.slice/user-${uid}.slice/user@${uid}.service`);
  const delegated = parseControllers(readOr(join(manager, 'cgroup.controllers'), ''));
  const controllers = LIMIT_CONTROLLERS.filter((name) => delegated.includes(name));
  return controllers.length === 0 ? undefined : { program, environment: { XDG_RUNTIME_DIR: runtime }, controllers };
}

/**
 * Looks at the control groups of this process: v1, v2 and hybrid layouts. `root` is `/`, or the top of a copied tree that
 * holds proc/self/{cgroup,mountinfo} and the mounted directories. Never throws; what can't be read counts as not there.
 */
export function detectCgroups(root = '/', options: DetectOptions = {}): CgroupSupport {
  const canWrite = options.canWrite ?? mayWrite;
  const membership = parseMembership(readOr(join(root, 'proc/self/cgroup'), ''));
  const mounts = parseCgroupMounts(readOr(join(root, 'proc/self/mountinfo'), '')).map((mount) => ({ ...mount, mountPoint: join(root, mount.mountPoint) }));

  const legacy = new Map<string, LegacyFacts>();
  const unified: UnifiedFacts[] = [];
  for (const entry of membership) {
    const reached = reach(mounts, entry);
    if (reached === undefined) continue;
    const { mount, directory } = reached;
    if (mount.version === 1) {
      legacy.set(directory, { directory, writable: !mount.readOnly && canWrite(directory), hasSwap: exists(join(directory, 'memory.memsw.limit_in_bytes')) });
      continue;
    }
    for (let at = directory; ; at = join(at, '..')) {
      unified.push({
        directory: at,
        controllers: parseControllers(readOr(join(at, 'cgroup.controllers'), '')),
        subtreeControl: parseControllers(readOr(join(at, 'cgroup.subtree_control'), '')),
        writable: !mount.readOnly && canWrite(at) && canWrite(join(at, 'cgroup.procs')) && canWrite(join(at, 'cgroup.subtree_control')),
        members: parseMembers(readOr(join(at, 'cgroup.procs'), '')).length,
        isHierarchyRoot: exists(join(at, 'cgroup.procs')) && !exists(join(at, 'cgroup.events')),
        hasSwap: swapIn(at),
      });
      if (at === mount.mountPoint) break;
    }
  }
  const uid = options.uid ?? process.getuid?.() ?? 0;
  const facts: CgroupFacts = { membership, mounts, legacy, unified, scope: readScope(root, uid) };
  return decideCgroups(facts);
}
