import { bytePath, type BytePath } from '../../../src/stage/byte-path.ts';
import type { Moment } from '../../../src/stage/entry-facts.ts';
import { TarFault } from './tar-header.ts';

/** What an extended header (POSIX.1-2017, pax) says of the entry after it; absent: the header block's own counts. */
export interface PaxFacts {
  readonly path?: BytePath;
  readonly link?: BytePath;
  readonly size?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly mtime?: Moment;
  /** Names of extended attributes (SCHILY.xattr.*); their values aren't taken. */
  readonly xattrs: readonly string[];
}

/** One record: its own length in decimal, a space, key=value, a newline. Values are bytes. */
export function paxRecord(key: string, value: string): Buffer {
  const rest = ` ${key}=${value}\n`;
  let length = rest.length;
  for (let digits = String(length).length; ; digits = String(length).length) {
    const whole = rest.length + digits;
    if (String(whole).length === digits) {
      length = whole;
      break;
    }
    length = whole;
  }
  return Buffer.from(`${length}${rest}`, 'latin1');
}

/** Seconds with a fraction, as pax writes times; exact to the nanosecond, also before 1970. */
export function paxTime({ seconds, nanoseconds }: Moment): string {
  if (nanoseconds === 0) return String(seconds);
  // A moment counts its nanoseconds upwards; the text counts away from zero.
  const [whole, part] = seconds < 0 ? [seconds + 1, 1_000_000_000 - nanoseconds] : [seconds, nanoseconds];
  const sign = seconds < 0 && whole === 0 ? '-' : '';
  return `${sign}${whole}.${String(part).padStart(9, '0').replace(/0+$/, '')}`;
}

/** The inverse; more than nine digits of fraction are cut. Undefined: not such a text. */
export function parsePaxTime(value: string): Moment | undefined {
  const parts = /^(-?)([0-9]{1,15})(?:\.([0-9]{1,100}))?$/.exec(value);
  if (parts === null) return undefined;
  const [, sign = '', whole = '', fraction = ''] = parts;
  const nanoseconds = Number(fraction.slice(0, 9).padEnd(9, '0'));
  const seconds = Number(whole);
  if (sign === '') return { seconds, nanoseconds };
  return nanoseconds === 0 ? { seconds: seconds === 0 ? 0 : -seconds, nanoseconds } : { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds };
}

function whole(key: string, value: string, most: number): number {
  const number = /^[0-9]{1,16}$/.test(value) ? Number(value) : NaN;
  if (!(number <= most)) throw new TarFault(`extended header: ${key} is not a whole number up to ${most}`);
  return number;
}

const MOST_RECORDS = 1024;
const MOST_ID = 2 ** 32 - 2;

/** Reads the content of one extended header. Strict: lengths that don't add up, repeated keys, NUL in names and sparse files are faults. */
export function parsePax(bytes: Buffer): PaxFacts {
  const values = new Map<string, string>();
  for (let at = 0; at < bytes.length;) {
    const space = bytes.indexOf(0x20, at);
    const digits = space < 0 ? '' : bytes.toString('latin1', at, Math.min(space, at + 9));
    const length = /^[1-9][0-9]{0,7}$/.test(digits) ? Number(digits) : 0;
    const end = at + length;
    if (length === 0 || end > bytes.length || bytes[end - 1] !== 0x0a) throw new TarFault('extended header: a record whose length is wrong');
    const record = bytes.toString('latin1', space + 1, end - 1);
    const equals = record.indexOf('=');
    if (end - 1 < space + 1 || equals <= 0) throw new TarFault('extended header: a record without a key');
    const key = record.slice(0, equals);
    if (values.has(key)) throw new TarFault(`extended header: ${key.slice(0, 40)} twice`);
    if (values.size >= MOST_RECORDS) throw new TarFault(`extended header: more than ${MOST_RECORDS} records`);
    values.set(key, record.slice(equals + 1));
    at = end;
  }
  const xattrs: string[] = [];
  for (const key of values.keys()) {
    if (key.startsWith('GNU.sparse.')) throw new TarFault('a GNU sparse file');
    if (key.startsWith('SCHILY.xattr.')) xattrs.push(key.slice('SCHILY.xattr.'.length));
  }
  const name = (key: string): BytePath | undefined => {
    const value = values.get(key);
    if (value?.includes('\0') === true) throw new TarFault(`extended header: NUL in ${key}`);
    return value === undefined ? undefined : bytePath(Buffer.from(value, 'latin1'));
  };
  const [path, link, size, uid, gid, time] = [name('path'), name('linkpath'), values.get('size'), values.get('uid'), values.get('gid'), values.get('mtime')];
  const mtime = time === undefined ? undefined : parsePaxTime(time);
  if (time !== undefined && mtime === undefined) throw new TarFault('extended header: mtime is not a time');
  return {
    ...(path === undefined ? {} : { path }),
    ...(link === undefined ? {} : { link }),
    ...(size === undefined ? {} : { size: whole('size', size, Number.MAX_SAFE_INTEGER) }),
    ...(uid === undefined ? {} : { uid: whole('uid', uid, MOST_ID) }),
    ...(gid === undefined ? {} : { gid: whole('gid', gid, MOST_ID) }),
    ...(mtime === undefined ? {} : { mtime }),
    xattrs,
  };
}
