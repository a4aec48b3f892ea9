import { toSnake } from '../../core/case.ts';
import { EXIT_CODES, messageOf, ProofrunError } from '../../core/errors.ts';
import type { JsonValue } from '../../core/json.ts';
import { safeText } from '../../core/text-safety.ts';
import type { ParsedArgs } from '../command.ts';
import type { CliContext } from '../context.ts';
import { applyRefusalText } from './apply-refusal.ts';
import { jsonLine } from './json.ts';
import { paletteFor } from './palette.ts';

/**
 * Writes what was thrown, as text to stderr or as JSON to stdout, and returns the exit code. Never throws. `args`: the command that failed, when
 * it came to one.
 */
export function reportError(error: unknown, json: boolean, context: CliContext, args?: ParsedArgs): number {
  if (json) {
    context.stdout.write(jsonLine(errorJson(error)));
  } else {
    context.stderr.write(refusalOf(error, args, context) ?? errorText(error));
  }
  return error instanceof ProofrunError ? error.exitCode : EXIT_CODES.internal;
}

/** A refused apply is told with whole commands, which need the command line. */
function refusalOf(error: unknown, args: ParsedArgs | undefined, context: CliContext): string | undefined {
  if (args?.command !== 'apply' || !(error instanceof ProofrunError)) return undefined;
  return applyRefusalText({ error, argv: args.argv, selector: args.words[0] ?? 'last', width: context.columns, palette: paletteFor(context, 'stderr') });
}

/** `job: message`, then the hint on a line of its own. An internal fault carries its stack, and says what to do with it. */
export function errorText(error: unknown): string {
  if (error instanceof ProofrunError && error.code !== 'ERR_INTERNAL') {
    const hint = error.hint === undefined ? '' : `${indented(error.hint)}\n`;
    return `job: ${safeText(error.message, { lines: true, max: 8000 })}\n${hint}`;
  }
  const stack = error instanceof Error && error.stack !== undefined ? error.stack.split('\n').slice(1, 9) : [];
  const frames = stack.map((line) => `${safeText(line)}\n`).join('');
  return `job: a fault of Proofrun itself: ${safeText(messageOf(error), { lines: true, max: 8000 })}\n${frames}${indented(INTERNAL_HINT)}\n`;
}

/** The same facts under `error`; keys are snake_case. */
export function errorJson(error: unknown): JsonValue {
  const known = error instanceof ProofrunError;
  return {
    error: {
      code: known ? error.code : 'ERR_INTERNAL',
      kind: known ? error.kind : 'internal',
      message: messageOf(error),
      hint: known && error.hint !== undefined ? error.hint : known ? null : INTERNAL_HINT,
      exit_code: known ? error.exitCode : EXIT_CODES.internal,
      data: known && error.data !== undefined ? dataJson(error.data) : null,
    },
  };
}

const INTERNAL_HINT = '`job ls` cleans up what it left behind; then report it with the lines above and the output of `job doctor`';

/** null when the data has no JSON form: an error about an error helps nobody. */
function dataJson(data: Readonly<Record<string, unknown>>): JsonValue {
  try {
    return toSnake(data);
  } catch {
    return null;
  }
}

function indented(text: string): string {
  return text
    .split('\n')
    .map((line) => `     ${safeText(line)}`)
    .join('\n');
}
