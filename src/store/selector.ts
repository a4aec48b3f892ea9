import { ProofrunError } from '../core/errors.ts';
import { parseRunId, type RunId } from '../core/ids.ts';
import { safeLine } from '../core/text-safety.ts';

/** How a person names a run: an id, the beginning of one, a name, or `last` (newest of the workspace). */
export type Selector =
  | { readonly kind: 'id'; readonly id: RunId }
  | { readonly kind: 'last' }
  /** `prefix` is undefined when the word can't be the beginning of an id. */
  | { readonly kind: 'word'; readonly name: string; readonly prefix: string | undefined };

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
/** `run-` may be left out when four characters of the rest are given. */
const PREFIX = /^(?:run-([0-9A-HJKMNP-TV-Z]{0,26})|([0-9A-HJKMNP-TV-Z]{4,26}))$/i;

export function parseSelector(text: string): Selector {
  if (text === 'last') return { kind: 'last' };
  const id = parseRunId(text);
  if (id !== undefined) return { kind: 'id', id };
  const found = PREFIX.exec(text);
  const rest = found?.[1] ?? found?.[2];
  return { kind: 'word', name: text, prefix: rest === undefined ? undefined : `run-${rest.toUpperCase()}` };
}

/** The name when it may name a run. Throws ERR_USAGE: a name must not look like an id and must not be `last`. */
export function checkRunName(name: string): string {
  if (!NAME.test(name) || name === 'last' || /^run-/i.test(name)) {
    throw new ProofrunError('ERR_USAGE', {
      message: `name '${safeLine(name, 80)}': expected up to 64 letters, digits, '.', '_' or '-', not 'last' and not starting with 'run-'`,
      hint: 'job run --name unit -- ...',
    });
  }
  return name;
}

/** ERR_RUN_NOT_FOUND. */
export function runNotFound(text: string): ProofrunError {
  return new ProofrunError('ERR_RUN_NOT_FOUND', {
    message: text === 'last' ? 'this workspace has no run' : `no run matches '${safeLine(text, 80)}'`,
    hint: text === 'last' ? 'job ls --all' : 'job ls',
  });
}

/** ERR_RUN_AMBIGUOUS, with up to five of the candidates. */
export function runAmbiguous(text: string, ids: readonly string[]): ProofrunError {
  const shown = ids.slice(0, 5).join(', ');
  return new ProofrunError('ERR_RUN_AMBIGUOUS', {
    message: `'${safeLine(text, 80)}' matches ${shown}${ids.length > 5 ? ' and more' : ''}`,
    hint: 'give a longer part of the id; job ls',
    data: { candidates: ids.slice(0, 5) },
  });
}
