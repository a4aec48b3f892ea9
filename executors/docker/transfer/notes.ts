import type { BytePath } from '../../../src/stage/byte-path.ts';
import { nameForMessage } from './tree-check.ts';

/** A person can read only so many. */
const MOST_NAMED = 5;

/** One line for a list of what was left out; none for an empty one. */
export function leftOutWarnings(what: string, leftOut: readonly { readonly path: BytePath; readonly why: string }[]): readonly string[] {
  if (leftOut.length === 0) return [];
  const named = leftOut.slice(0, MOST_NAMED).map(({ path, why }) => `${nameForMessage(path)} (${why})`);
  return [`${what}: ${named.join(', ')}${leftOut.length > MOST_NAMED ? ` and ${leftOut.length - MOST_NAMED} more` : ''}`];
}
