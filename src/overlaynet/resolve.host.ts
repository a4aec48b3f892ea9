import { lookup, Resolver } from 'node:dns/promises';
import { canonicalAddress } from '../policy/cidr.ts';
import { errnoOf } from '../core/errors.ts';

/** Addresses of a name in the order to try them, canonical; or why there are none. */
export type Resolution =
  { readonly kind: 'ok'; readonly addresses: readonly string[] } | { readonly kind: 'failed'; readonly reason: string; readonly limit: boolean };

export interface UpstreamResolver {
  /** Never rejects. One question upstream for any number of callers at once, and none while an answer is fresh. */
  resolve(name: string): Promise<Resolution>;
  /** Asks anew at the next call: no address of the answer could be connected to. */
  forget(name: string): void;
  close(): void;
}

export interface UpstreamResolverOptions {
  /** Servers to ask, `address` or `address:port`. Undefined: as the host resolves names (its hosts file included). */
  readonly nameservers?: readonly string[] | undefined;
  /** Names that may be asked for in a run. */
  readonly most: number;
  readonly nowMs: () => number;
  readonly timeoutMs: number;
}

const FRESH_MS = 60_000;
const FAILED_MS = 3_000;
/** getaddrinfo blocks a thread of a pool of four, which files use as well. */
const AT_ONCE = 2;

/** Asks upstream, for admitted names only: the caller sees to that. */
export function createUpstreamResolver(options: UpstreamResolverOptions): UpstreamResolver {
  const { nameservers, nowMs } = options;
  const known = new Map<string, { readonly answer: Promise<Resolution>; untilMs: number }>();
  const resolver = nameservers === undefined ? undefined : new Resolver({ timeout: Math.min(3000, options.timeoutMs), tries: 2 });
  resolver?.setServers([...(nameservers ?? [])]);
  const slots = createSlots(AT_ONCE);

  const ask = async (name: string): Promise<Resolution> => {
    try {
      const found =
        resolver === undefined
          ? (await slots(() => lookup(name, { all: true, order: 'verbatim' }))).map(({ address }) => address)
          : await askServers(resolver, name);
      const addresses = [...new Set(found.flatMap((text) => canonicalAddress(text) ?? []))];
      return addresses.length === 0 ? { kind: 'failed', reason: `${name} has no address`, limit: false } : { kind: 'ok', addresses };
    } catch (error) {
      return { kind: 'failed', reason: `${name} can't be resolved: ${errnoOf(error) ?? 'unknown'}`, limit: false };
    }
  };

  return {
    resolve: (name) => {
      const cached = known.get(name);
      if (cached !== undefined && nowMs() < cached.untilMs) return cached.answer;
      if (cached === undefined && known.size >= options.most) {
        return Promise.resolve({ kind: 'failed', reason: `limit of ${String(options.most)} resolved names`, limit: true });
      }
      const entry = { answer: ask(name), untilMs: Number.POSITIVE_INFINITY };
      known.set(name, entry);
      void entry.answer.then(({ kind }) => (entry.untilMs = nowMs() + (kind === 'ok' ? FRESH_MS : FAILED_MS)));
      return entry.answer;
    },
    forget: (name) => {
      const entry = known.get(name);
      if (entry !== undefined && entry.untilMs !== Number.POSITIVE_INFINITY) entry.untilMs = 0;
    },
    close: () => resolver?.cancel(),
  };
}

/** Both families; one that fails doesn't hide the other. */
async function askServers(resolver: Resolver, name: string): Promise<readonly string[]> {
  const [v6, v4] = await Promise.allSettled([resolver.resolve6(name), resolver.resolve4(name)]);
  const found = [v6, v4].flatMap((one) => (one.status === 'fulfilled' ? one.value : []));
  if (found.length === 0) throw v4.status === 'rejected' ? v4.reason : new Error('no address');
  return found;
}

function createSlots(most: number): <T>(work: () => Promise<T>) => Promise<T> {
  let free = most;
  const waiting: (() => void)[] = [];
  return async (work) => {
    if (free === 0) await new Promise<void>((resolve) => waiting.push(resolve));
    else free -= 1;
    try {
      return await work();
    } finally {
      const next = waiting.shift();
      if (next === undefined) free += 1;
      else next();
    }
  };
}
