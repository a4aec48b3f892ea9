import { spawn, type ChildProcess, type SpawnOptions } from 'node:child_process';
import { chmodSync, chownSync, lstatSync, mkdtempSync, readdirSync, rmdirSync, unlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, test } from 'vitest';
import { users, type TestUser } from './accounts.ts';

export type { TestUser };

export interface Ended {
  /** null when a signal ended it. */
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface AsUserOptions {
  readonly cwd?: string;
  /** Added to a small environment of the user's own (PATH, HOME, USER, LOGNAME, LANG); undefined removes a name. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Written to standard input, which is then closed. Without it standard input is /dev/null. */
  readonly input?: string | Uint8Array;
}

const PATH = '/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin';

const required = new Set((process.env['REQUIRE_USERS'] ?? '').split(',').filter((name) => name !== ''));

/**
 * Runs a suite once for root and once for an ordinary user. Where one of them can't be had, the suite is skipped with the reason,
 * or fails when REQUIRE_USERS names that kind (`REQUIRE_USERS=root,user`).
 */
export function describeUsers(name: string, suite: (user: TestUser) => void): void {
  for (const [kind, user] of Object.entries(users())) {
    if (typeof user !== 'string') {
      describe(`${name} (${kind})`, () => suite(user));
    } else if (required.has(kind)) {
      test(`${name} (${kind})`, () => {
        throw new Error(`REQUIRE_USERS asks for ${kind}: ${user}`);
      });
    } else {
      describe.skip(`${name} (${kind}): ${user}`, () => {
        test('skipped', () => undefined);
      });
    }
  }
}

/** Starts a command as a user, with no supplementary groups. The caller ends it. */
export function spawnAs(
  user: TestUser,
  argv: readonly [string, ...string[]],
  options: Omit<AsUserOptions, 'input'> & Pick<SpawnOptions, 'stdio'> = {},
): ChildProcess {
  const env: Record<string, string> = {};
  const wanted: Readonly<Record<string, string | undefined>> = { PATH, HOME: user.home, USER: user.name, LOGNAME: user.name, LANG: 'C.UTF-8', ...options.env };
  for (const [name, value] of Object.entries(wanted)) {
    if (value !== undefined) env[name] = value;
  }
  const ids = user.uid === process.getuid?.() ? {} : { uid: user.uid, gid: user.gid };
  return spawn(argv[0], argv.slice(1), { cwd: options.cwd ?? '/', env, stdio: options.stdio ?? 'pipe', ...ids });
}

/** Runs a command as a user to its end. Rejects when it can't be started. */
export function asUser(user: TestUser, argv: readonly [string, ...string[]], options: AsUserOptions = {}): Promise<Ended> {
  return new Promise((resolve, reject) => {
    const child = spawnAs(user, argv, { ...options, stdio: [options.input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'] });
    const stdout: Buffer[] = [];
    const stderr: Buffer[] = [];
    child.stdout?.on('data', (part: Buffer) => stdout.push(part));
    child.stderr?.on('data', (part: Buffer) => stderr.push(part));
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(options.input);
    child.on('error', reject);
    child.on('close', (code, signal) => {
      resolve({ code, signal, stdout: Buffer.concat(stdout).toString(), stderr: Buffer.concat(stderr).toString() });
    });
  });
}

/**
 * A new directory (mode 0700) that belongs to the user, outside the clone, removed with all that is in it after the file's tests.
 * Call it while a suite is collected or from a hook or test.
 */
export function temporaryDirectory(user: TestUser, prefix = 'proofrun-'): string {
  const path = mkdtempSync(join(tmpdir(), prefix));
  if (user.uid !== process.getuid?.()) chownSync(path, user.uid, user.gid);
  made.push(path);
  return path;
}

const made: string[] = [];

afterAll(() => {
  for (const path of made.splice(0)) removeTree(path);
});

/** Removes a directory whose directories may have mode 0 (the work directory of an overlay has), and whose names may be no UTF-8. */
export function removeTree(path: string): void {
  const remove = (at: Buffer): void => {
    if (!lstatSync(at).isDirectory()) {
      unlinkSync(at);
      return;
    }
    chmodSync(at, 0o700);
    for (const name of readdirSync(at, { encoding: 'buffer' })) remove(Buffer.concat([at, Buffer.from('/'), name]));
    rmdirSync(at);
  };
  if (lstatSync(path, { throwIfNoEntry: false }) !== undefined) remove(Buffer.from(path));
}
