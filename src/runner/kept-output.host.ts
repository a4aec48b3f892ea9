import { closeSync, constants, fstatSync, ftruncateSync, openSync, readdirSync, readSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { errnoOf, messageOf } from '../core/errors.ts';

/** The streams of a command that are kept. */
export type OutputStream = 'stdout' | 'stderr';
export const OUTPUT_STREAMS: readonly OutputStream[] = ['stdout', 'stderr'];

/** `resources.output_kept` when nobody asked for another: bytes of each stream. */
export const OUTPUT_KEPT_BYTES = 1024 * 1024;

/** What is on disk of one stream: exact bytes of its beginning and of its end. */
export interface KeptText {
  readonly stream: OutputStream;
  readonly head: Buffer;
  /** Empty unless bytes between head and tail are missing. */
  readonly tail: Buffer;
  readonly bytesTotal: number;
}

/**
 * Keeps the beginning and the end of one stream in a run's directory, at most `kept` bytes in the end, while it arrives.
 *
 *   NAME.log            the beginning: the first half, everything when it fits
 *   NAME.tail.OFFSET    a piece of the end, from that byte of the stream on; two of them at most
 *
 * Each half is `kept / 2`. Offsets are in the names, so that another process, and the reconciliation of a run whose owner died, know
 * what is missing. `finish` joins the pieces into NAME.log. Files are 0600 and made when the first byte comes. Nothing is synced: what
 * a crash of the machine takes from the page cache is output, not evidence.
 */
export interface KeptOutput {
  readonly stream: OutputStream;
  /** Bytes that arrived. */
  total(): number;
  /** Appends; never throws: a full disk ends the keeping and is told by `fault`. */
  write(chunk: Uint8Array): void;
  /** Why keeping ended early. */
  fault(): string | undefined;
  /** Joins the pieces and closes. Idempotent. */
  finish(): void;
}

const TAIL = /^(stdout|stderr)\.tail\.(\d{1,16})$/;
const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
const COPY_BYTES = 256 * 1024;

function logName(stream: OutputStream): string {
  return `${stream}.log`;
}

/** `kept` is in bytes; 0 keeps nothing and only counts. */
export function keepOutput(directory: string, stream: OutputStream, kept: number): KeptOutput {
  const half = Math.floor(kept / 2);
  const headBytes = kept - half;
  let total = 0;
  let open: { fd: number; room: number } | undefined;
  let tails: string[] = [];
  let failure: string | undefined;
  let finished = false;

  const place = (): { fd: number; room: number } => {
    if (open !== undefined && open.room > 0) return open;
    if (open !== undefined) closeSync(open.fd);
    if (total === 0) return (open = { fd: openSync(join(directory, logName(stream)), NEW_FILE, 0o600), room: headBytes });
    const name = `${stream}.tail.${total}`;
    open = { fd: openSync(join(directory, name), NEW_FILE, 0o600), room: half };
    tails.push(name);
    for (const old of tails.slice(0, -2)) rmSync(join(directory, old), { force: true });
    tails = tails.slice(-2);
    return open;
  };

  const store = (chunk: Uint8Array): void => {
    // Of a chunk that is longer than the end that is kept, the middle would only be written to be removed.
    const from = total + chunk.length - 2 * half;
    for (let at = 0; at < chunk.length;) {
      const skip = total >= headBytes && from > total ? Math.min(chunk.length - at, from - total) : 0;
      if (skip > 0) {
        at += skip;
        total += skip;
        if (open !== undefined) closeSync(open.fd);
        open = undefined;
        for (const old of tails) rmSync(join(directory, old), { force: true });
        tails = [];
        continue;
      }
      const { fd, room } = place();
      const wrote = writeSync(fd, chunk, at, Math.min(room, chunk.length - at));
      at += wrote;
      total += wrote;
      if (open !== undefined) open.room -= wrote;
    }
  };

  return {
    stream,
    total: () => total,
    fault: () => failure,
    write: (chunk) => {
      if (failure !== undefined || finished || half === 0) {
        total += chunk.length;
        return;
      }
      const before = total;
      try {
        store(chunk);
      } catch (error) {
        failure = `${stream} is kept only up to byte ${total}: ${messageOf(error)}`;
        total = before + chunk.length;
      }
    },
    finish: () => {
      if (finished) return;
      finished = true;
      if (open !== undefined) closeSync(open.fd);
      try {
        if (failure === undefined && tails.length > 0) joinTails(directory, stream, headBytes, half, total, tails);
      } catch (error) {
        failure = `the end of ${stream} is in separate files: ${messageOf(error)}`;
      }
    },
  };
}

/** After this NAME.log holds the beginning and exactly the last `half` bytes. */
function joinTails(directory: string, stream: OutputStream, headBytes: number, half: number, total: number, tails: readonly string[]): void {
  const log = openSync(join(directory, logName(stream)), constants.O_WRONLY | constants.O_APPEND | constants.O_NOFOLLOW);
  try {
    ftruncateSync(log, headBytes);
    for (const name of tails) {
      const start = Number(TAIL.exec(name)?.[2]);
      copyFrom(join(directory, name), Math.max(0, Math.max(headBytes, total - half) - start), log);
    }
  } finally {
    closeSync(log);
  }
  for (const name of tails) rmSync(join(directory, name), { force: true });
}

function copyFrom(path: string, offset: number, to: number): void {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const buffer = Buffer.allocUnsafe(COPY_BYTES);
    for (let at = offset; ;) {
      const got = readSync(fd, buffer, 0, buffer.length, at);
      if (got === 0) return;
      for (let done = 0; done < got;) done += writeSync(to, buffer, done, got - done);
      at += got;
    }
  } finally {
    closeSync(fd);
  }
}

