import { perDimension } from '../../src/core/dimension.ts';
import type { ExecutorObservations } from '../../src/core/observation.ts';
import type { Receipt, ReceiptRequirement } from '../../src/core/receipt.ts';
import { deriveObservations } from '../../src/evidence/index.ts';
import { HOST_SCOPES } from './capabilities.ts';
import { PROXY_SCOPE } from './proxy.host.ts';

/**
 * Nothing of the command is read back here, so no level rises: what the plan calls cooperative stays unproven too. The one exception is a
 * proxy of ours, of which it can be read that it listens.
 */
export function hostObservations(requirements: readonly ReceiptRequirement[], receipts: readonly Receipt[]): ExecutorObservations {
  const scopes = perDimension((dimension) => (dimension === 'network' && requirements.length > 0 ? PROXY_SCOPE : HOST_SCOPES[dimension]));
  return { contract: 1, executor: 'host', dimensions: deriveObservations(requirements, receipts, scopes), requirements, receipts };
}
