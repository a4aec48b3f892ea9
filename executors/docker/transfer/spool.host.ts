import { closeSync, constants, ftruncateSync, mkdirSync, openSync, unlinkSync, write } from 'node:fs';
import { join } from 'node:path';
import type { KeptContent } from './layer-plan.ts';

const NEW = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
/** Zeros that are left as holes come in units of this size. */
const HOLE = 4096;
const GATHERED = 256 << 10;
const ZEROS = Buffer.alloc(HOLE);

/**
 * Where contents wait until the whole stream was read and found to be well-formed. Its files are called by numbers of ours: no name of the
 * stream takes part.
 */
export interface Spool {
  /** Adds a small content to the common file. */
  addPart(content: Buffer): Promise<KeptContent>;
  /** A file of its own, written in order; runs of zeros become holes. */
  addWhole(): SpooledFile;
  /** Numbers from here on are free. */
  readonly nextNumber: number;
  /** Writes what is gathered and closes everything. Idempotent. */
  close(): Promise<void>;
}

export interface SpooledFile {
  readonly content: KeptContent;
  append(bytes: Buffer): Promise<void>;
  finish(): Promise<void>;
  /** Takes it away again. */
  discard(): void;
}

/** Makes a new directory for a spool. Throws the system's error when it is there already. */
export function openSpool(directory: string): Spool {
  mkdirSync(directory, { mode: 0o700 });
  const parts = openSync(join(directory, 'parts'), NEW, 0o600);
  const open = new Set<number>([parts]);
  let number = 1;
  let offset = 0;
  let gathered: Buffer[] = [];
  let gatheredBytes = 0;
  let writtenParts = 0;

  const flush = async (): Promise<void> => {
    if (gatheredBytes === 0) return;
    const bytes = Buffer.concat(gathered, gatheredBytes);
    gathered = [];
    gatheredBytes = 0;
    await writeFully(parts, bytes, writtenParts);
    writtenParts += bytes.length;
  };

  return {
    get nextNumber() {
      return number;
    },
    addPart: async (content) => {
      const kept: KeptContent = { kind: 'part', offset, size: content.length };
      offset += content.length;
      gathered.push(content);
      gatheredBytes += content.length;
      if (gatheredBytes >= GATHERED) await flush();
      return kept;
    },
    addWhole: () => {
      const own = number;
      number += 1;
      const path = join(directory, String(own));
      const fd = openSync(path, NEW, 0o600);
      open.add(fd);
      /** Written or left as a hole: whole units. */
      let at = 0;
      /** The unit that isn't full yet. */
      let carry = Buffer.alloc(0);
      const close = (): void => {
        if (open.delete(fd)) closeSync(fd);
      };
      return {
        content: { kind: 'whole', number: own },
        append: async (more) => {
          const bytes = carry.length === 0 ? more : Buffer.concat([carry, more]);
          const whole = bytes.length - (bytes.length % HOLE);
          for (const [from, to] of dataRanges(bytes.subarray(0, whole))) await writeFully(fd, bytes.subarray(from, to), at + from);
          at += whole;
          carry = Buffer.from(bytes.subarray(whole));
        },
        finish: async () => {
          await writeFully(fd, carry, at);
          ftruncateSync(fd, at + carry.length);
          close();
        },
        discard: () => {
          close();
          unlinkSync(path);
        },
      };
    },
    close: async () => {
      try {
        if (open.has(parts)) await flush();
      } finally {
        for (const fd of open) closeSync(fd);
        open.clear();
      }
    },
  };
}

/** Parts of whole units that aren't zeros throughout. */
export function dataRanges(bytes: Buffer): readonly (readonly [number, number])[] {
  const found: [number, number][] = [];
  for (let from = 0; from < bytes.length; from += HOLE) {
    const to = from + HOLE;
    if (bytes[from] === 0 && bytes.compare(ZEROS, 0, HOLE, from, to) === 0) continue;
    const last = found.at(-1);
    if (last?.[1] === from) last[1] = to;
    else found.push([from, to]);
  }
  return found;
}

async function writeFully(fd: number, bytes: Buffer, position: number): Promise<void> {
  for (let done = 0; done < bytes.length;) {
    done += await new Promise<number>((resolve, reject) => {
      write(fd, bytes, done, bytes.length - done, position + done, (error, written) => (error === null ? resolve(written) : reject(error)));
    });
  }
}
