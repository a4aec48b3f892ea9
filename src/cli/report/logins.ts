import type { BundleLogin, LoginOutcome } from '../../core/bundle.ts';
import { displayPath, safeLine } from '../../core/text-safety.ts';
import { flowWords } from './layout.ts';
import { friendlyPath } from './words.ts';

const WORDS: Readonly<Record<Exclude<LoginOutcome, 'unchanged' | 'failed'>, string>> = {
  written_back: 'refreshed by the job and written back',
  superseded: "the job refreshed it, and the host's was refreshed later: that one stays",
  not_kept: 'changed by the job; the profile never writes it back',
  deleted: 'deleted by the job; yours is untouched',
};

/** What became of login files, without those that nobody changed. `bad`: one of them could not be written back. */
export function loginLines(
  logins: readonly BundleLogin[],
  home: string | undefined,
  room: number,
): { readonly lines: readonly string[]; readonly bad: boolean } {
  const place = (path: string): string => displayPath(friendlyPath(path, undefined, home));
  const lines = logins.flatMap(({ path, outcome, detail, kept }) => {
    if (outcome === 'unchanged') return [];
    if (outcome !== 'failed') return flowWords(`${place(path)}: ${WORDS[outcome]}`, room);
    const copy = kept === null ? '' : `; what the job left is kept in ${place(kept)}`;
    return flowWords(`${place(path)}: not written back: ${safeLine(detail ?? 'the reason is not known', 400)}${copy}`, room);
  });
  return { lines, bad: logins.some(({ outcome }) => outcome === 'failed') };
}
