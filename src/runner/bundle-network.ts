import type { BundleNetwork, DestinationCounters } from '../core/bundle.ts';

type Summed = 'allowed' | 'denied' | 'failed' | 'bytesOut' | 'bytesIn';

/** Sum over all destinations; null when there is no list, or when one of the destinations didn't observe it. */
export function sumDestinations(destinations: readonly DestinationCounters[] | null, counter: Summed): number | null {
  if (destinations === null) return null;
  let sum = 0;
  for (const destination of destinations) {
    const value = destination[counter];
    if (value === null) return null;
    sum = Math.min(Number.MAX_SAFE_INTEGER, sum + value);
  }
  return sum;
}

/** The network part of a bundle from its destinations. `kernelRefused`, `gatewayRoutes`: null when not observed. */
export function describeNetwork(
  kind: BundleNetwork['kind'],
  destinations: readonly DestinationCounters[] | null,
  rest: { readonly kernelRefused: number | null; readonly gatewayRoutes: BundleNetwork['gatewayRoutes'] },
): BundleNetwork {
  return {
    kind,
    allowed: sumDestinations(destinations, 'allowed'),
    denied: sumDestinations(destinations, 'denied'),
    failed: sumDestinations(destinations, 'failed'),
    bytesOut: sumDestinations(destinations, 'bytesOut'),
    bytesIn: sumDestinations(destinations, 'bytesIn'),
    kernelRefused: rest.kernelRefused,
    destinations,
    gatewayRoutes: rest.gatewayRoutes,
  };
}
