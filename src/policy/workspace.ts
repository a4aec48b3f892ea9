import { ProofrunError } from '../core/errors.ts';
import { compileMatcher, isWithin, literalBase } from './path-rule.ts';
import type { SensitivePath } from './sensitive.ts';

/** Which directory is staged, and why that one. All paths absolute and real. */
export interface WorkspaceFacts {
  readonly workspace: string;
  /** Where the command starts; inside the workspace. */
  readonly cwd: string;
  readonly chosen: 'flag' | 'job file' | 'git work tree' | 'current directory';
  /** The git directory that a linked worktree shares with its main one. */
  readonly commonDirectory?: string;
  /** Where a `.git` file points, when the repository there doesn't know this directory. It is not opened: whoever wrote the workspace chose it. */
  readonly strangeGitDirectory?: string;
}

interface Caller {
  readonly home: string;
  readonly homes: readonly string[];
  /** For the next command. */
  readonly argv: readonly string[];
}

/** Refuses `/`, a home or what contains one, and a sensitive path, each with the next command. Throws ERR_WORKSPACE. */
export function checkWorkspace(facts: WorkspaceFacts, caller: Caller, sensitive: readonly SensitivePath[]): void {
  const { workspace } = facts;
  const next = `job run --workspace DIR -- ${caller.argv.map(quoteWord).join(' ')}`;
  const refuse = (what: string, help: string): never => {
    throw new ProofrunError('ERR_WORKSPACE', {
      message: `the workspace ${workspace} ${what}`,
      hint: `${help}: ${next}`,
      data: { workspace, chosen: facts.chosen },
    });
  };
  if (workspace === '/') return refuse('is the whole file system', 'name the directory of the project');
  const home = [caller.home, ...caller.homes].find((one) => one !== '/' && isWithin(one, workspace));
  if (home !== undefined) {
    return refuse(home === workspace ? 'is a home directory' : `contains the home directory ${home}`, 'make a directory for the project and name it');
  }
  for (const { rule, entry } of sensitive) {
    // Most rules lie elsewhere: only those that can match are compiled.
    if (isWithin(workspace, literalBase(rule)) && compileMatcher(rule)(workspace)) {
      return refuse(`is or lies in a sensitive path (${entry.tool})`, 'name a directory elsewhere');
    }
    if (rule.literal && isWithin(rule.pattern, workspace)) {
      return refuse(`contains the sensitive path ${rule.pattern} (${entry.tool})`, 'name a directory that does not');
    }
  }
  if (!isWithin(facts.cwd, workspace)) {
    throw new ProofrunError('ERR_WORKSPACE', {
      message: `the directory ${facts.cwd} lies outside the workspace ${workspace}`,
      hint: `start inside it: job run --cwd ${quoteWord(workspace)} -- ${caller.argv.map(quoteWord).join(' ')}`,
    });
  }
}

/** A word as a shell would need it. */
export function quoteWord(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./~-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;
}