/**
 * Reads what is kept of one stream, also while it is being written and after its writer died. `finishedTotal`: the bytes that arrived, as
 * the finished run recorded them; undefined: the pieces tell. Undefined when nothing was kept.
 */
export function readKept(directory: string, stream: OutputStream, kept: number, finishedTotal?: number): KeptText | undefined {
  const half = Math.floor(kept / 2);
  const log = readWhole(join(directory, logName(stream)));
  if (log === undefined) return undefined;
  if (finishedTotal !== undefined) {
    const missing = finishedTotal > log.length;
    const headBytes = missing ? Math.min(log.length, kept - half) : log.length;
    return { stream, head: log.subarray(0, headBytes), tail: log.subarray(headBytes), bytesTotal: finishedTotal };
  }
  const pieces = tailsOf(directory, stream);
  const bytes = Buffer.concat(pieces.map((piece) => piece.bytes));
  const start = pieces[0]?.start ?? log.length;
  const bytesTotal = start + bytes.length;
  // Without a gap the pieces continue the beginning.
  if (start <= log.length && bytesTotal <= kept) return { stream, head: Buffer.concat([log, bytes]), tail: Buffer.alloc(0), bytesTotal };
  const tail = bytes.subarray(Math.max(0, bytes.length - half));
  return { stream, head: log, tail, bytesTotal };
}

function tailsOf(directory: string, stream: OutputStream): readonly { readonly start: number; readonly bytes: Buffer }[] {
  const found: { start: number; bytes: Buffer }[] = [];
  for (const name of readdirSync(directory)) {
    const match = TAIL.exec(name);
    if (match?.[1] !== stream) continue;
    const bytes = readWhole(join(directory, name));
    if (bytes !== undefined) found.push({ start: Number(match[2]), bytes });
  }
  return found.sort((a, b) => a.start - b.start);
}

/** Undefined when it isn't there, or was removed meanwhile. */
function readWhole(path: string): Buffer | undefined {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
  try {
    const bytes = Buffer.allocUnsafe(fstatSync(fd).size);
    let done = 0;
    while (done < bytes.length) {
      const got = readSync(fd, bytes, done, bytes.length - done, done);
      if (got === 0) break;
      done += got;
    }
    return bytes.subarray(0, done);
  } finally {
    closeSync(fd);
  }
}
