/** The program `job`: hands the process to `main` and exits with its code. */
import { isatty } from 'node:tty';
import { ProofrunError } from '../core/errors.ts';
import type { CliContext } from './context.ts';
import { main } from './main.ts';

/** 128 + SIGPIPE: what a shell shows for a program whose reader went away. */
const READER_GONE = 141;
const WIDEST = 80;
const NARROWEST = 46;

const argv = process.argv.slice(2);

// Getters: a command that never looks at a stream doesn't pay for making it.
const context: CliContext = {
  env: process.env,
  get cwd() {
    return currentDirectory();
  },
  get stdout() {
    return process.stdout;
  },
  get stderr() {
    return process.stderr;
  },
  isTerminal: {
    get stdin() {
      return isatty(0);
    },
    get stdout() {
      return isatty(1);
    },
    get stderr() {
      return isatty(2);
    },
  },
  get columns() {
    // 0: a terminal that nobody has told its size.
    const width = (isatty(1) ? process.stdout.columns : isatty(2) ? process.stderr.columns : 0) || WIDEST;
    return Math.min(WIDEST, Math.max(NARROWEST, width));
  },
  clock: Date.now,
};

/** A directory that was removed under the shell has no path. */
function currentDirectory(): string {
  try {
    return process.cwd();
  } catch (cause) {
    throw new ProofrunError('ERR_WORKSPACE', { message: "the current directory doesn't exist any more", hint: 'cd to one that does', cause });
  }
}

/** A run goes on without its reader; every other command has nothing left to do. */
function onStreamError(error: NodeJS.ErrnoException): void {
  if (error.code === 'EPIPE' && argv[0] === 'run') {
    return;
  }
  process.exit(error.code === 'EPIPE' ? READER_GONE : 209);
}

process.stdout.on('error', onStreamError);
process.stderr.on('error', onStreamError);
for (const event of ['uncaughtException', 'unhandledRejection'] as const) {
  process.once(event, (error: unknown) => {
    void import('./report/error.ts').then(({ reportError }) => process.exit(reportError(error, argv.includes('--json'), context)));
  });
}

void main(argv, context).then(async (code) => {
  // Handles that somebody left open don't hold the exit; output that a slow reader hasn't taken yet does.
  for (const stream of [process.stdout, process.stderr]) {
    if (stream.writableLength > 0) await new Promise((resolve) => stream.write('', resolve));
  }
  process.exit(code);
});
