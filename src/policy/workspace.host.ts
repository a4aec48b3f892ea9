import { lstat, readFile, realpath, stat } from 'node:fs/promises';
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
export async function findWorkspace(request: WorkspaceRequest): Promise<WorkspaceFacts> {
  const typedCwd = request.cwd === undefined ? request.jobCwd : resolve(request.currentDirectory, request.cwd);
  const start = await directoryAt(typedCwd ?? request.currentDirectory, 'cwd');
  const named = request.workspace === undefined ? request.jobWorkspace : resolve(request.currentDirectory, request.workspace);
  if (named !== undefined) {
    const workspace = await directoryAt(named, 'workspace');
    const git = await gitAt(workspace);
    // A workspace that is named and not where the person stands: the command starts at its top.
    const cwd = typedCwd === undefined && !isWithin(start, workspace) ? workspace : start;
    return { workspace, cwd, chosen: request.workspace === undefined ? 'job file' : 'flag', ...shared(git, workspace) };
  }
  for (let directory = start; ; directory = dirname(directory)) {
    const git = await gitAt(directory);
    if (git !== undefined) return { workspace: directory, cwd: start, chosen: 'git work tree', ...shared(git, directory) };
    if (dirname(directory) === directory) return { workspace: start, cwd: start, chosen: 'current directory' };
  }
}

/** The real path of a directory. Throws ERR_WORKSPACE. */
async function directoryAt(path: string, what: 'workspace' | 'cwd'): Promise<string> {
  const real = await realpath(path).catch((cause: unknown) => {
    const reason = errnoOf(cause) === 'ENOENT' ? 'does not exist' : `can't be reached (${errnoOf(cause) ?? 'unknown'})`;
    throw new ProofrunError('ERR_WORKSPACE', {
      message: `the ${what} ${path} ${reason}`,
      hint: what === 'workspace' ? 'name an existing directory: --workspace DIR' : 'name an existing directory: --cwd DIR',
      cause,
    });
  });
  if (!(await stat(real)).isDirectory()) {
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
async function gitAt(directory: string): Promise<GitFacts | undefined> {
  const dotGit = join(directory, '.git');
  const entry = await lstat(dotGit).catch(() => undefined);
  if (entry === undefined) return undefined;
  if (entry.isDirectory()) return (await isFile(join(dotGit, 'HEAD'))) ? {} : undefined;
  if (!entry.isFile() || entry.size > MAX_POINTER_BYTES) return undefined;
  const pointer = /^gitdir: (.+?)\r?\n?$/s.exec(await readFile(dotGit, 'utf8'))?.[1];
  const gitDirectory = pointer === undefined ? undefined : await realPathAt(resolve(directory, pointer));
  if (gitDirectory === undefined || !(await isFile(join(gitDirectory, 'HEAD')))) return undefined;
  const commonText = await readPointer(join(gitDirectory, 'commondir'));
  // A linked worktree is known to its repository by worktrees/<id>/gitdir, a submodule by core.worktree of its own configuration. (git-worktree(1), gitsubmodules(7))
  const back = commonText === undefined ? await workTreeOf(gitDirectory) : await readPointer(join(gitDirectory, 'gitdir'));
  const known = back === undefined ? undefined : await realPathAt(resolve(gitDirectory, back));
  if (known !== (commonText === undefined ? directory : dotGit)) return { strange: gitDirectory };
  const common = commonText === undefined ? gitDirectory : await realPathAt(resolve(gitDirectory, commonText));
  return common !== undefined && (await isFile(join(common, 'HEAD'))) ? { commonDirectory: common } : { strange: gitDirectory };
}

async function workTreeOf(gitDirectory: string): Promise<string | undefined> {
  const path = join(gitDirectory, 'config');
  const entry = await stat(path).catch(() => undefined);
  if (entry?.isFile() !== true || entry.size > 1024 * 1024) return undefined;
  return readSettings(await readFile(path, 'utf8')).find((setting) => setting.section === 'core' && setting.key.toLowerCase() === 'worktree')?.value;
}

async function realPathAt(path: string): Promise<string | undefined> {
  return await realpath(path).catch(() => undefined);
}

/** The configuration file of the repository whose work tree a directory is, or undefined. */
export async function gitConfigFile(directory: string): Promise<string | undefined> {
  const git = await gitAt(directory);
  return git === undefined || git.strange !== undefined ? undefined : join(git.commonDirectory ?? join(directory, '.git'), 'config');
}

function shared(git: GitFacts | undefined, workspace: string): Pick<WorkspaceFacts, 'commonDirectory' | 'strangeGitDirectory'> {
  const common = git?.commonDirectory;
  return {
    ...(common === undefined || isWithin(common, workspace) ? {} : { commonDirectory: common }),
    ...(git?.strange === undefined ? {} : { strangeGitDirectory: git.strange }),
  };
}

async function isFile(path: string): Promise<boolean> {
  return await stat(path).then(
    (entry) => entry.isFile(),
    () => false,
  );
}

async function readPointer(path: string): Promise<string | undefined> {
  const entry = await stat(path).catch(() => undefined);
  if (entry?.isFile() !== true || entry.size > MAX_POINTER_BYTES) return undefined;
  return (await readFile(path, 'utf8')).replace(/\r?\n$/, '');
}
