import { userInfo } from 'node:os';

/** The caller by uid, with the home that the user database gives; in a container that names none for this uid, what HOME says, else no home. */
export function ownUser(env: NodeJS.ProcessEnv = process.env): { readonly uid: number; readonly homedir: string } {
  try {
    const { uid, homedir } = userInfo();
    return { uid, homedir };
  } catch {
    return { uid: process.geteuid?.() ?? -1, homedir: env['HOME'] ?? '' };
  }
}
