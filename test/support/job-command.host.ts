import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { TestUser } from './accounts.ts';

const CLONE = resolve(import.meta.dirname, '../..');

/**
 * Directory of the package that a user's commands run from: the clone, or for the ordinary user of a run as root the copy that
 * session.host.ts made (root's own, readable by all).
 */
export function installation(user: TestUser): string {
  const copy = process.env['PROOFRUN_TEST_INSTALL'];
  if (user.uid === process.getuid?.()) return CLONE;
  if (copy === undefined || !existsSync(copy)) {
    throw new Error('no copy for the ordinary user: this test belongs to a project with test/support/session.host.ts as its globalSetup');
  }
  return copy;
}

/** argv prefix of `job` for a user. */
export function jobCommand(user: TestUser): readonly [string, ...string[]] {
  return [nodeFor(user), join(installation(user), 'dist', 'job.js')];
}

/** A Node that the user can execute. */
export function nodeFor(user: TestUser): string {
  return user.uid === process.getuid?.() ? process.execPath : (process.env['PROOFRUN_TEST_NODE'] ?? process.execPath);
}
