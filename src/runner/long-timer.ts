/** The longest delay of setTimeout(): a longer one would fire at once. */
const LONGEST_MS = 2 ** 31 - 1;

/** Calls `done` after `ms` milliseconds, however many. Doesn't keep the process alive. Returns what cancels it. */
export function startTimer(ms: number, done: () => void): () => void {
  let timer: NodeJS.Timeout;
  const arm = (left: number): void => {
    timer = setTimeout(
      () => {
        if (left > LONGEST_MS) arm(left - LONGEST_MS);
        else done();
      },
      Math.min(left, LONGEST_MS),
    );
    timer.unref();
  };
  arm(ms);
  return () => {
    clearTimeout(timer);
  };
}
