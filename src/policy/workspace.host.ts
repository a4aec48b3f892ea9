import { lstatSync, readFileSync, realpathSync, statSync, type Stats } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { ProofrunError, errnoOf } from '../core/errors.ts';
import { isWithin } from './path-rule.ts';
import { readSettings } from './registries/config-text.ts';
import type { WorkspaceFacts } from './workspace.ts';

export interface WorkspaceRequest {
  /** Absolute. */
  readonly currentDirectory: string;
  /** As typed, relative to currentDirectory. */
  readonly workspace?: string;
  readonly cwd?: string;
  /** Of the job file, absolute; flags win over them. */
  readonly jobWorkspace?: string;
  readonly jobCwd?: string;
}

/**
 * Chooses the workspace: the flag, the job file, the top of the enclosing git work tree, the current directory. Never runs git: it reads `.git` and `commondir`.
 * Throws ERR_WORKSPACE for a directory that is missing.
 */
export function findWorkspace(request: WorkspaceRequest): WorkspaceFacts {
  const typedCwd = request.cwd === undefined ? request.jobCwd : resolve(request.currentDirectory, request.cwd);
  const start = directoryAt(typedCwd ?? request.currentDirectory, 'cwd');
  const named = request.workspace === undefined ? request.jobWorkspace : resolve(request.currentDirectory, request.workspace);
  if (named !== undefined) {
    const workspace = directoryAt(named, 'workspace');
    const git = gitAt(workspace);
    // A workspace that is named and not where the person stands: the command starts at its top.
    const cwd = typedCwd === undefined && !isWithin(start, workspace) ? workspace : start;
    return { workspace, cwd, chosen: request.workspace === undefined ? 'job file' : 'flag', ...shared(git, workspace) };
  }
  for (let directory = start; ; directory = dirname(directory)) {
    const git = gitAt(directory);
    if (git !== undefined) return { workspace: directory, cwd: start, chosen: 'git work tree', ...shared(git, directory) };
    if (dirname(directory) === directory) return { workspace: start, cwd: start, chosen: 'current directory' };
  }
}

/** The real path of a directory. Throws ERR_WORKSPACE. */
function directoryAt(path: string, what: 'workspace' | 'cwd'): string {
  let real: string;
  try {
    real = realpathSync.native(path);
  } catch (cause) {
    const reason = errnoOf(cause) === 'ENOENT' ? 'does not exist' : `can't be reached (${errnoOf(cause) ?? 'unknown'})`;
    throw new ProofrunError('ERR_WORKSPACE', {
      message: `the ${what} ${path} ${reason}`,
      hint: what === 'workspace' ? 'name an existing directory: --workspace DIR' : 'name an existing directory: --cwd DIR',
      cause,
    });
  }
  if (!statSync(real).isDirectory()) {
    throw new ProofrunError('ERR_WORKSPACE', { message: `the ${what} ${path} is not a directory`, hint: 'name a directory' });
  }
  return real;
}

interface GitFacts {
  /** Of a linked worktree or a submodule: where its git directory's shared part is. */
  readonly commonDirectory?: string;
  readonly strange?: string;
}

/** Longest `.git` file that is read: one path. */
const MAX_POINTER_BYTES = 8192;

/** What `.git` in a directory says: undefined when the directory is no top of a work tree. */
function gitAt(directory: string): GitFacts | undefined {
  const dotGit = join(directory, '.git');
  const entry = lstatOr(dotGit);
  if (entry === undefined) return undefined;
  if (entry.isDirectory()) return isFile(join(dotGit, 'HEAD')) ? {} : undefined;
  if (!entry.isFile() || entry.size > MAX_POINTER_BYTES) return undefined;
  const pointer = /^gitdir: (.+?)\r?\n?$/s.exec(readFileSync(dotGit, 'utf8'))?.[1];
  const gitDirectory = pointer === undefined ? undefined : realPathAt(resolve(directory, pointer));
  if (gitDirectory === undefined || !isFile(join(gitDirectory, 'HEAD'))) return undefined;
  const commonText = readPointer(join(gitDirectory, 'commondir'));
  // A linked worktree is known to its repository by worktrees/<id>/gitdir, a submodule by core.worktree of its own configuration. (git-worktree(1), gitsubmodules(7))
  const back = commonText === undefined ? workTreeOf(gitDirectory) : readPointer(join(gitDirectory, 'gitdir'));
  const known = back === undefined ? undefined : realPathAt(resolve(gitDirectory, back));
  if (known !== (commonText === undefined ? directory : dotGit)) return { strange: gitDirectory };
  const common = commonText === undefined ? gitDirectory : realPathAt(resolve(gitDirectory, commonText));
  return common !== undefined && isFile(join(common, 'HEAD')) ? { commonDirectory: common } : { strange: gitDirectory };
}

function workTreeOf(gitDirectory: string): string | undefined {
  const path = join(gitDirectory, 'config');
  const entry = statOr(path);
  if (entry?.isFile() !== true || entry.size > 1024 * 1024) return undefined;
  return readSettings(readFileSync(path, 'utf8')).find((setting) => setting.section === 'core' && setting.key.toLowerCase() === 'worktree')?.value;
}

function realPathAt(path: string): string | undefined {
  try {
    return realpathSync.native(path);
  } catch {
    return undefined;
  }
}

/** The configuration file of the repository whose work tree a directory is, or undefined. */
export function gitConfigFile(directory: string): string | undefined {
  const git = gitAt(directory);
  return git === undefined || git.strange !== undefined ? undefined : join(git.commonDirectory ?? join(directory, '.git'), 'config');
}

function shared(git: GitFacts | undefined, workspace: string): Pick<WorkspaceFacts, 'commonDirectory' | 'strangeGitDirectory'> {
  const common = git?.commonDirectory;
  return {
    ...(common === undefined || isWithin(common, workspace) ? {} : { commonDirectory: common }),
    ...(git?.strange === undefined ? {} : { strangeGitDirectory: git.strange }),
  };
}

function isFile(path: string): boolean {
  return statOr(path)?.isFile() === true;
}

/** What can't be looked at is no work tree. */
function statOr(path: string): Stats | undefined {
  try {
    return statSync(path);
  } catch {
    return undefined;
  }
}

function lstatOr(path: string): Stats | undefined {
  try {
    return lstatSync(path);
  } catch {
    return undefined;
  }
}

function readPointer(path: string): string | undefined {
  const entry = statOr(path);
  if (entry?.isFile() !== true || entry.size > MAX_POINTER_BYTES) return undefined;
  return readFileSync(path, 'utf8').replace(/\r?\n$/, '');
}
