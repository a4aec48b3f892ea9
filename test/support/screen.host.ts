import { spawnSync } from 'node:child_process';
import { jobCommand } from './job-command.host.ts';
import type { JobLab } from './job-lab.host.ts';
import { spawnAs } from './users.host.ts';

/** A terminal with a shell command on it: script(1) of util-linux makes the pty and passes bytes both ways. */
export interface Screen {
  type(text: string): void;
  /** Resolves when the text has appeared since the last call. */
  shows(text: string | RegExp): Promise<string>;
  /** The code of the shell command. */
  readonly ended: Promise<number | null>;
}

/** Whether this machine has script(1). */
export const hasScript = spawnSync('script', ['--version']).status === 0;

export function openScreen(lab: JobLab, command: string, env: Readonly<Record<string, string>> = {}): Screen {
  const child = spawnAs(lab.user, ['script', '-qefc', command, '/dev/null'], {
    cwd: lab.workspace,
    env: { ...lab.env, TERM: 'dumb', ...env, SHELL: '/bin/sh' },
  });
  let seen = '';
  let wake: (() => void) | undefined;
  let over = false;
  child.stdout?.on('data', (part: Buffer) => {
    seen += part.toString('latin1');
    wake?.();
  });
  const ended = new Promise<number | null>((resolve) =>
    child.once('close', (code) => {
      over = true;
      wake?.();
      resolve(code);
    }),
  );
  return {
    type: (text) => child.stdin?.write(text),
    shows: async (text) => {
      for (;;) {
        const match = typeof text === 'string' ? (seen.includes(text) ? { index: seen.indexOf(text), found: text } : undefined) : matchOf(text, seen);
        if (match !== undefined) {
          const until = match.index + match.found.length;
          const before = seen.slice(0, until);
          seen = seen.slice(until);
          return before;
        }
        if (over) throw new Error(`the screen ended without ${String(text)}:\n${seen}`);
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    },
    ended,
  };
}

function matchOf(pattern: RegExp, text: string): { readonly index: number; readonly found: string } | undefined {
  const match = pattern.exec(text);
  return match === null ? undefined : { index: match.index, found: match[0] };
}

/** `job ARGS` of the lab's user, quoted for a shell. */
export function shellLine(lab: JobLab, args: readonly string[]): string {
  return [...jobCommand(lab.user), ...args].map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ');
}
