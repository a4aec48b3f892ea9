import { canonicalAddress, coversBlock, formatAddress, readBlock, type Block } from '../policy/cidr.ts';

/** Where synthetic addresses come from. */
export interface SyntheticPools {
  /** IPv4 block. */
  readonly v4: string;
  /** IPv6 block. */
  readonly v6: string;
}

/** Benchmarking addresses, which nothing on the internet has: RFC 2544 and RFC 5180. */
export const SYNTHETIC_POOLS: SyntheticPools = { v4: '198.18.0.0/15', v6: '2001:2::/48' };

/** Addresses at the beginning of each pool that no name gets: the interface, the resolver. */
export const RESERVED_ADDRESSES = 256;

/** Addresses that stand for names. The n-th name has the n-th address of each pool: unique, and the same for the whole run. */
export interface SyntheticAddresses {
  /** Both addresses of a canonical name, given out at the first call; undefined: `most` names have some already. */
  addressesOf(name: string): { readonly v4: string; readonly v6: string } | undefined;
  /** The name that an address stands for. Undefined: it stands for none. */
  nameOf(address: string): string | undefined;
  /** True for every address of the pools, whether a name has it or not. */
  covers(address: string): boolean;
  readonly size: number;
}

/** `most`: names that can have an address, at most what the IPv4 pool holds. */
export function createSyntheticAddresses(pools: SyntheticPools, most: number): SyntheticAddresses {
  const v4 = poolOf(pools.v4, 32);
  const v6 = poolOf(pools.v6, 128);
  const limit = Math.min(most, 2 ** (32 - v4.prefix) - RESERVED_ADDRESSES - 1);
  const indexes = new Map<string, number>();
  const names: string[] = [];
  const indexOf = (pool: Block, block: Block): number => Number(block.address - pool.address) - RESERVED_ADDRESSES;
  return {
    addressesOf: (name) => {
      let index = indexes.get(name);
      if (index === undefined) {
        if (names.length >= limit) return undefined;
        index = names.length;
        names.push(name);
        indexes.set(name, index);
      }
      const offset = BigInt(index + RESERVED_ADDRESSES);
      return { v4: formatAddress({ ...v4, address: v4.address + offset }), v6: formatAddress({ ...v6, address: v6.address + offset }) };
    },
    nameOf: (text) => {
      const block = single(text);
      const pool = block === undefined ? undefined : [v4, v6].find((one) => coversBlock(one, block));
      return block === undefined || pool === undefined ? undefined : names[indexOf(pool, block)];
    },
    covers: (text) => {
      const block = single(text);
      return block !== undefined && (coversBlock(v4, block) || coversBlock(v6, block));
    },
    get size() {
      return names.length;
    },
  };
}

function single(text: string): Block | undefined {
  const address = canonicalAddress(text);
  return address === undefined ? undefined : readBlock(address);
}

function poolOf(text: string, bits: 32 | 128): Block {
  const block = readBlock(text);
  if (block?.bits !== bits || bits - block.prefix < 10) {
    throw new RangeError(`expected an IPv${bits === 32 ? 4 : 6} block of at least 1024 addresses, got ${text}`);
  }
  return block;
}
