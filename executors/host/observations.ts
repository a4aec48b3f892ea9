import { perDimension } from '../../src/core/dimension.ts';
import type { ExecutorObservations } from '../../src/core/observation.ts';
import { deriveObservations } from '../../src/evidence/index.ts';
import { HOST_SCOPES } from './capabilities.ts';

/** Nothing is read back here, so nothing is owed and no level rises: what the plan calls cooperative stays unproven too. */
export function hostObservations(): ExecutorObservations {
  const scopes = perDimension((dimension) => HOST_SCOPES[dimension]);
  return { contract: 1, executor: 'host', dimensions: deriveObservations([], [], scopes), requirements: [], receipts: [] };
}
