import type { PullProgress } from '../../src/executor/executor.ts';

interface Layer {
  readonly now: number;
  readonly total: number;
}

export interface PullState extends PullProgress {
  readonly layers: ReadonlyMap<string, Layer>;
}

/** More layers than any image has: a stream of events must not grow without end. */
const MOST_LAYERS = 1024;

export function noProgress(reference: string): PullState {
  return { reference, status: 'asking the registry', bytes: 0, totalBytes: 0, layers: new Map() };
}

/** One event of the engine's stream. What has no form that is known changes nothing. Pure. */
export function foldProgress(state: PullState, event: unknown): PullState {
  if (typeof event !== 'object' || event === null) return state;
  const { status, id, progressDetail } = event as { readonly status?: unknown; readonly id?: unknown; readonly progressDetail?: unknown };
  const words = typeof status === 'string' ? status : state.status;
  if (typeof id !== 'string' || typeof progressDetail !== 'object' || progressDetail === null || status !== 'Downloading') return { ...state, status: words };
  const { current, total } = progressDetail as { readonly current?: unknown; readonly total?: unknown };
  if (typeof current !== 'number' || typeof total !== 'number' || !(current >= 0) || !(total >= current)) return { ...state, status: words };
  if (!state.layers.has(id) && state.layers.size >= MOST_LAYERS) return { ...state, status: words };
  const layers = new Map(state.layers).set(id, { now: current, total });
  let bytes = 0;
  let totalBytes = 0;
  for (const layer of layers.values()) {
    bytes += layer.now;
    totalBytes += layer.total;
  }
  return { reference: state.reference, status: words, bytes, totalBytes, layers };
}
