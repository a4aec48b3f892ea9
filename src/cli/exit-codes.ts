import { EXIT_CODES } from '../core/errors.ts';

/** What each exit code of ours means; docs/reference/exit-codes.md is made from it. */
export const EXIT_CODE_MEANINGS: Readonly<Record<keyof typeof EXIT_CODES, string>> = {
  usage: 'The command line, job file or workspace is wrong; nothing was started',
  timeout: 'The time limit ended the command (or `job wait` stopped waiting)',
  not_executable: 'The program exists but cannot be executed',
  command_not_found: 'The program does not exist in the sandbox',
  refused: 'Refused before the start: the policy, or no executor can enforce what is needed',
  evidence: 'Evidence is missing: a receipt at the gate (nothing was started), or a bundle that does not verify',
  control_lost: 'A control was lost while the command ran; the run was ended',
  launch: 'The sandbox could not be built',
  limit: 'A limit of the job ended it',
  conflict: 'Apply was refused: a conflict, or a path that needs --allow-exec; nothing was applied',
  not_found: 'No such run or path',
  wrong_state: 'The run is not in a state that allows this',
  waiting_for_approval: 'Reserved for runs that wait for an approval',
  internal: 'A fault of Proofrun or of its store',
};

/** All rows in numeric order, 128+n included. */
export function exitCodeRows(): readonly (readonly [string, string])[] {
  const kinds = Object.keys(EXIT_CODES) as (keyof typeof EXIT_CODES)[];
  const rows: { code: number; text: string; meaning: string }[] = kinds.map((kind) => ({
    code: EXIT_CODES[kind],
    text: String(EXIT_CODES[kind]),
    meaning: EXIT_CODE_MEANINGS[kind],
  }));
  rows.push({ code: 128, text: '128+n', meaning: 'Signal n ended the command (130: Ctrl-C, 137: SIGKILL, 143: SIGTERM)' });
  return rows.sort((a, b) => a.code - b.code).map(({ text, meaning }) => [text, meaning] as const);
}
