export { openStore, type RunFilter, type Store } from './store.host.ts';
export type { NewRun } from './runs.host.ts';
export type { StoredRun } from './stored-run.ts';
export type { StoredEvent } from './event-chain.ts';
export type { Lineage, StoredLineage } from './lineage.host.ts';
export type { StoredCheckpoint } from './checkpoints.host.ts';
export type { NewApply, StoredApply } from './applies.host.ts';
export { currentOwner, livenessOf, type Owner } from './owner.host.ts';
