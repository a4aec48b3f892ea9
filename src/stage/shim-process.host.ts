import { spawn } from 'node:child_process';
import { getSystemErrorMap } from 'node:util';
import { ProofrunError, type ErrorDetails } from '../core/errors.ts';

export interface ShimOutput {
  readonly stdout: Buffer;
}

/** Exit code of the shim for a bound that was reached (executors/shim/tree.h). */
const EXIT_LIMIT = 4;

function errnoName(number: number): string {
  return getSystemErrorMap().get(-number)?.[0] ?? `errno ${number}`;
}

/** The shim's last line, with its errno by name. */
export function shimComplaint(stderr: string): { readonly text: string; readonly errno: string | undefined } {
  const line = stderr.trim().split('\n').at(-1) ?? '';
  const text = line.replace(/^proofrun-shim \w+: /, '');
  const number = /\[(\d+)\]$/.exec(text)?.[1];
  return { text: text.replace(/ \[\d+\]$/, ''), errno: number === undefined ? undefined : errnoName(Number(number)) };
}

/** Starts the shim with an empty environment. */
export function spawnShim(shim: string, args: readonly string[], stdin: 'ignore' | 'pipe') {
  return spawn(shim, [...args], { env: {}, cwd: '/', stdio: [stdin, 'pipe', 'pipe'] });
}

function shimFailure(error: unknown, shim: string): ProofrunError {
  return new ProofrunError('ERR_SHIM_MISSING', { message: `could not start ${shim}: ${error instanceof Error ? error.message : String(error)}`, cause: error });
}

/**
 * Runs `shim COMMAND ...` to its end and returns its output. Throws ERR_STAGE_LAYER with the call that failed,
 * ERR_STAGE_FULL when a disk or quota is full, ERR_SHIM_MISSING when it can't be started.
 */
export async function runShim(shim: string, args: readonly string[]): Promise<ShimOutput> {
  const child = spawnShim(shim, args, 'ignore');
  const out: Buffer[] = [];
  let errors = '';
  child.stdout?.on('data', (chunk: Buffer) => out.push(chunk));
  child.stderr?.on('data', (chunk: Buffer) => {
    errors = (errors + chunk.toString('utf8')).slice(-4096);
  });
  const ending = await new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve, reject) => {
    child.once('error', (error) => reject(shimFailure(error, shim)));
    child.once('close', (code, signal) => resolve({ code, signal }));
  });
  if (ending.code === 0) {
    return { stdout: Buffer.concat(out) };
  }
  const { text, errno } = shimComplaint(errors);
  const details: ErrorDetails = {
    message: text === '' ? `${args[0] ?? 'shim'} ended ${ending.signal === null ? `with ${ending.code}` : `by ${ending.signal}`}` : text,
    data: { command: args[0] ?? '', limit: ending.code === EXIT_LIMIT, ...(errno === undefined ? {} : { errno }) },
  };
  throw new ProofrunError(errno === 'ENOSPC' || errno === 'EDQUOT' ? 'ERR_STAGE_FULL' : 'ERR_STAGE_LAYER', details);
}
