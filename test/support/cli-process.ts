import { PassThrough } from 'node:stream';
import { main } from '../../src/cli/main.ts';
import type { CliContext } from '../../src/cli/context.ts';

export interface CliResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs one command line in this process, with its own home and state below `home`. */
export async function runCli(argv: readonly string[], place: { readonly home: string; readonly cwd: string; readonly terminal?: boolean }): Promise<CliResult> {
  const streams = { stdout: new PassThrough(), stderr: new PassThrough() };
  const text = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const) streams[name].on('data', (chunk: Buffer) => (text[name] += chunk.toString()));
  const terminal = place.terminal ?? false;
  const context: CliContext = {
    env: { HOME: place.home, XDG_STATE_HOME: `${place.home}/state`, PATH: process.env['PATH'] },
    cwd: place.cwd,
    ...streams,
    isTerminal: { stdin: false, stdout: terminal, stderr: terminal },
    columns: 80,
    clock: Date.now,
  };
  const code = await main(argv, context);
  streams.stdout.end();
  streams.stderr.end();
  return { code, ...text };
}
