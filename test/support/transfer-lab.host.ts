import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, writeFileSync, chownSync } from 'node:fs';
import { join } from 'node:path';
import type { Download, TransferLimits } from '../../executors/docker/transfer/index.ts';
import { StageLab, type Outcome } from './stage-lab.host.ts';
import { asUser, type TestUser } from './users.host.ts';

export interface Uploaded {
  readonly entries: number;
  readonly leftOut: readonly { readonly path: string; readonly why: string }[];
}

/** GNU tar's form of what an engine packs: POSIX headers, extended ones only where they are needed. */
const PACK = 'tar --format=pax --pax-option=delete=atime,delete=ctime --numeric-owner -cf';

/** A stage whose job works elsewhere: GNU tar unpacks what was sent and packs what comes back, in the place of an engine. */
export class TransferLab extends StageLab {
  get sentArchive(): string {
    return join(this.base, 'up.tar');
  }

  upload(limits: Partial<TransferLimits> = {}): Promise<Outcome<Uploaded>> {
    return this.request<Uploaded>('upload', { archive: this.sentArchive, limits });
  }

  /** Stages an archive that came back. */
  download(archive: string, limits: Partial<TransferLimits> = {}): Promise<Outcome<Download>> {
    return this.request<Download>('download', { archive, limits });
  }

  /** The same, of bytes. */
  async downloadBytes(bytes: Uint8Array, limits: Partial<TransferLimits> = {}): Promise<Outcome<Download>> {
    const archive = join(this.base, 'down-bytes.tar');
    writeFileSync(archive, bytes, { mode: 0o644 });
    return this.download(archive, limits);
  }

  private async sh(script: string): Promise<string> {
    const run = await asUser(this.user, ['sh', '-ec', `umask 022; ${script}`], { cwd: this.base });
    if (run.code !== 0) throw new Error(`the script failed (${run.code ?? run.signal}): ${run.stderr}`);
    return run.stdout;
  }

  /** Sends the workspace, runs a script where it was unpacked, and stages what comes back. */
  async remote(script: string): Promise<Download> {
    const sent = await this.upload();
    if (sent.value === undefined) throw new Error(`the upload was refused: ${JSON.stringify(sent.error)}`);
    await this.sh(`mkdir -p far/ws; tar -xpf up.tar -C far/ws; cd far/ws; ${script}`);
    // By this process, where it can: an engine reads what its owner may not.
    execFileSync('sh', ['-ec', `${PACK} down.tar -C far ws; chmod 644 down.tar`], { cwd: this.base });
    const back = await this.download(join(this.base, 'down.tar'));
    if (back.value === undefined) throw new Error(`the download was refused: ${JSON.stringify(back.error)}`);
    return back.value;
  }

  /** What lies beside the upper directory and isn't part of a stage. */
  leftBeside(): readonly string[] {
    return readdirSync(join(this.upper, '..')).filter((name) => !['upper', 'work', 'preimage'].includes(name));
  }

  static async away(user: TestUser, script: string, hidden: readonly string[] = []): Promise<TransferLab> {
    const lab = new TransferLab(user);
    await lab.here(script);
    lab.hidden = [...hidden];
    await lab.prepare();
    return lab;
  }

  /** A directory of the user's beside the workspace. */
  directory(name: string): string {
    const path = join(this.base, name);
    mkdirSync(path, { recursive: true });
    chownSync(path, this.user.uid, this.user.gid);
    return path;
  }
}
