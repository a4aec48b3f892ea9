import { createHash } from 'node:crypto';
import { lstatSync, mkdirSync, readFileSync, readdirSync, readlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { DEFAULT_LIMITS, downloadTree, uploadTree, type Download, type Manifest, type TransferLimits } from '../../executors/docker/transfer/index.ts';
import type { StagedRoot } from '../../src/core/change.ts';
import { ProofrunError } from '../../src/core/errors.ts';
import { prepareStage } from '../../src/stage/index.ts';
import { SHIM } from './stage-lab.host.ts';

/** A workspace, a stage over it and canaries around them, in this process. */
export interface DownloadLab {
  readonly base: string;
  readonly workspace: string;
  readonly canary: string;
  readonly root: StagedRoot;
  readonly sent: Manifest;
  /** The error of a download of these bytes, or what it gave. */
  stage(bytes: Buffer, options?: { readonly limits?: Partial<TransferLimits>; readonly chunk?: number }): Promise<ProofrunError | Download>;
  /** Everything beneath the base but what is in the upper directory, with contents: must be the same before and after. */
  surroundings(): Readonly<Record<string, string>>;
}

export async function drained(stream: Readable): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of stream as AsyncIterable<Buffer>) parts.push(part);
  return Buffer.concat(parts);
}

/** Every entry below a directory: type, mode, owner, content or target, and time if that is asked for. */
export function facts(top: string, options: { readonly without?: string; readonly times?: boolean } = {}): Readonly<Record<string, string>> {
  const found: Record<string, string> = {};
  const visit = (directory: Buffer, above: string): void => {
    for (const entry of readdirSync(directory, { withFileTypes: true, encoding: 'buffer' })) {
      const path = Buffer.concat([directory, Buffer.from('/'), entry.name]);
      const key = `${above}${entry.name.toString('latin1')}`;
      const stat = lstatSync(path, { bigint: true });
      const content = stat.isFile()
        ? createHash('sha256').update(readFileSync(path)).digest('hex')
        : stat.isSymbolicLink()
          ? readlinkSync(path, { encoding: 'buffer' }).toString('latin1')
          : '';
      const time = options.times === true ? ` ${stat.mtimeNs}` : '';
      found[key] = `${(Number(stat.mode) & (stat.isSymbolicLink() ? 0o170000 : 0o177777)).toString(8)} ${stat.uid}:${stat.gid} ${content}${time}`;
      if (stat.isDirectory() && path.toString('latin1') !== options.without) visit(path, `${key}/`);
    }
  };
  visit(Buffer.from(top, 'latin1'), '');
  return found;
}

/** Makes one below an empty directory. `fill` gets the workspace. */
export async function downloadLab(base: string, fill?: (workspace: string) => void): Promise<DownloadLab> {
  const [workspace, canary] = [join(base, 'workspace'), join(base, 'canary')];
  mkdirSync(workspace);
  mkdirSync(canary);
  writeFileSync(join(canary, 'file'), 'canary');
  writeFileSync(join(workspace, 'old'), 'old');
  fill?.(workspace);
  const { roots } = await prepareStage({ shim: SHIM, directory: join(base, 'stage'), roots: [workspace], patterns: [] });
  const [root] = roots;
  if (root === undefined) throw new Error('no root');
  const up = uploadTree({ root: workspace, hidden: [] });
  await drained(up.stream);
  const sent = up.manifest();
  return {
    base,
    workspace,
    canary,
    root,
    sent,
    stage: async (bytes, { limits = {}, chunk = 65_536 } = {}) => {
      const stream = Readable.from(
        (function* () {
          for (let at = 0; at < bytes.length; at += chunk) yield bytes.subarray(at, at + chunk);
        })(),
        { objectMode: false },
      );
      try {
        return await downloadTree({
          shim: SHIM,
          stream,
          sent,
          root,
          markers: process.geteuid?.() === 0 ? 'trusted' : 'user',
          limits: { ...DEFAULT_LIMITS, ...limits },
        });
      } catch (error) {
        if (error instanceof ProofrunError) return error;
        throw error;
      }
    },
    surroundings: () => facts(base, { without: root.upper }),
  };
}
