import type { CliContext } from './context.ts';
import type { CommandName } from './command-table.ts';
import type { FlagValues } from './flags.ts';

/** A command line after the parser: flags known, units converted, contradictions refused. */
export interface ParsedArgs {
  readonly command: CommandName;
  /** Keys are those of FLAGS. Sizes are bytes, durations milliseconds. An absent key was not given. */
  readonly flags: FlagValues;
  /** Words that are neither flags nor values, in order. For `run` and `policy explain`: the command and its arguments. */
  readonly words: readonly string[];
  /** True when `--` stood before the words: then the first word is a program, never a job file. */
  readonly afterDashes: boolean;
  /** The arguments after `job`, as typed; for hints that repeat the command line. */
  readonly argv: readonly string[];
}

/** What each file of src/cli/commands exports. Resolves to the exit code; throws ProofrunError for everything that has a code. */
export interface CommandModule {
  readonly run: (args: ParsedArgs, context: CliContext) => Promise<number>;
}
