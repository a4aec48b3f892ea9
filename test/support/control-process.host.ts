import { buildSync } from 'esbuild';
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';

const directory = join(import.meta.dirname, '../../build', `control-child-${process.pid}`);
let program: string | undefined;

export interface ControlProcess {
  readonly child: ChildProcess;
  /** Resolves when it said something, or ended. */
  readonly ready: Promise<void>;
  /** How it ended, and what it said. */
  readonly ended: Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null; readonly stdout: string; readonly stderr: string }>;
}

/** Starts test/fixtures/control-child.ts, bundled once a test file. */
export function startControlProcess(...args: readonly string[]): ControlProcess {
  program ??= bundle();
  const child = spawn(process.execPath, [program, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  let stdout = '';
  const ready = new Promise<void>((resolve) => {
    child.stdout.once('data', () => resolve());
    child.once('close', () => resolve());
  });
  let stderr = '';
  child.stdout.on('data', (part: Buffer) => (stdout += part.toString()));
  child.stderr.on('data', (part: Buffer) => (stderr += part.toString()));
  return {
    child,
    ready,
    ended: new Promise((resolve, reject) => {
      child.on('error', reject);
      child.on('close', (code, signal) => resolve({ code, signal, stdout, stderr }));
    }),
  };
}

/** Removes the bundled program. */
export function removeControlProgram(): void {
  rmSync(directory, { recursive: true, force: true });
  program = undefined;
}

function bundle(): string {
  mkdirSync(directory, { recursive: true });
  const outfile = join(directory, 'control-child.mjs');
  buildSync({
    entryPoints: [join(import.meta.dirname, '../fixtures/control-child.ts')],
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    packages: 'external',
    outfile,
    logLevel: 'error',
  });
  return outfile;
}
