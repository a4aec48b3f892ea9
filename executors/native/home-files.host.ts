import { lstatSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { EffectiveJob } from '../../src/core/job.ts';
import type { LaunchRequest } from '../../src/executor/executor.ts';
import { agentStatePlace } from '../../src/executor/kept-places.ts';
import { formatGitIdentity } from '../../src/policy/git-identity.ts';

/** What a private home holds at the start besides directories that are mounted there. */
export interface HomeFiles {
  /** Copies of the host's files: where the job finds one, and what is copied. */
  readonly homeCopies: readonly HomeCopy[];
  /** Files that are made. */
  readonly homeTexts: readonly { readonly path: string; readonly text: string }[];
  /** Configuration that is not copied, in words. */
  readonly leftOut: readonly string[];
}

export interface HomeCopy {
  readonly path: string;
  readonly source: string;
  readonly mode: number;
}

/** More than this is no configuration any more. */
const MOST_FILES = 2000;
const MOST_BYTES = 64 * 1024 * 1024;

/** The configuration of profiles, their login files, and git's name for the caller. Links are not followed, and what is hidden stays out. */
export function gatherHomeFiles(request: LaunchRequest, isHidden: (path: string) => boolean): HomeFiles {
  const { job } = request.plan;
  const { fileRead } = job.permissions;
  const logins = request.logins ?? [];
  const leftOut: string[] = [];
  const copies = new Map<string, HomeCopy>();
  const taken = new Set(logins.map(({ path }) => path));
  const kept = [...(fileRead.caches ?? []), ...(fileRead.states ?? [])].map(({ path }) => path);
  const skip = (path: string): boolean => taken.has(path) || kept.includes(path) || isHidden(path);
  for (const rule of fileRead.homeCopies ?? []) {
    if (!rule.literal || !rule.pattern.startsWith(`${job.home}/`)) continue;
    const found: HomeCopy[] = [];
    let room = MOST_BYTES;
    const visit = (path: string): boolean => {
      if (skip(path)) return true;
      const facts = lstatSync(path, { throwIfNoEntry: false });
      if (facts?.isFile() === true) {
        room -= facts.size;
        found.push({ path, source: path, mode: facts.mode & 0o777 });
        return found.length <= MOST_FILES && room >= 0;
      }
      return facts?.isDirectory() === true ? namesIn(path).every((name) => visit(join(path, name))) : true;
    };
    if (visit(rule.pattern)) for (const copy of found) copies.set(copy.path, copy);
    else leftOut.push(`${rule.pattern} holds more than ${MOST_FILES} files or 64 MiB, and was not copied into the private home`);
  }
  for (const { path, source } of logins) copies.set(path, { path, source, mode: 0o600 });
  const gitConfig = join(job.home, '.gitconfig');
  const { gitIdentity } = fileRead;
  return {
    homeCopies: [...copies.values()],
    homeTexts: gitIdentity === undefined || copies.has(gitConfig) ? [] : [{ path: gitConfig, text: formatGitIdentity(gitIdentity) }],
    leftOut,
  };
}

/** Where agents keep what they continue from: the place in the private home, and our directory. */
export function statePlaces(job: EffectiveJob, stateDirectory: string): readonly { readonly path: string; readonly source: string }[] {
  return (job.permissions.fileRead.states ?? []).map((state) => ({ path: state.path, source: agentStatePlace(stateDirectory, job.workspace, state) }));
}

function namesIn(path: string): readonly string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}
