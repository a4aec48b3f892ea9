import type { Ending } from '../core/run.ts';

/**
 * Why a run ended: the first cause that is settled stays, whatever follows from it. A command that is killed because its time was over
 * ends by timeout, not by SIGKILL.
 */
export interface FirstCause {
  /** Resolves once, with the first ending. */
  readonly settled: Promise<Ending>;
  /** True when this ending became the cause. */
  settle(ending: Ending): boolean;
  /** Undefined: nothing has ended the run yet. */
  current(): Ending | undefined;
}

export function firstCause(): FirstCause {
  let cause: Ending | undefined;
  let announce: (ending: Ending) => void = () => undefined;
  const settled = new Promise<Ending>((resolve) => {
    announce = resolve;
  });
  return {
    settled,
    current: () => cause,
    settle: (ending) => {
      if (cause !== undefined) return false;
      cause = ending;
      announce(ending);
      return true;
    },
  };
}
