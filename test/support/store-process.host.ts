import { buildSync } from 'esbuild';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** A process of test/fixtures/store-child.ts: `line()` gives its next line, `go()` lets it start. */
export interface StoreProcess {
  readonly child: ChildProcess;
  line(): Promise<string>;
  go(): void;
  /** Sends SIGKILL and waits until the process is gone. */
  kill(): Promise<void>;
  /** Waits for its end; rejects unless it exited with 0. */
  done(): Promise<void>;
}

const directory = join(import.meta.dirname, '../../build', `store-child-${process.pid}`);
let program: string | undefined;

/** Starts test/fixtures/store-child.ts, bundled once a test file. The bundle lies in the repository, so that it finds better-sqlite3. */
export function startStoreProcess(...args: readonly string[]): StoreProcess {
  program ??= bundle();
  const child = spawn(process.execPath, [program, ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const ended = once(child, 'exit');
  return {
    child,
    line: async () => {
      const next = await lines.next();
      if (next.done === true) throw new Error('the process said nothing more');
      return next.value;
    },
    go: () => child.stdin.write('\n'),
    kill: async () => {
      child.kill('SIGKILL');
      await ended;
    },
    done: async () => {
      await ended;
      const code = child.exitCode;
      if (code !== 0) throw new Error(`the process ended with ${String(code)}`);
    },
  };
}

/** Removes the bundled program. */
export function removeStoreProgram(): void {
  rmSync(directory, { recursive: true, force: true });
  program = undefined;
}

function bundle(): string {
  mkdirSync(directory, { recursive: true });
  const outfile = join(directory, 'store-child.mjs');
  buildSync({
    entryPoints: [join(import.meta.dirname, '../fixtures/store-child.ts')],
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    external: ['better-sqlite3'],
    outfile,
    logLevel: 'error',
  });
  return outfile;
}
