import type { Mode } from '../core/dimension.ts';
import type { RuleLayer } from './rules.ts';
import type { SensitivePath } from './sensitive.ts';

/** All layers of a job, apart by what they do, with the facts that the file rules need. */
export interface Joined {
  readonly mode: Mode;
  /** Profiles, the job file, the flags. */
  readonly grants: readonly RuleLayer[];
  /** The mode, the user's and the workspace's policy file, named policies. */
  readonly ceilings: readonly RuleLayer[];
  readonly home: string;
  readonly workspace: string;
  /** Of a linked worktree. */
  readonly commonDirectory: string | undefined;
  readonly sensitive: readonly SensitivePath[];
  /** Names of the shipped profiles in use: each may read its own tool's login. */
  readonly shippedProfiles: readonly string[];
  /** Names of the profiles of the person's own in use: they may name login files of agents. */
  readonly ownProfiles: readonly string[];
  /** The path without symbolic links, or itself when it doesn't exist. */
  readonly realPath: (path: string) => string;
}
