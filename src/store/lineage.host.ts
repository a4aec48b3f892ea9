import { parseRunId, type RunId } from '../core/ids.ts';
import type { Connection } from './connection.host.ts';
import { unreadableStore } from './sqlite-errors.ts';

/** What a run started from: the staged result of another run, or a checkpoint of one. */
export interface Lineage {
  readonly kind: 'on' | 'fork';
  readonly parent: RunId;
  /** Of a fork. */
  readonly checkpoint: string | null;
}

export interface StoredLineage extends Lineage {
  readonly runId: RunId;
}

/** Inside the transaction that inserts the run. */
export function insertLineage(connection: Connection, runId: RunId, lineage: Lineage): void {
  connection.run('INSERT INTO lineage (run_id, parent, kind, checkpoint) VALUES (?, ?, ?, ?)', runId, lineage.parent, lineage.kind, lineage.checkpoint);
}

export function listLineage(connection: Connection): readonly StoredLineage[] {
  return connection.all('SELECT run_id, parent, kind, checkpoint FROM lineage ORDER BY run_id').map((value) => {
    const row: Readonly<Record<string, unknown>> = typeof value === 'object' && value !== null ? { ...value } : {};
    const runId = typeof row.run_id === 'string' ? parseRunId(row.run_id) : undefined;
    const parent = typeof row.parent === 'string' ? parseRunId(row.parent) : undefined;
    if (runId === undefined || parent === undefined || (row.kind !== 'on' && row.kind !== 'fork')) {
      throw unreadableStore(connection.file, 'a line of descent is damaged', 'job ls');
    }
    return { runId, parent, kind: row.kind, checkpoint: typeof row.checkpoint === 'string' ? row.checkpoint : null };
  });
}
