import { canonicalAddress, coversBlock, formatAddress, readBlock, type Block } from './cidr.ts';

/** What an address that isn't a plain public one is. `never`: nothing can be connected to there, whatever a rule says. */
export interface SpecialRange {
  readonly block: string;
  readonly name: string;
  readonly never?: true;
}

/**
 * Addresses that a name must not lead to unless a rule says `private: true`: the IANA special-purpose registries of IPv4 and IPv6 (RFC 6890 and
 * its updates), multicast, and the addresses of cloud metadata services that lie outside them.
 */
const SPECIAL: readonly SpecialRange[] = [
  { block: '0.0.0.0/8', name: 'this host, RFC 1122', never: true },
  { block: '10.0.0.0/8', name: 'private, RFC 1918' },
  { block: '100.64.0.0/10', name: 'carrier-grade NAT, RFC 6598' },
  { block: '127.0.0.0/8', name: 'loopback' },
  { block: '169.254.0.0/16', name: 'link-local and cloud metadata' },
  { block: '172.16.0.0/12', name: 'private, RFC 1918' },
  { block: '192.0.0.0/24', name: 'protocol assignments, RFC 6890' },
  { block: '192.0.2.0/24', name: 'documentation' },
  { block: '192.88.99.0/24', name: '6to4 relay, RFC 7526' },
  { block: '192.168.0.0/16', name: 'private, RFC 1918' },
  { block: '198.18.0.0/15', name: 'benchmarking, and names of this job' },
  { block: '198.51.100.0/24', name: 'documentation' },
  { block: '203.0.113.0/24', name: 'documentation' },
  { block: '168.63.129.16/32', name: 'cloud metadata' },
  { block: '224.0.0.0/4', name: 'multicast', never: true },
  { block: '240.0.0.0/4', name: 'reserved, RFC 1112', never: true },
  { block: '::/128', name: 'this host', never: true },
  { block: '::1/128', name: 'loopback' },
  { block: '::/96', name: 'IPv4-compatible, RFC 4291' },
  { block: '::ffff:0:0:0/96', name: 'IPv4-translated, RFC 2765' },
  { block: '64:ff9b:1::/48', name: 'local NAT64, RFC 8215' },
  { block: '100::/64', name: 'discard only, RFC 6666' },
  { block: '2001::/23', name: 'protocol assignments, RFC 2928' },
  { block: '2001:db8::/32', name: 'documentation' },
  { block: '3fff::/20', name: 'documentation' },
  { block: '5f00::/16', name: 'segment routing, RFC 9602' },
  { block: 'fc00::/7', name: 'private, RFC 4193' },
  { block: 'fe80::/10', name: 'link-local' },
  { block: 'fec0::/10', name: 'site-local, RFC 3879' },
  { block: 'ff00::/8', name: 'multicast', never: true },
];

/** Read when the first address is asked about: a job without rules for hosts asks about none. */
const ranges = memo(() =>
  SPECIAL.flatMap((range) => {
    const block = readBlock(range.block);
    return block === undefined ? [] : [{ range, block }];
  }),
);

/** Prefixes whose addresses carry an IPv4 address that a translator or tunnel sends the packets on to: where it begins, in bits from the left. */
const carriers = memo(() =>
  (
    [
      ['64:ff9b::/96', 96],
      ['64:ff9b:1::/48', 96],
      ['2002::/16', 16],
      ['::/96', 96],
      ['::ffff:0:0:0/96', 96],
    ] as const
  ).flatMap(([text, at]) => {
    const block = readBlock(text);
    return block === undefined ? [] : [{ block, at }];
  }),
);

function memo<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => (made ??= make());
}

/**
 * Every address that connecting to this one may reach, canonical: itself, and the IPv4 address that it carries (NAT64, 6to4, IPv4-compatible,
 * ISATAP). A rule that denies one of them denies it. Empty for what is no address.
 */
export function addressForms(text: string): readonly string[] {
  const address = canonicalAddress(text);
  const block = address === undefined ? undefined : readBlock(address);
  if (address === undefined || block === undefined) return [];
  if (block.bits === 32) return [address];
  const carried = carriers()
    .filter((carrier) => coversBlock(carrier.block, block))
    .map(({ at }) => v4At(block, at));
  // ISATAP (RFC 5214): the interface identifier 0000:5efe or 0200:5efe, then the IPv4 address.
  if (((block.address >> 32n) & 0xfdffffffn) === 0x5efen) carried.push(v4At(block, 96));
  return [address, ...new Set(carried)];
}

function v4At(block: Block, at: number): string {
  return formatAddress({ bits: 32, prefix: 32, address: (block.address >> BigInt(96 - at)) & 0xffffffffn });
}

/**
 * What is special about an address, or about an IPv4 address that it carries; undefined for a plain public one. What is no address is
 * special: nothing may be dialled there.
 */
export function specialRange(text: string): SpecialRange | undefined {
  const forms = addressForms(text);
  if (forms.length === 0) return { block: text, name: 'no address', never: true };
  for (const form of forms) {
    const block = readBlock(form);
    const found = ranges()
      .filter((one) => block !== undefined && coversBlock(one.block, block))
      .sort((a, b) => b.block.prefix - a.block.prefix);
    const first = found.find(({ range }) => range.never) ?? found[0];
    if (first !== undefined) return first.range;
  }
  return undefined;
}

/** True when a block names special addresses and nothing else, so that writing it down is asking for them. */
export function isSpecialBlock(cidr: string): boolean {
  const block = readBlock(cidr);
  return block !== undefined && ranges().some((one) => coversBlock(one.block, block));
}
