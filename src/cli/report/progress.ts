import type { CliContext } from '../context.ts';

export interface Progress {
  /** Work that is done so far, and how much there is. Before the first call nobody knows. */
  readonly update: (done: number, total: number) => void;
  /** Takes the line away. Idempotent. */
  readonly stop: () => void;
}

/** Before this, nothing is drawn: most work is over sooner. */
const PATIENCE_MS = 1000;

const NONE: Progress = { update: () => undefined, stop: () => undefined };

/** Between two events of one piece of work. */
const EVENT_MS = 250;

/**
 * A line on stderr for work that lasts longer than a second; nothing without a terminal. With --json the same as events, one JSON object a
 * line on stderr: `{"event":"progress","work":"applying","done":1200,"total":10000}`. The library is loaded only when the second is over.
 * The caller stops it, also when the work fails.
 */
export function startProgress(label: string, context: CliContext, { json }: { readonly json: boolean }): Progress {
  if (json) return progressEvents(label, context);
  if (!context.isTerminal.stderr) return NONE;
  let state: { done: number; total: number } = { done: 0, total: 0 };
  let draw: { readonly update: () => void; readonly stop: () => void } | undefined;
  let stopped = false;
  const timer = setTimeout(() => {
    void import('cli-progress').then(({ default: { SingleBar } }) => {
      if (stopped) return;
      const bar = new SingleBar({
        // Work of unknown size shows how long it has lasted.
        format: state.total > 0 ? `  ${label} {bar} {value}/{total}` : `  ${label} {duration} s`,
        stream: context.stderr,
        clearOnComplete: true,
        hideCursor: false,
        linewrap: false,
        noTTYOutput: false,
        forceRedraw: true,
        fps: 4,
        barsize: 24,
      });
      bar.start(Math.max(1, state.total), state.done);
      draw = {
        update: () => {
          bar.setTotal(Math.max(1, state.total));
          bar.update(state.done);
        },
        stop: () => bar.stop(),
      };
    });
  }, PATIENCE_MS);
  timer.unref();
  return {
    update: (done, total) => {
      state = { done, total };
      draw?.update();
    },
    stop: () => {
      stopped = true;
      clearTimeout(timer);
      draw?.stop();
    },
  };
}

function progressEvents(work: string, context: CliContext): Progress {
  const began = context.clock();
  let last = began + PATIENCE_MS - EVENT_MS;
  return {
    update: (done, total) => {
      const now = context.clock();
      if (now - last < EVENT_MS) return;
      last = now;
      context.stderr.write(`${JSON.stringify({ event: 'progress', work, done, total })}\n`);
    },
    stop: () => undefined,
  };
}
