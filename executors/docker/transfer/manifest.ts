import { ProofrunError } from '../../../src/core/errors.ts';
import { bytePath, type BytePath } from '../../../src/stage/byte-path.ts';
import type { Moment } from '../../../src/stage/entry-facts.ts';

export type ManifestType = 'file' | 'directory' | 'symlink' | 'fifo';

/** One thing as it was sent. */
export interface ManifestEntry {
  readonly type: ManifestType;
  /** Permission bits with setuid, setgid and sticky. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Bytes of a file; else 0. */
  readonly size: number;
  readonly mtime: Moment;
  /** Of a file's content, lower-case hex; else empty. */
  readonly sha256: string;
  /** Target of a symlink; else empty. */
  readonly target: BytePath;
}

/** What an upload sent: the state that a download is compared with. */
export interface Manifest {
  /** By path beneath the root; the root itself has the empty path. */
  readonly entries: ReadonlyMap<BytePath, ManifestEntry>;
  /** What was there and wasn't sent, with the reason in words: sockets, devices, what can't be read, other filesystems. */
  readonly leftOut: ReadonlyMap<BytePath, string>;
}

const MAGIC = 'PRSENT1';
const TYPES: readonly ManifestType[] = ['file', 'directory', 'symlink', 'fifo'];
const FIELDS = 10;

/** As bytes: fields ended by NUL, ten a record; the last record says how many there were, so that a torn file is never taken for a small one. */
export function formatManifest(manifest: Manifest): Buffer {
  const fields: (string | number)[] = [MAGIC];
  for (const [path, entry] of manifest.entries) {
    const { type, mode, uid, gid, size, mtime, sha256, target } = entry;
    fields.push(type, path, mode, uid, gid, size, mtime.seconds, mtime.nanoseconds, sha256, target);
  }
  for (const [path, why] of manifest.leftOut) fields.push('left out', path, Buffer.from(why).toString('latin1'), '', '', '', '', '', '', '');
  fields.push('end', manifest.entries.size + manifest.leftOut.size, '');
  return Buffer.from(fields.join('\0'), 'latin1');
}

function damaged(what: string): ProofrunError {
  return new ProofrunError('ERR_STAGE_LAYER', { message: `the record of what was sent to the engine is damaged: ${what}`, hint: 'job drop RUN' });
}

/** The inverse. Throws ERR_STAGE_LAYER. */
export function parseManifest(bytes: Buffer): Manifest {
  const entries = new Map<BytePath, ManifestEntry>();
  const leftOut = new Map<BytePath, string>();
  let at = 0;
  const field = (): string => {
    const end = bytes.indexOf(0, at);
    if (end < 0) throw damaged('it ends too early');
    const text = bytes.toString('latin1', at, end);
    at = end + 1;
    return text;
  };
  const number = (): number => {
    const text = field();
    const value = /^-?[0-9]{1,16}$/.test(text) ? Number(text) : NaN;
    if (!Number.isSafeInteger(value)) throw damaged('a number is none');
    return value;
  };
  const path = (): BytePath => bytePath(Buffer.from(field(), 'latin1'));
  if (field() !== MAGIC) throw damaged('it does not begin as one');
  for (;;) {
    const tag = field();
    if (tag === 'end') {
      if (number() !== entries.size + leftOut.size || at !== bytes.length) throw damaged('its counts do not agree');
      return { entries, leftOut };
    }
    if (tag === 'left out') {
      const name = path();
      leftOut.set(name, Buffer.from(field(), 'latin1').toString());
      for (let skipped = 3; skipped < FIELDS; skipped += 1) field();
      continue;
    }
    const type = TYPES.find((known) => known === tag);
    if (type === undefined) throw damaged('an unknown type of entry');
    const name = path();
    const [mode, uid, gid, size] = [number(), number(), number(), number()];
    const mtime = { seconds: number(), nanoseconds: number() };
    entries.set(name, { type, mode, uid, gid, size, mtime, sha256: field(), target: path() });
  }
}
