export { prepareStage, findMatches, dropStage, mountsBelow, type PrepareStageInput, type PreparedStage } from './stage-directory.host.ts';
export { readChangeSet, type OverlayMarkers, type ReadStageInput, type StageView } from './change-set.host.ts';
export { diffText, type DiffOptions, type StageDiff } from './unified-diff.host.ts';
export { selectChanges, conflictLine, nearPaths, type Selection, type SelectedChanges } from './select.ts';
export { applyChanges, recoverApply, type ApplyInput, type ApplyResult, type RecordApplied, type RecoverInput, type RecoveredApply } from './apply.host.ts';
export { compareForReview, reviewRank, totalsOf } from './review-order.ts';
export type { StagedEntry } from './change-set.ts';
