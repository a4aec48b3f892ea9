import { bytePath, bytesOf, type BytePath } from '../../../src/stage/byte-path.ts';
import type { Moment } from '../../../src/stage/entry-facts.ts';

/** Header and padding unit of the format (POSIX.1-2017, pax: "ustar Interchange Format"). */
export const BLOCK = 512;

export type TarType = 'file' | 'link' | 'symlink' | 'char' | 'block' | 'directory' | 'fifo' | 'pax';

const FLAGS: Readonly<Record<TarType, string>> = { file: '0', link: '1', symlink: '2', char: '3', block: '4', directory: '5', fifo: '6', pax: 'x' };
const TYPES = new Map<number, TarType>(Object.entries(FLAGS).map(([type, flag]) => [flag.charCodeAt(0), type as TarType]));
TYPES.set(0, 'file');

/** One header block. Names are bytes, as everywhere in the stage. */
export interface TarHeader {
  readonly type: TarType;
  readonly name: BytePath;
  /** Permission bits with setuid, setgid and sticky. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Bytes of content that follow. */
  readonly size: number;
  readonly mtime: Moment;
  /** Target of a symlink, or the earlier name of a hard link. Empty for the rest. */
  readonly link: BytePath;
  readonly device: { readonly major: number; readonly minor: number };
}

/** A header that no writer of ours or of an engine makes. The reader adds where it was. */
export class TarFault extends Error {
  override readonly name = 'TarFault';
}

const NUL = '\0';

function text(block: Buffer, from: number, room: number): BytePath {
  const field = block.subarray(from, from + room);
  const end = field.indexOf(0);
  return bytePath(end < 0 ? field : field.subarray(0, end));
}

/**
 * A numeric field: octal digits, or base 256 as GNU tar and Go write it for numbers that don't fit. Negative numbers and those above 2^53
 * are refused: nothing that an engine packs needs them, and every lenient reading of them has been somebody's hole.
 */
function number(block: Buffer, from: number, room: number, what: string): number {
  const field = block.subarray(from, from + room);
  const first = field[0] ?? 0;
  if ((first & 0x80) !== 0) {
    if (first !== 0x80) throw new TarFault(`${what}: a negative number`);
    let value = 0n;
    for (const byte of field.subarray(1)) value = (value << 8n) | BigInt(byte);
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw new TarFault(`${what}: a number above 2^53`);
    return Number(value);
  }
  const digits = /^ *([0-7]*)[ \0]*$/.exec(field.toString('latin1'));
  if (digits === null) throw new TarFault(`${what}: not a number`);
  return digits[1] === '' ? 0 : parseInt(digits[1] ?? '', 8);
}

function checksum(block: Buffer): number {
  let sum = 8 * 32;
  for (let at = 0; at < 148; at += 1) sum += block[at] ?? 0;
  for (let at = 156; at < BLOCK; at += 1) sum += block[at] ?? 0;
  return sum;
}

export function isZeroBlock(block: Buffer): boolean {
  return block.equals(ZERO_BLOCK);
}
const ZERO_BLOCK = Buffer.alloc(BLOCK);

/** Reads one block that is not all zeros. Throws TarFault. */
export function decodeHeader(block: Buffer): TarHeader {
  if (number(block, 148, 8, 'checksum') !== checksum(block)) throw new TarFault('the checksum of a header is wrong');
  if (block.toString('latin1', 257, 265) !== `ustar${NUL}00`) throw new TarFault('a header that is not of the POSIX format');
  const flag = block[156] ?? 0;
  const type = TYPES.get(flag);
  if (type === undefined) throw new TarFault(`an entry of type ${JSON.stringify(String.fromCharCode(flag))}${SPECIAL[String.fromCharCode(flag)] ?? ''}`);
  const prefix = text(block, 345, 155);
  const name = text(block, 0, 100);
  return {
    type,
    name: (prefix === '' ? name : `${prefix}/${name}`) as BytePath,
    mode: number(block, 100, 8, 'mode') & 0o7777,
    uid: number(block, 108, 8, 'uid'),
    gid: number(block, 116, 8, 'gid'),
    size: number(block, 124, 12, 'size'),
    mtime: { seconds: number(block, 136, 12, 'mtime'), nanoseconds: 0 },
    link: text(block, 157, 100),
    device: { major: number(block, 329, 8, 'device'), minor: number(block, 337, 8, 'device') },
  };
}

/** What the types that are refused mean elsewhere. */
const SPECIAL: Readonly<Record<string, string>> = {
  S: ' (a GNU sparse file)',
  L: ' (a GNU long name)',
  K: ' (a GNU long link)',
  M: ' (the rest of another volume)',
  V: ' (a volume label)',
  D: ' (a GNU directory dump)',
  g: ' (a global extended header)',
  '7': ' (a contiguous file)',
};

const OCTAL_MODE = 0o7777777;

function octal(value: number, room: number): string {
  return value.toString(8).padStart(room - 1, '0');
}

/** Whether a number fits an octal field with its NUL. */
export function fitsOctal(value: number, room: number): boolean {
  return value >= 0 && value < 8 ** (room - 1);
}

/** Where a name may be cut so that it fits the two name fields; undefined: it doesn't fit. */
function splitName(name: BytePath): { readonly prefix: string; readonly rest: string } | undefined {
  if (name.length <= 100) return { prefix: '', rest: name };
  if (name.length > 256) return undefined;
  const slash = name.indexOf('/', name.length - 101);
  if (slash <= 0 || slash > 155 || slash === name.length - 1) return undefined;
  return { prefix: name.slice(0, slash), rest: name.slice(slash + 1) };
}

export function fitsHeader(name: BytePath): boolean {
  return splitName(name) !== undefined;
}

/** One header block. A field that doesn't fit is written as far as it can be: the extended header before it has the whole. */
export function encodeHeader(header: TarHeader): Buffer {
  const block = Buffer.alloc(BLOCK);
  const { prefix, rest } = splitName(header.name) ?? { prefix: '', rest: header.name.slice(0, 100) };
  block.write(rest, 0, 100, 'latin1');
  block.write(octal(header.mode & OCTAL_MODE, 8), 100, 'latin1');
  block.write(octal(fitsOctal(header.uid, 8) ? header.uid : 0, 8), 108, 'latin1');
  block.write(octal(fitsOctal(header.gid, 8) ? header.gid : 0, 8), 116, 'latin1');
  block.write(octal(fitsOctal(header.size, 12) ? header.size : 0, 12), 124, 'latin1');
  block.write(octal(fitsOctal(header.mtime.seconds, 12) ? header.mtime.seconds : 0, 12), 136, 'latin1');
  block.write(FLAGS[header.type], 156, 'latin1');
  bytesOf(header.link).copy(block, 157, 0, 100);
  block.write(`ustar${NUL}00`, 257, 'latin1');
  block.write(octal(header.device.major, 8), 329, 'latin1');
  block.write(octal(header.device.minor, 8), 337, 'latin1');
  block.write(prefix, 345, 155, 'latin1');
  block.write(`${checksum(block).toString(8).padStart(6, '0')}${NUL} `, 148, 'latin1');
  return block;
}

/** Bytes of zeros after content of this size. */
export function paddingOf(size: number): number {
  return (BLOCK - (size % BLOCK)) % BLOCK;
}
