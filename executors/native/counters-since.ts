import type { DestinationCounters } from '../../src/core/bundle.ts';

const keyOf = ({ host, port }: DestinationCounters): string => `${host} ${String(port)}`;
const less = (after: number | null, before: number | null): number | null => (after === null || before === null ? after : after - before);

/**
 * What was counted after `before` was taken: the attempts of probes are no doing of the command. A destination that nothing was added to
 * is left out. Times are those of the whole, as there is one first and one last.
 */
export function countersSince(before: readonly DestinationCounters[], after: readonly DestinationCounters[]): readonly DestinationCounters[] {
  const earlier = new Map(before.map((one) => [keyOf(one), one]));
  return after.flatMap((one) => {
    const base = earlier.get(keyOf(one));
    if (base === undefined) return [one];
    const rest: DestinationCounters = {
      ...one,
      allowed: less(one.allowed, base.allowed),
      denied: less(one.denied, base.denied),
      failed: less(one.failed, base.failed),
      bytesOut: less(one.bytesOut, base.bytesOut),
      bytesIn: less(one.bytesIn, base.bytesIn),
    };
    const counted = [rest.allowed, rest.denied, rest.failed].some((value) => value !== null && value > 0);
    return counted ? [rest] : [];
  });
}
