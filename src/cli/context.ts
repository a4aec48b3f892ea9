import type { Writable } from 'node:stream';

/** Everything that a command may touch of the process that runs it. Tests pass their own. */
export interface CliContext {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Absolute. */
  readonly cwd: string;
  /** Results only. */
  readonly stdout: Writable;
  /** Our own lines: summaries, warnings, errors, progress. */
  readonly stderr: Writable;
  readonly isTerminal: { readonly stdin: boolean; readonly stdout: boolean; readonly stderr: boolean };
  /** Width to which text is laid out: of the terminal, at most 80 unless it is asked for, else 80. */
  readonly columns: number;
  /** Milliseconds since the epoch. */
  readonly clock: () => number;
}
