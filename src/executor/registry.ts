import { ProofrunError, messageOf } from '../core/errors.ts';
import type { ExecutorCapabilities, ExecutorId } from '../core/plan.ts';
import type { Executor } from './executor.ts';

/** An executor that is known by name; its code is loaded when somebody first asks for it. */
export interface ExecutorEntry {
  readonly id: ExecutorId;
  readonly load: () => Promise<Executor>;
  /** Probing it asks somebody else (a daemon, another machine): done only when a job needs it or no other executor can plan it. Absent: no. */
  readonly costly?: boolean;
}

/** The executors of one process. */
export interface ExecutorRegistry {
  /** In the order in which they were given. */
  readonly ids: readonly ExecutorId[];
  /** Rejects with ERR_EXECUTOR_UNAVAILABLE for an id that nobody gave, or whose code can't be loaded. */
  executor(id: ExecutorId): Promise<Executor>;
  /** Probes once and remembers the answer, the reason of an unavailable one included. Rejects only for an id that nobody gave. */
  capabilities(id: ExecutorId): Promise<ExecutorCapabilities>;
  /** Of those whose probe asks nobody else. */
  near(): Promise<readonly ExecutorCapabilities[]>;
  /** Of all, probed at the same time, in the order of ids. */
  all(): Promise<readonly ExecutorCapabilities[]>;
  /** The next question probes again: after a remedy was applied. */
  forget(): void;
}

/** Makes a registry for a caller of this kind. No backend is imported here. Throws RangeError when two entries have one id. */
export function createRegistry(entries: readonly ExecutorEntry[], user: ExecutorCapabilities['user']): ExecutorRegistry {
  const byId = new Map(entries.map((entry) => [entry.id, entry]));
  if (byId.size !== entries.length) throw new RangeError('two executors have the same id');
  const loaded = new Map<ExecutorId, Promise<Executor>>();
  const probed = new Map<ExecutorId, Promise<ExecutorCapabilities>>();

  const executor = (id: ExecutorId): Promise<Executor> => {
    const entry = byId.get(id);
    if (entry === undefined) return Promise.reject(unknown(id, [...byId.keys()]));
    const known = loaded.get(id) ?? load(entry);
    loaded.set(id, known);
    return known;
  };
  const capabilities = (id: ExecutorId): Promise<ExecutorCapabilities> => {
    if (!byId.has(id)) return Promise.reject(unknown(id, [...byId.keys()]));
    const known = probed.get(id) ?? probe(id, executor, user);
    probed.set(id, known);
    return known;
  };
  return {
    ids: entries.map(({ id }) => id),
    executor,
    capabilities,
    near: () => Promise.all(entries.filter(({ costly }) => costly !== true).map(({ id }) => capabilities(id))),
    all: () => Promise.all(entries.map(({ id }) => capabilities(id))),
    forget: () => {
      loaded.clear();
      probed.clear();
    },
  };
}

async function load(entry: ExecutorEntry): Promise<Executor> {
  let executor: Executor;
  try {
    executor = await entry.load();
  } catch (error) {
    throw new ProofrunError('ERR_EXECUTOR_UNAVAILABLE', { message: `the ${entry.id} executor can not be loaded: ${messageOf(error)}`, cause: error });
  }
  if (executor.id !== entry.id) {
    throw new ProofrunError('ERR_EXECUTOR_UNAVAILABLE', { message: `the executor loaded as ${entry.id} calls itself ${executor.id}` });
  }
  return executor;
}

/** A probe must not fail; one that does is an executor that isn't available, for that reason. */
async function probe(id: ExecutorId, executor: (id: ExecutorId) => Promise<Executor>, user: ExecutorCapabilities['user']): Promise<ExecutorCapabilities> {
  try {
    return await (await executor(id)).probe();
  } catch (error) {
    return {
      executor: id,
      available: false,
      reason: messageOf(error),
      version: 'unknown',
      user,
      controls: [],
      network: { public: false, deny: false, selective: false },
      subprocess: { contained: false, listed: false, none: false },
      limits: { memory: false, cpus: false, processes: false, swap: false },
      cooperative: [],
    };
  }
}

function unknown(id: string, known: readonly string[]): ProofrunError {
  return new ProofrunError('ERR_EXECUTOR_UNAVAILABLE', { message: `no executor is called ${id}; there are ${known.join(', ') || 'none'}` });
}
