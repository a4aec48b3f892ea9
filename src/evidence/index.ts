export { OWED, type OwedReceipt } from './controls.ts';
export { decideGate, deriveObservations, requireReceipts, type ExpectedReceipt } from './observe.ts';
