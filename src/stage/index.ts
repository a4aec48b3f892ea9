export { prepareStage, findMatches, dropStage, type PreparedStage } from './stage-directory.host.ts';
export { readChangeSet, type ReadStageInput, type StageView } from './change-set.host.ts';
export { diffText } from './unified-diff.host.ts';
export { selectChanges, type Selection } from './select.ts';
export { applyChanges, type ApplyInput, type ApplyResult } from './apply.host.ts';
export { forgetKept, recoverApply, type ApplyBatch, type ApplyRecord, type RecoveredApply } from './apply-settle.host.ts';
export { undoChanges, type UndoResult } from './undo.host.ts';
export { keptRuns } from './ledger.host.ts';
export type { ApplyProgress, SessionOptions } from './apply-session.host.ts';
