import type { DestinationCounters, NetworkCounters } from '../../src/core/bundle.ts';

const keyOf = ({ host, port }: DestinationCounters): string => `${host} ${String(port)}`;
const less = (after: number | null, before: number | null): number | null => (after === null || before === null ? after : after - before);

/**
 * What was counted after `before` was taken: the attempts of probes are no doing of the command. A destination that nothing was added to
 * is left out. Times are those of the whole, as there is one first and one last; so is the most that was open at once.
 */
export function countersSince(before: NetworkCounters, after: NetworkCounters): NetworkCounters {
  const earlier = new Map(before.destinations.map((one) => [keyOf(one), one]));
  const destinations = after.destinations.flatMap((one) => {
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
  const lookups =
    after.lookups === null
      ? null
      : {
          queries: after.lookups.queries - (before.lookups?.queries ?? 0),
          names: after.lookups.names - (before.lookups?.names ?? 0),
          refused: after.lookups.refused - (before.lookups?.refused ?? 0),
          dropped: after.lookups.dropped - (before.lookups?.dropped ?? 0),
        };
  return { ...after, destinations, unlisted: after.unlisted - before.unlisted, lookups };
}
