export { prepareStage, findMatches, dropStage, type PreparedStage } from './stage-directory.host.ts';
export { readChangeSet, type ReadStageInput, type StageView } from './change-set.host.ts';
export { diffText } from './unified-diff.host.ts';
export { selectChanges, type Selection } from './select.ts';
export { applyChanges, recoverApply, type ApplyResult, type RecordApplied, type RecoveredApply } from './apply.host.ts';
