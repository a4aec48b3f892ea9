import { paxRecord, paxTime } from './pax.ts';
import { BLOCK, encodeHeader, fitsHeader, fitsOctal, paddingOf, type TarHeader } from './tar-header.ts';
import type { BytePath } from '../../../src/stage/byte-path.ts';

/** Two blocks of zeros. */
export const END_OF_ARCHIVE = Buffer.alloc(2 * BLOCK);

const ASCII = /^[ -~]*$/;

/**
 * The header blocks of one entry: what doesn't fit a plain header, or isn't ASCII, or is finer than a second, goes into an extended header
 * before it, with the bytes as they are.
 */
export function encodeEntry(header: TarHeader): Buffer {
  const records: Buffer[] = [];
  if (!fitsHeader(header.name) || !ASCII.test(header.name)) records.push(paxRecord('path', header.name));
  if (header.link.length > 100 || !ASCII.test(header.link)) records.push(paxRecord('linkpath', header.link));
  if (!fitsOctal(header.size, 12)) records.push(paxRecord('size', String(header.size)));
  if (!fitsOctal(header.uid, 8)) records.push(paxRecord('uid', String(header.uid)));
  if (!fitsOctal(header.gid, 8)) records.push(paxRecord('gid', String(header.gid)));
  if (header.mtime.nanoseconds !== 0 || !fitsOctal(header.mtime.seconds, 12)) records.push(paxRecord('mtime', paxTime(header.mtime)));
  if (records.length === 0) return encodeHeader(header);
  const body = Buffer.concat(records);
  const extended = encodeHeader({ ...header, type: 'pax', name: 'PaxHeader' as BytePath, link: '' as BytePath, mode: 0o600, size: body.length });
  return Buffer.concat([extended, body, Buffer.alloc(paddingOf(body.length)), encodeHeader(header)]);
}
