import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { join } from 'node:path';
import type { GitIdentity } from '../core/job.ts';
import { parseGitIdentity } from './git-identity.ts';

const MOST_BYTES = 256 * 1024;

/**
 * The name and email of the caller's own git configuration: `$XDG_CONFIG_HOME/git/config`, then `~/.gitconfig` (git-config(1), FILES). git isn't run, and
 * no file of a workspace is read. Undefined when neither says anything, and for a file that can't be read.
 */
export function readGitIdentity(home: string, env: Readonly<Record<string, string>>): GitIdentity | undefined {
  const chosen = env['XDG_CONFIG_HOME'];
  const files = [join(chosen?.startsWith('/') === true ? chosen : join(home, '.config'), 'git/config'), join(home, '.gitconfig')];
  const found = files.flatMap((file) => parseGitIdentity(readSmall(file)) ?? []);
  if (found.length === 0) return undefined;
  const last = (key: 'name' | 'email'): string => found.map((one) => one[key]).findLast((value) => value !== '') ?? '';
  return { name: last('name'), email: last('email') };
}

function readSmall(path: string): string {
  try {
    // NONBLOCK: a FIFO must not hold the run. A link is followed: people keep their configuration elsewhere.
    const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const { size } = fstatSync(file);
      if (!fstatSync(file).isFile() || size > MOST_BYTES) return '';
      const buffer = Buffer.alloc(size);
      return buffer.toString('utf8', 0, readSync(file, buffer, 0, size, 0));
    } finally {
      closeSync(file);
    }
  } catch {
    return '';
  }
}
