import type { Dimension } from '../core/dimension.ts';
import type { ResourceLimits } from '../core/job.ts';
import type { ExecutorObservations, GateDecision } from '../core/observation.ts';
import type { Ending, RunState } from '../core/run.ts';

/** The state of a run that is over. `started`: the command was released. */
export function stateOf(ending: Ending, started: boolean): Extract<RunState, 'refused' | 'finished' | 'failed' | 'interrupted'> {
  switch (ending.kind) {
    case 'refused':
    case 'interrupted':
      return ending.kind;
    case 'evidence_missing':
    case 'control_lost':
    case 'launch_failed':
      return 'failed';
    default:
      return started ? 'finished' : 'failed';
  }
}

/** What a closed gate says: per dimension the receipts that are missing or differ. */
export function gateWords(decision: Extract<GateDecision, { kind: 'refuse' }>): string {
  const byDimension = new Map<Dimension, string[]>();
  for (const { dimension, outcome } of decision.missing) {
    const words = byDimension.get(dimension) ?? [];
    words.push(`${outcome.id} ${outcome.status === 'missing' ? 'is missing' : 'differs'}`);
    byDimension.set(dimension, words);
  }
  return [...byDimension]
    .map(([dimension, words]) => `${dimension}: ${words.slice(0, 4).join(', ')}${words.length > 4 ? ` and ${words.length - 4} more` : ''}`)
    .join('; ');
}

/** Needed dimensions that the observations of the end don't show as enforced. */
export function lostDimensions(needed: readonly Dimension[], observations: ExecutorObservations): readonly Dimension[] {
  return needed.filter((dimension) => observations.dimensions[dimension].level !== 'enforced');
}

/**
 * A limit explains a signal: the kernel's own signals for its limits (setrlimit(2)), and SIGKILL when the memory of the tree ran out. Only
 * where that limit was set, and for memory only where it was seen to be hit.
 */
export function limitBehind(ending: Ending, limits: ResourceLimits, hits: readonly string[]): Ending {
  if (ending.kind !== 'signal') return ending;
  if (ending.signal === 'SIGXCPU' && limits.cpuTimeMs !== undefined) return { kind: 'limit', limit: 'cpu_time' };
  if (ending.signal === 'SIGXFSZ' && limits.fileSizeBytes !== undefined) return { kind: 'limit', limit: 'file_size' };
  if (ending.signal === 'SIGKILL' && hits.includes('memory')) return { kind: 'limit', limit: 'memory' };
  if (ending.signal === 'SIGKILL' && hits.includes('cpu_time')) return { kind: 'limit', limit: 'cpu_time' };
  return ending;
}
