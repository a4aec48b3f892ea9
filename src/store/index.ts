export { openStore, type RunFilter, type Store } from './store.host.ts';
export type { StoreOptions, WritePoint } from './connection.host.ts';
export type { NewRun, RunChange, RunFields, StageChange } from './runs.host.ts';
export type { Lease, StagedSummary, StoredRun } from './stored-run.ts';
export type { ChainCheck, NewEvent, StoredEvent } from './event-chain.ts';
export type { AppliedPath, AppliedPathState, ApplyEnd, ApplyState, NewApply, StoredApply } from './applies.host.ts';
export { currentOwner, livenessOf, type Liveness, type Owner } from './owner.host.ts';
export { checkRunName } from './selector.ts';
