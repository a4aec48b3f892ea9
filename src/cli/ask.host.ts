import { createInterface } from 'node:readline';
import type { CliContext } from './context.ts';

/** Asks on stderr and reads one line from the terminal; an empty text at its end. */
export async function askLine(question: string, context: CliContext): Promise<string> {
  const lines = createInterface({ input: process.stdin, output: context.stderr, terminal: false });
  context.stderr.write(question);
  try {
    for await (const line of lines) return line;
    return '';
  } finally {
    lines.close();
  }
}
