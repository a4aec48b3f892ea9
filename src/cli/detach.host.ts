import { spawn, type ChildProcess } from 'node:child_process';
import { writeSync } from 'node:fs';
import { Writable } from 'node:stream';
import { EXIT_CODES, ProofrunError } from '../core/errors.ts';
import { lineCutter } from '../runner/control-protocol.ts';
import type { ParsedArgs } from './command.ts';
import type { CliContext } from './context.ts';

/**
 * How the process that outlives the terminal is called (argv[0]): it is this program again, with the same command line, in a session of its
 * own and without a terminal. Only the one who starts a process chooses its argv[0]; no flag and no variable leads there.
 */
const SUPERVISOR_ARGV0 = 'job-supervisor';
/** The supervisor's pipe to the command that started it. */
const REPORT_FD = 3;

type Report = { readonly kind: 'stdout' | 'stderr'; readonly text: string } | { readonly kind: 'running'; readonly id: string };

export function isSupervisor(): boolean {
  return process.argv0 === SUPERVISOR_ARGV0;
}

/**
 * Starts the supervisor and returns when the command runs, with its id on stdout; or when the job was refused or could not be started, with the
 * text and the exit code of that. A supervisor goes on without the terminal, not over a reboot.
 */
export async function detach(args: ParsedArgs, context: CliContext): Promise<number> {
  const program = process.argv[1];
  if (program === undefined) throw new ProofrunError('ERR_INTERNAL', { message: 'the path of this program is unknown' });
  const child = spawn(process.execPath, [...process.execArgv, program, ...args.argv], {
    argv0: SUPERVISOR_ARGV0,
    detached: true,
    cwd: context.cwd,
    stdio: ['ignore', 'ignore', 'ignore', 'pipe'],
  });
  const id = await idOf(child, context);
  if (id === undefined) return await exitCodeOf(child);
  context.stdout.write(args.flags.json === true ? `${JSON.stringify({ run: id })}\n` : `${id}\n`);
  child.unref();
  return 0;
}

/** Passes on what the supervisor says; undefined when it ends before the command runs. */
async function idOf(child: ChildProcess, context: CliContext): Promise<string | undefined> {
  const pipe = child.stdio[REPORT_FD];
  if (pipe === null || pipe === undefined || !('setEncoding' in pipe)) throw new ProofrunError('ERR_INTERNAL', { message: 'the supervisor has no pipe' });
  const failed = new Promise<never>((_resolve, reject) => {
    child.once('error', reject);
  });
  const read = async (): Promise<string | undefined> => {
    const cutter = lineCutter();
    pipe.setEncoding('utf8');
    for await (const text of pipe as AsyncIterable<string>) {
      for (const line of cutter.feed(text)) {
        const report = JSON.parse(line) as Report;
        if (report.kind === 'running') return report.id;
        context[report.kind].write(report.text);
      }
    }
    return undefined;
  };
  return await Promise.race([read(), failed]);
}

function exitCodeOf(child: ChildProcess): Promise<number> {
  const code = (): number => child.exitCode ?? EXIT_CODES.internal;
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) resolve(code());
    else child.once('exit', () => resolve(code()));
  });
}

export interface Supervision {
  /** Streams of this process that reach the one who started it, until the command runs. */
  readonly context: CliContext;
  /** Tells that the command runs: from now on nobody listens. */
  running(id: string): void;
}

/** The supervisor's side. */
export function supervision(context: CliContext): Supervision {
  let listening = true;
  const report = (message: Report): void => {
    if (!listening) return;
    try {
      writeSync(REPORT_FD, `${JSON.stringify(message)}\n`);
    } catch {
      // The command that started us was ended; the run goes on.
      listening = false;
    }
  };
  const sink = (kind: 'stdout' | 'stderr'): Writable =>
    new Writable({
      write: (chunk: Buffer, _encoding, done) => {
        report({ kind, text: chunk.toString('utf8') });
        done();
      },
    });
  return {
    context: {
      ...context,
      columns: context.columns,
      stdout: sink('stdout'),
      stderr: sink('stderr'),
      isTerminal: { stdin: false, stdout: false, stderr: false },
    },
    running: (id) => {
      report({ kind: 'running', id });
      listening = false;
    },
  };
}
