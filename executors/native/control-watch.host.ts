/** One control, as it can be read while the command runs. */
export interface Look {
  /** For people: what is lost when it reads differently. */
  readonly what: string;
  /** What it was at the gate; undefined: nothing is known of it, and nothing is looked at. Asked once, when the command has run for a while. */
  readonly atGate: () => string | undefined;
  /** Throws, or undefined: it can't be told just now, as when the process has ended meanwhile. */
  readonly read: () => string | undefined;
}

const EVERY_MS = 1000;
/** A process that is being reaped leaves its group a moment before it is seen to be gone. */
const TIMES_DIFFERENT = 2;

/**
 * Looks again and again at controls that somebody outside can take away while the command runs: what was read at the gate has to stay. Calls
 * `lost` once, with what reads differently. Returns how to stop.
 */
export function watchControls(looks: readonly Look[], lost: (what: string) => void): () => void {
  if (looks.length === 0) return () => undefined;
  let watched: { readonly what: string; readonly read: Look['read']; readonly first: string | undefined; differed: number }[] | undefined;
  const timer = setInterval(() => {
    watched ??= looks.map(({ what, atGate, read }) => ({ what, read, first: atGate(), differed: 0 }));
    for (const one of watched) {
      const now = one.first === undefined ? undefined : quietly(one.read);
      one.differed = now === undefined || now === one.first ? 0 : one.differed + 1;
      if (one.differed < TIMES_DIFFERENT) continue;
      clearInterval(timer);
      lost(one.what);
      return;
    }
  }, EVERY_MS);
  timer.unref();
  return () => {
    clearInterval(timer);
  };
}

function quietly(read: () => string | undefined): string | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
