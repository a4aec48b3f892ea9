import { isIPv4, isIPv6 } from 'node:net';

/** An address block as a number: `address` has its host bits cleared. */
export interface Block {
  readonly bits: 32 | 128;
  readonly address: bigint;
  readonly prefix: number;
}

/**
 * The canonical text of an address or a CIDR block: host bits cleared, IPv6 compressed in lower case (RFC 5952), a prefix always written.
 * Undefined for anything else: leading zeros, zones, short IPv4 forms.
 */
export function parseCidr(text: string): string | undefined {
  const block = readBlock(text);
  return block === undefined ? undefined : `${block.bits === 32 ? formatV4(block.address) : formatV6(block.address)}/${String(block.prefix)}`;
}

/** True when every address of `inner` lies in `outer`. Both canonical. Families never cover each other. */
export function coversCidr(outer: string, inner: string): boolean {
  const a = readBlock(outer);
  const b = readBlock(inner);
  return a !== undefined && b !== undefined && coversBlock(a, b);
}

/** `coversCidr` of blocks that were read before. */
export function coversBlock(outer: Block, inner: Block): boolean {
  return outer.bits === inner.bits && outer.prefix <= inner.prefix && masked(inner.address, outer) === outer.address;
}

/**
 * The canonical text of one address: no brackets, no prefix, no zone; an IPv4 address in IPv6 dress (`::ffff:10.0.0.1`, RFC 4291 2.5.5.2) is
 * that IPv4 address, since connecting to it is connecting to it. Undefined for anything else.
 */
export function canonicalAddress(text: string): string | undefined {
  if (text.includes('/')) return undefined;
  const block = readBlock(text);
  return block === undefined ? undefined : formatAddress(block);
}

/** The address that a block of full length stands for, or the first one of a wider block. */
export function formatAddress(block: Block): string {
  if (block.bits === 32) return formatV4(block.address);
  return block.address >> 32n === 0xffffn ? formatV4(block.address & 0xffffffffn) : formatV6(block.address);
}

/** The smaller of two blocks when one lies in the other: two blocks are nested or apart. */
export function overlapCidr(a: string, b: string): string | undefined {
  if (coversCidr(a, b)) return b;
  return coversCidr(b, a) ? a : undefined;
}

/** The 4 or 16 bytes of an address, in network order; undefined for what is no address. */
export function addressBytes(text: string): Uint8Array | undefined {
  const block = readBlock(text);
  if (block === undefined || block.prefix !== block.bits) return undefined;
  return Uint8Array.from({ length: block.bits / 8 }, (_, index) => Number((block.address >> BigInt(block.bits - 8 - index * 8)) & 0xffn));
}

/** Undefined for anything that `parseCidr` refuses. */
export function readBlock(text: string): Block | undefined {
  const slash = text.indexOf('/');
  const addressText = slash < 0 ? text : text.slice(0, slash);
  // Node's pattern for IPv6 takes milliseconds to compile: it is asked only about what has a colon.
  const bits = isIPv4(addressText) ? 32 : addressText.includes(':') && !addressText.includes('%') && isIPv6(addressText) ? 128 : undefined;
  if (bits === undefined) return undefined;
  const prefixText = slash < 0 ? String(bits) : text.slice(slash + 1);
  const prefix = /^(?:0|[1-9][0-9]{0,2})$/.test(prefixText) ? Number(prefixText) : Number.NaN;
  if (!(prefix <= bits)) return undefined;
  const address = bits === 32 ? readV4(addressText) : readV6(addressText);
  return { bits, prefix, address: masked(address, { bits, prefix }) };
}

function masked(address: bigint, block: Pick<Block, 'bits' | 'prefix'>): bigint {
  const hostBits = BigInt(block.bits - block.prefix);
  return (address >> hostBits) << hostBits;
}

function readV4(text: string): bigint {
  return text.split('.').reduce((address, part) => (address << 8n) | BigInt(part), 0n);
}

function readV6(text: string): bigint {
  // An IPv4 tail becomes two groups.
  const tail = /^(.*:)([0-9]+(?:\.[0-9]+){3})$/.exec(text);
  const v4 = tail === null ? 0n : readV4(tail[2] ?? '0.0.0.0');
  const hex = tail === null ? text : `${tail[1] ?? ''}${(v4 >> 16n).toString(16)}:${(v4 & 0xffffn).toString(16)}`;
  const [left = '', right] = hex.split('::');
  const groups = (part: string): string[] => (part === '' ? [] : part.split(':'));
  const before = groups(left);
  const after = groups(right ?? '');
  const middle = right === undefined ? [] : Array.from({ length: 8 - before.length - after.length }, () => '0');
  return [...before, ...middle, ...after].reduce((address, group) => (address << 16n) | BigInt(`0x${group}`), 0n);
}

function formatV4(address: bigint): string {
  return [24n, 16n, 8n, 0n].map((shift) => String((address >> shift) & 0xffn)).join('.');
}

function formatV6(address: bigint): string {
  const groups = Array.from({ length: 8 }, (_, index) => ((address >> BigInt(112 - index * 16)) & 0xffffn).toString(16));
  const runs = [
    ...groups
      .map((group) => (group === '0' ? '0' : '-'))
      .join('')
      .matchAll(/0{2,}/g),
  ];
  const longest = runs.reduce<RegExpExecArray | undefined>((best, run) => (best === undefined || run[0].length > best[0].length ? run : best), undefined);
  if (longest === undefined) return groups.join(':');
  return `${groups.slice(0, longest.index).join(':')}::${groups.slice(longest.index + longest[0].length).join(':')}`;
}
