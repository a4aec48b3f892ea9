import { chmodSync, mkdirSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach } from 'vitest';
import { createProofrun, type Proofrun, type ProofrunOptions } from '../../src/index.ts';
import { removeTree } from './users.host.ts';

/** The library over a state directory and a workspace of its own; both go after the test. */
export interface LibraryLab {
  readonly proofrun: Proofrun;
  readonly workspace: string;
  readonly state: string;
}

const open: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of open.splice(0)) await close();
});

export async function libraryLab(options: ProofrunOptions = {}): Promise<LibraryLab> {
  const base = mkdtempSync(join(tmpdir(), 'proofrun-library-'));
  const workspace = join(base, 'work');
  const home = join(base, 'home');
  for (const path of [workspace, home]) {
    mkdirSync(path);
    chmodSync(path, 0o700);
  }
  const state = join(base, 'state');
  const proofrun = await createProofrun({
    stateDirectory: state,
    configDirectory: join(base, 'config'),
    currentDirectory: workspace,
    env: { PATH: process.env['PATH'], HOME: home, LANG: 'C.UTF-8' },
    ...options,
  });
  open.push(async () => {
    await proofrun.close();
    removeTree(base);
  });
  return { proofrun, workspace, state };
}
