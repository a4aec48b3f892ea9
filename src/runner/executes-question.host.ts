import { join, relative } from 'node:path';
import type { StagedRoot } from '../core/change.ts';
import type { ExecutesOnHost } from '../policy/executes.ts';
import { isWithin } from '../policy/path-rule.ts';
import { readRegularFile } from '../store/durable-file.host.ts';

/** A JSON file that is larger isn't looked into: its path decides. */
const MAX_JSON_BYTES = 1024 * 1024;

/**
 * Why the host would run what lies at a path beneath a staged root. Roots may be parts of the workspace, or the git directory that a linked
 * worktree shares. Of a JSON file both sides are read, so that only the keys that a tool runs count.
 */
export function executesBeneath(executes: ExecutesOnHost, roots: readonly StagedRoot[], workspace: string): (path: string, root: number) => string | undefined {
  return (path, index) => {
    const staged = roots[index];
    if (staged === undefined) return executes(path);
    const inWorkspace = isWithin(staged.root, workspace);
    const place = inWorkspace ? 'workspace' : 'git';
    const full = inWorkspace ? join(relative(workspace, staged.root), path) : path;
    const reason = executes(full, { root: place });
    if (reason === undefined || !/\.json$/i.test(path)) return reason;
    return executes(full, { root: place, contents: { before: textOf(join(staged.root, path)), after: textOf(join(staged.upper, path)) } });
  };
}

/** Undefined when no such file is there; text that is no JSON when it can't be read, so that the path decides. */
function textOf(path: string): string | undefined {
  try {
    return readRegularFile(path, MAX_JSON_BYTES).toString('utf8');
  } catch (error) {
    return typeof error === 'object' && error !== null && 'code' in error && error.code === 'ENOENT' ? undefined : UNREADABLE;
  }
}

const UNREADABLE = '\0';
