import { spawn } from 'node:child_process';
import type { CliContext } from './context.ts';

/**
 * Writes a result to stdout, through the person's pager (`PAGER`, else less) when stdout is a terminal that it doesn't fit on. `PAGER=cat`
 * or an empty one: never. A pager that can't be started is done without.
 */
export async function page(text: string, context: CliContext): Promise<void> {
  const chosen = context.env['PAGER'] ?? 'less';
  const [program, ...words] = chosen.split(' ').filter((word) => word !== '');
  // 0: a terminal that nobody has told its size.
  const rows = process.stdout.rows || 0;
  const fits = !context.isTerminal.stdout || !context.isTerminal.stdin || rows < 5 || text.split('\n').length <= rows;
  if (fits || program === undefined || program === 'cat') {
    context.stdout.write(text);
    return;
  }
  const env = { ...context.env, LESS: context.env['LESS'] ?? 'FRX', LESSSECURE: '1' };
  const child = spawn(program, words, { env, stdio: ['pipe', 'inherit', 'inherit'] });
  const shown = await new Promise<boolean>((resolve) => {
    child.once('error', () => resolve(false));
    child.once('close', () => resolve(true));
    // A person who has read enough ends it before it has read all.
    child.stdin.on('error', () => undefined);
    child.stdin.end(text);
  });
  if (!shown) context.stdout.write(text);
}
