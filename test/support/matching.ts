import { expect } from 'vitest';

/** A string with `part` in it, inside an expected value. */
export function containing(part: string): unknown {
  return expect.stringContaining(part);
}

/** A string that fits `pattern`, inside an expected value. */
export function matching(pattern: RegExp): unknown {
  return expect.stringMatching(pattern);
}
