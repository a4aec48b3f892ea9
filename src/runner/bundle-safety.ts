import type { BundlePermissions, BundlePlan, DimensionSafety, ReceiptCount, SafetySummary } from '../core/bundle.ts';
import { DIMENSIONS, perDimension, type Dimension } from '../core/dimension.ts';
import type { DimensionObservation, ExecutorObservations } from '../core/observation.ts';
import type { Refusal } from '../core/plan.ts';

/** What the summary is derived from. */
export interface SafetySources {
  readonly permissions: BundlePermissions;
  /** null when the job was refused. */
  readonly plan: BundlePlan | null;
  readonly refusal: Refusal | null;
  readonly executorObservations: ExecutorObservations;
}

/** Pure and total: what each dimension was to be, what was observed, and whether the mode's promise was kept. */
export function summariseSafety(sources: SafetySources): SafetySummary {
  const { plan, refusal, executorObservations } = sources;
  const needed = plan?.needed ?? refusal?.rows.map((row) => row.dimension) ?? [];
  const asked = askedDimensions(sources.permissions);
  const dimensions = perDimension((dimension): DimensionSafety => {
    const observation = executorObservations.dimensions[dimension];
    return {
      requested: asked.has(dimension),
      needed: needed.includes(dimension),
      waived: plan?.waived.includes(dimension) ?? false,
      planned: plan?.dimensions[dimension].level ?? 'unsupported',
      observed: observation.level,
      installed: countReceipts(observation, 'fact'),
      probes: countReceipts(observation, 'probe'),
    };
  });
  const which = (test: (safety: DimensionSafety) => boolean): readonly Dimension[] => DIMENSIONS.filter((dimension) => test(dimensions[dimension]));
  const wanted = (safety: DimensionSafety): boolean => safety.requested || safety.needed;
  const missing = which((safety) => safety.needed && safety.observed !== 'enforced');
  return {
    dimensions,
    enforced: which((safety) => safety.observed === 'enforced'),
    cooperative: which((safety) => safety.observed === 'cooperative'),
    unenforced: which((safety) => safety.observed === 'unenforced' && wanted(safety)),
    notAsked: which((safety) => safety.observed === 'unenforced' && !wanted(safety)),
    missing,
    promise: plan === null ? 'refused' : needed.length === 0 ? 'none' : missing.length === 0 ? 'kept' : 'broken',
  };
}

function askedDimensions(permissions: BundlePermissions): ReadonlySet<Dimension> {
  const requested: readonly (readonly [Dimension, boolean])[] = [
    ['file_read', permissions.fileRead.requested],
    ['file_write', permissions.fileWrite.requested],
    ['network', permissions.network.requested],
    ['subprocess', permissions.subprocess.requested],
    ['credentials', permissions.credentials.requested],
    ['models', permissions.models.requested],
    ['tools', permissions.tools.requested],
    ['resources', permissions.resources.requested],
  ];
  return new Set(requested.filter(([, asked]) => asked).map(([dimension]) => dimension));
}

function countReceipts(observation: DimensionObservation, kind: 'fact' | 'probe'): ReceiptCount {
  const owed = observation.outcomes.filter((outcome) => outcome.kind === kind);
  return { matched: owed.filter((outcome) => outcome.status === 'matched').length, owed: owed.length };
}
