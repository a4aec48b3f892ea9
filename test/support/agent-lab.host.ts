import { chmodSync, chownSync, copyFileSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { nodeFor } from './job-command.host.ts';
import { jobLab, type JobLab } from './job-lab.host.ts';
import type { TestUser } from './users.host.ts';

export interface BundleLoginLine {
  readonly path: string;
  readonly outcome: string;
  readonly detail: string | null;
  readonly kept: string | null;
}

/** A lab with a stand-in for an agent's command outside the workspace, and a login of it in the home. */
export interface AgentLab extends JobLab {
  readonly login: string;
  readonly path: string;
  /** Flags of a job in which the agent does these things. */
  agent(...acts: readonly string[]): readonly string[];
  loginText(): string;
  token(): string;
  /** A file of the home; directories are made. */
  writeHome(path: string, text: string, mode?: number): string;
  logins(selector?: string): Promise<readonly BundleLoginLine[]>;
}

export const AUTH = {
  OPENAI_API_KEY: null,
  tokens: { id_token: 'id', access_token: 'access', refresh_token: 'first', account_id: 'account' },
  last_refresh: '2026-12-01T09:00:00.000Z',
};

export function agentLab(user: TestUser): AgentLab {
  const lab = jobLab(user);
  const own = (path: string, mode: number): void => {
    chownSync(path, user.uid, user.gid);
    chmodSync(path, mode);
  };
  const writeHome = (path: string, text: string, mode = 0o600): string => {
    const full = join(lab.home, path);
    let at = lab.home;
    for (const part of path.split('/').slice(0, -1)) {
      at = join(at, part);
      mkdirSync(at, { recursive: true });
      own(at, 0o700);
    }
    writeFileSync(full, text);
    own(full, mode);
    return full;
  };
  const bin = join(lab.base, 'bin');
  mkdirSync(bin);
  copyFileSync(resolve(import.meta.dirname, '../fixtures/agent.mjs'), join(bin, 'agent.mjs'));
  const node = nodeFor(user);
  writeFileSync(join(bin, 'codex'), `#!/bin/sh\nexec ${node} ${bin}/agent.mjs "$@"\n`);
  own(bin, 0o755);
  own(join(bin, 'agent.mjs'), 0o644);
  own(join(bin, 'codex'), 0o755);
  const login = writeHome('.codex/auth.json', JSON.stringify(AUTH, null, 2));
  const path = [bin, dirname(node), '/usr/bin', '/bin'].join(':');
  return {
    ...lab,
    login,
    path,
    job: (args, options = {}) => lab.job(args, { ...options, env: { PATH: path, ...options.env } }),
    agent: (...acts) => ['run', '--safe', '--executor', 'native', '--', 'codex', ...acts],
    loginText: () => readFileSync(login, 'utf8'),
    token: () => (JSON.parse(readFileSync(login, 'utf8')) as typeof AUTH).tokens.refresh_token,
    writeHome,
    logins: async (selector) => {
      const ended = await lab.job(['status', '--review', '--json', ...(selector === undefined ? [] : [selector])]);
      const { bundle } = JSON.parse(ended.stdout) as { bundle: { credentials: { logins?: readonly BundleLoginLine[] } } };
      return bundle.credentials.logins ?? [];
    },
  };
}

export function modeOf(path: string): number {
  return statSync(path).mode & 0o777;
}
