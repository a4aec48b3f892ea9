import { ERRORS, type ErrorCode } from './error-codes.ts';

/** What kind of thing went wrong: decides the exit code together with the code's row in the registry. */
export type ErrorKind = 'usage' | 'refused' | 'evidence' | 'control_lost' | 'launch' | 'limit' | 'conflict' | 'not_found' | 'wrong_state' | 'internal';

export interface ErrorDetails {
  /** What was expected, what came, and where (file:line, flag, path). */
  readonly message: string;
  /** The next command, or the line to change. */
  readonly hint?: string;
  readonly cause?: unknown;
  /** Machine-readable facts for `--json`. */
  readonly data?: Readonly<Record<string, unknown>>;
}

/**
 * The one error class. `code` is a row of ERRORS; text shown to a person is `message` then `hint`.
 * Expected results are values: throw this only for a broken contract, bad input or a failed host.
 */
export class ProofrunError extends Error {
  readonly code: ErrorCode;
  readonly kind: ErrorKind;
  readonly hint: string | undefined;
  readonly data: Readonly<Record<string, unknown>> | undefined;

  constructor(code: ErrorCode, details: ErrorDetails) {
    super(details.message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = 'ProofrunError';
    this.code = code;
    this.kind = ERRORS[code].kind;
    this.hint = details.hint;
    this.data = details.data;
  }

  /** The exit code that the command line gives for this error. */
  get exitCode(): number {
    return EXIT_CODES[this.kind];
  }
}

/** Exit codes of `job` besides the command's own (0..255), 126, 127 and 128+n. */
export const EXIT_CODES = {
  usage: 2,
  timeout: 124,
  not_executable: 126,
  command_not_found: 127,
  refused: 200,
  evidence: 201,
  control_lost: 202,
  launch: 203,
  limit: 204,
  conflict: 205,
  not_found: 206,
  wrong_state: 207,
  waiting_for_approval: 208,
  internal: 209,
} as const;

/** The text of anything thrown, without a stack. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The errno name (`ENOENT`) of a Node system error, else undefined. */
export function errnoOf(error: unknown): string | undefined {
  if (typeof error === 'object' && error !== null && 'code' in error && typeof error.code === 'string') {
    return error.code;
  }
  return undefined;
}
