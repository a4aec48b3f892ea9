import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { StagedRoot } from '../../../src/core/change.ts';
import { messageOf, ProofrunError } from '../../../src/core/errors.ts';
import type { OverlayMarkers } from '../../../src/stage/change-set.host.ts';
import type { EngineClient } from '../engine-client.ts';
import { downloadTree } from './download.host.ts';
import type { TransferLimits } from './limits.ts';
import { formatManifest, parseManifest, type Manifest } from './manifest.ts';
import { leftOutWarnings } from './notes.ts';
import { uploadTree } from './upload.host.ts';

/** A directory of a container that stands for a staged root. */
export interface TransferSite {
  readonly client: EngineClient;
  readonly container: string;
  /** Absolute path in the container; it exists, and what lies there can be written: a volume when the container's root is read-only. */
  readonly path: string;
}

export interface TransferNotes {
  /** For a person: what was left out, and what didn't come along. */
  readonly warnings: readonly string[];
}

/**
 * Moves staged roots to an engine that can't see this machine's files, and what the job changed back. What was sent is recorded beside the
 * root's layer, so that the changes of an owner that died can still be fetched.
 */
export interface WorkspaceTransfer {
  /** Fills the directory with the root, less the hidden paths (absolute). Before the container is started. */
  upload(site: TransferSite, root: StagedRoot, hidden: readonly string[]): Promise<TransferNotes>;
  /** Makes the root's upper directory, empty until now, what an overlay's would be. After the container has ended. What comes is hostile. */
  download(site: TransferSite, root: StagedRoot): Promise<TransferNotes>;
  /** Something was sent of which nothing came back yet. */
  owed(root: StagedRoot): boolean;
}

export interface WorkspaceTransferOptions {
  /** Absolute path of proofrun-shim. */
  readonly shim: string;
  readonly markers: OverlayMarkers;
  readonly limits?: TransferLimits;
}

function recordOf(root: StagedRoot): string {
  return join(dirname(root.upper), 'sent');
}

function readRecord(root: StagedRoot): Manifest {
  let bytes: Buffer;
  try {
    bytes = readFileSync(recordOf(root));
  } catch (cause) {
    throw new ProofrunError('ERR_STAGE_LAYER', {
      message: `the record of what was sent to the engine can't be read: ${messageOf(cause)}`,
      hint: 'without it nothing can be told from what was there before: job drop RUN',
      cause,
    });
  }
  return parseManifest(bytes);
}

/** See uploadTree and downloadTree for what is thrown. */
export function createWorkspaceTransfer({ shim, markers, limits }: WorkspaceTransferOptions): WorkspaceTransfer {
  const bounded = limits === undefined ? {} : { limits };
  return {
    owed: (root) => existsSync(recordOf(root)) && readdirSync(root.upper).length === 0,
    upload: async ({ client, container, path }, root, hidden) => {
      const up = uploadTree({ root: root.root, hidden, under: path.slice(1), ...bounded });
      await client.putTree(container, path, up.stream);
      const sent = up.manifest();
      writeFileSync(recordOf(root), formatManifest(sent), { mode: 0o600, flag: 'wx' });
      return {
        warnings: leftOutWarnings(
          'not sent to the engine, so the job could not see it',
          [...sent.leftOut].map(([at, why]) => ({ path: at, why })),
        ),
      };
    },
    download: async ({ client, container, path }, root) => {
      const sent = readRecord(root);
      const stream = await client.getArchive(container, path);
      const { leftOut, xattrs } = await downloadTree({ shim, stream, sent, root, markers, ...bounded });
      return {
        warnings: [
          ...leftOutWarnings('not staged', leftOut),
          ...(xattrs.length === 0
            ? []
            : [`extended attributes that the job set don't come back from an engine that can't see the workspace: ${xattrs.join(', ')}`]),
        ],
      };
    },
  };
}
