import { chmodSync, chownSync, copyFileSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { NativeLab, type LabRun } from './native-lab.host.ts';
import { compileC } from './native-programs.host.ts';
import { asUser, spawnAs, type TestUser } from './users.host.ts';
import type { NativeReport } from '../fixtures/native-driver.ts';

let program: string | undefined;

/** test/fixtures/escape/attack.c, compiled once a test file. Everybody may run it. */
export function attackProgram(): string {
  program ??= compileC('attack', [resolve(import.meta.dirname, '../fixtures/escape/attack.c')], ['-static']);
  return program;
}

/** What an attempt printed: `open /proc/1/mem` to `EACCES`. The last word of each line is its outcome. */
export function outcomes(text: string): Readonly<Record<string, string>> {
  return Object.fromEntries(
    text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => [line.slice(0, line.lastIndexOf(' ')), line.slice(line.lastIndexOf(' ') + 1)]),
  );
}

/** A lab whose workspace holds the attack. */
export class AttackLab extends NativeLab {
  constructor(user: TestUser, owner: TestUser = user) {
    super(user, owner);
    this.write('attack', readFileSync(attackProgram()), 0o755);
  }

  /** Inside. Throws when the sandbox could not be built or the command did not run. */
  async inside(words: readonly string[], options: LabRun = {}): Promise<NativeReport> {
    const report = await this.run([join(this.workspace, 'attack'), ...words], options);
    if (report.error !== undefined) throw new Error(`${report.error.code}: ${report.error.message}`);
    if (report.decision?.kind !== 'release') throw new Error(`the gate refused: ${report.unmet.join(', ')}`);
    return report;
  }

  /** The control arm: the same program as the same user, without a sandbox. `through` is an argv prefix that becomes the user by itself. */
  async outside(words: readonly string[], through: readonly string[] = []): Promise<string> {
    const [first = '', ...rest] = [...through, attackProgram(), ...words];
    const ended = await asUser(through.length > 0 ? { ...this.user, uid: process.getuid?.() ?? 0 } : this.user, [first, ...rest], { cwd: this.workspace });
    if (ended.code !== 0) throw new Error(`attack ${words.join(' ')}: ${String(ended.code ?? ended.signal)} ${ended.stderr}`);
    return ended.stdout;
  }

  /** A process of the user's, outside, that waits to be attacked: idle, or listening at some names. The caller ends it. */
  async victim(names: readonly string[] = []): Promise<{ readonly pid: number; end(): void; alive(): boolean }> {
    const words = names.length === 0 ? ['hold'] : ['listen', ...names];
    const child = spawnAs(this.user, [attackProgram(), ...words], { cwd: '/', stdio: ['ignore', 'pipe', 'ignore'] });
    await new Promise<void>((ready, reject) => {
      child.stdout?.once('data', () => ready());
      child.once('error', reject);
      child.once('exit', (code) => reject(new Error(`the victim ended with ${String(code)}`)));
    });
    return { pid: child.pid ?? -1, end: () => child.kill('SIGKILL'), alive: () => child.exitCode === null && child.signalCode === null };
  }
}

/** Puts the attack into a directory as a file of the user's. */
export function plantAttack(user: TestUser, directory: string): string {
  const path = join(directory, 'attack');
  copyFileSync(attackProgram(), path);
  chmodSync(path, 0o755);
  chownSync(path, user.uid, user.gid);
  return path;
}
