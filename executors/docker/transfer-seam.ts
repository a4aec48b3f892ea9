import type { StagedRoot } from '../../src/core/change.ts';
import type { Engine } from './connect.host.ts';

/**
 * Moves a workspace to an engine that can't see this machine's files, and the changes back. What comes down becomes entries of the
 * root's upper directory, so that the change set, conflicts and apply are the same as with an overlay.
 */
export interface WorkspaceTransfer {
  /** Fills a directory of a created container with the staged root, less the hidden paths. */
  upload(target: TransferTarget, root: StagedRoot, hidden: readonly string[]): Promise<void>;
  /** Writes what the job changed below that directory into `root.upper`. What comes down is hostile. */
  download(target: TransferTarget, root: StagedRoot): Promise<void>;
}

export interface TransferTarget {
  readonly engine: Engine;
  readonly containerId: string;
  /** Absolute path in the container. */
  readonly path: string;
  readonly uid: number;
  readonly gid: number;
}
