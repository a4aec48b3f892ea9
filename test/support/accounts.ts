import { readFileSync } from 'node:fs';

/** A user as whom commands of the tests run. */
export interface TestUser {
  readonly kind: 'root' | 'user';
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
  /** The home that the system gives the user. Tests that write there use a home of their own: `temporaryDirectory` of users.host.ts. */
  readonly home: string;
}

/** The ordinary user that scripts/setup.mjs adds when root runs the tests. */
const ORDINARY = 'proofrun-test';

/** The two kinds of user: how to be one here, or why that can't be done. */
export function users(): { readonly root: TestUser | string; readonly user: TestUser | string } {
  if (process.getuid?.() === 0) {
    return { root: account('root', 'root'), user: account('user', ORDINARY) };
  }
  const own = rows().find(([, , uid]) => Number(uid) === process.getuid?.());
  return {
    root: 'the tests run as an ordinary user, who cannot become root',
    user: own?.[0] === undefined ? 'the uid of this process has no row in /etc/passwd' : account('user', own[0]),
  };
}

function rows(): string[][] {
  return readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map((line) => line.split(':'));
}

function account(kind: TestUser['kind'], name: string): TestUser | string {
  const [, , uid, gid, , home] = rows().find(([first]) => first === name) ?? [];
  if (uid === undefined || gid === undefined || home === undefined) {
    return `there is no user ${name}; node scripts/setup.mjs --tests adds it`;
  }
  return { kind, name, uid: Number(uid), gid: Number(gid), home };
}
