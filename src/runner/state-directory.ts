import { isAbsolute, join, normalize } from 'node:path';

/** What decides where the state lies. Data only. */
export interface StatePlaceFacts {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Home of the effective user, as the user database has it. */
  readonly home: string;
}

/**
 * The state directory: `$XDG_STATE_HOME/proofrun`, else `~/.local/state/proofrun` (XDG Base Directory Specification 0.8: a relative value
 * is ignored). The home is the user database's and not `$HOME`: under `sudo` that may be somebody else's. There is no variable of
 * Proofrun's own: a caller of the library passes `stateDirectory`.
 */
export function stateDirectoryOf(facts: StatePlaceFacts): string {
  const chosen = facts.env.XDG_STATE_HOME;
  const base = chosen !== undefined && isAbsolute(chosen) ? normalize(chosen) : join(facts.home, '.local', 'state');
  return join(base, 'proofrun');
}

/** Paths of one run, below the state directory. Absolute. */
export interface RunPaths {
  readonly directory: string;
  /** Relative to the state directory: what the store keeps. */
  readonly bundleRelative: string;
  readonly stage: string;
  readonly scratch: string;
  /** Processes of the attempt, for the reconciliation of a run whose owner died. */
  readonly attempt: string;
}

export function runPaths(stateDirectory: string, runId: string): RunPaths {
  const directory = join(stateDirectory, 'runs', runId);
  return {
    directory,
    bundleRelative: join('runs', runId, 'run-bundle.json'),
    stage: join(directory, 'stage'),
    scratch: join(directory, 'scratch'),
    attempt: join(directory, 'attempt.json'),
  };
}

/** Where the files of a checkpoint lie. Absolute. */
export function checkpointDirectory(stateDirectory: string, id: string): string {
  return join(stateDirectory, 'checkpoints', id);
}
