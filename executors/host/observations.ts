import { perDimension } from '../../src/core/dimension.ts';
import type { ExecutorObservations } from '../../src/core/observation.ts';
import { HOST_SCOPES } from './capabilities.ts';

/** Nothing is enforced here and nothing was read back; the environment was projected, which the command can go around. */
export function hostObservations(): ExecutorObservations {
  return {
    contract: 1,
    executor: 'host',
    dimensions: perDimension((dimension) => ({
      level: dimension === 'credentials' ? 'cooperative' : 'unenforced',
      scope: HOST_SCOPES[dimension],
      outcomes: [],
    })),
    requirements: [],
    receipts: [],
  };
}
