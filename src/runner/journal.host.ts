import { closeSync, constants, fchmodSync, fdatasyncSync, fstatSync, fsyncSync, openSync, readSync, writeSync, type Stats } from 'node:fs';
import { dirname } from 'node:path';
import { errnoOf, messageOf, ProofrunError } from '../core/errors.ts';
import { syncDirectory } from '../store/durable-file.host.ts';
import { formatEntry, isJournalLine, JournalThread, type JournalEntry, type JournalNotice } from './journal.ts';

/** An append-only file of JSON lines. Several runs may write to one; each line is one write. */
export interface Journal {
  /** On disk when this returns. ERR_JOURNAL when it can't be written, ERR_INTERNAL for a notice outside the vocabulary. */
  append(notice: JournalNotice): JournalEntry;
  /** Idempotent. */
  close(): void;
}

/** A longer first line isn't one of a journal. */
const MAX_LINE_BYTES = 64 * 1024;

/**
 * Opens or creates (0600) a journal. Refuses a symlink, anything but a regular file, and a file that isn't a journal: ERR_JOURNAL. A line that a
 * killed writer left without its end is blanked out in place (or gets its newline when it is whole), so that no other line is touched,
 * whoever writes meanwhile.
 */
export function openJournal(file: string): Journal {
  const descriptor = openFile(file);
  let open = true;
  try {
    const stat = fstatSync(descriptor);
    if (!stat.isFile()) throw refusal(file, 'is not a regular file');
    if (stat.size === 0) syncDirectory(dirname(file));
    else mendTail(file, descriptor, stat);
  } catch (error) {
    closeSync(descriptor);
    throw explain(file, error);
  }
  const thread = new JournalThread();
  return {
    append: (notice) => {
      const entry = thread.follow(notice);
      appendLine(file, descriptor, Buffer.from(formatEntry(entry), 'utf8'));
      return entry;
    },
    close: () => {
      if (open) closeSync(descriptor);
      open = false;
    },
  };
}

function openFile(file: string): number {
  try {
    return openSync(file, constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY, 0o600);
  } catch (error) {
    throw explain(file, error);
  }
}

function appendLine(file: string, descriptor: number, line: Buffer): void {
  try {
    const stat = fstatSync(descriptor);
    // Another run that writes here may have been killed in the middle of a line.
    if (stat.size > 0 && !lastByteIsNewline(descriptor, stat.size)) mendTail(file, descriptor, stat);
    // One write: the kernel appends it as a whole, whoever else writes. A short one (disk full) stays a torn tail for the next opening.
    const written = writeSync(descriptor, line);
    if (written !== line.length) throw refusal(file, `only ${written} of ${line.length} bytes of a line could be written`);
    fdatasyncSync(descriptor);
  } catch (error) {
    throw explain(file, error);
  }
}

function mendTail(file: string, descriptor: number, stat: Stats): void {
  if (lastByteIsNewline(descriptor, stat.size)) {
    checkFirstLine(file, descriptor, stat.size);
    return;
  }
  // Waits for a write that is under way: the kernel changes attributes under the lock that a write holds to its end.
  fchmodSync(descriptor, stat.mode & 0o7777);
  const { size } = fstatSync(descriptor);
  checkFirstLine(file, descriptor, size);
  if (lastByteIsNewline(descriptor, size)) return;
  const from = startOfLastLine(descriptor, size);
  const tail = readRange(descriptor, from, Math.min(size, from + MAX_LINE_BYTES));
  if (from + tail.length === size && isJournalLine(tail)) writeSync(descriptor, '\n');
  else blankOut(file, stat, from, size);
  fsyncSync(descriptor);
}

/** Spaces and a newline in place of a torn line. Never truncates: another writer may have appended after it. */
function blankOut(file: string, opened: Stats, from: number, to: number): void {
  // Without O_APPEND, which would ignore the position.
  const descriptor = openSync(file, constants.O_WRONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const stat = fstatSync(descriptor);
    if (stat.dev !== opened.dev || stat.ino !== opened.ino) throw refusal(file, 'was replaced while it was opened');
    const blank = Buffer.alloc(to - from, 0x20);
    blank[blank.length - 1] = 0x0a;
    for (let at = 0; at < blank.length;) at += writeSync(descriptor, blank, at, blank.length - at, from + at);
  } finally {
    closeSync(descriptor);
  }
}

/** Blanking a line of somebody's notes because they aren't a journal would be a loss. A file of one torn line is taken for ours only when it begins like one. */
function checkFirstLine(file: string, descriptor: number, size: number): void {
  const text = readRange(descriptor, 0, Math.min(size, MAX_LINE_BYTES));
  const lines = splitLines(text);
  const first = lines.find((line) => line.some((byte) => byte !== 0x20));
  if (first === undefined) return;
  const torn = lines.indexOf(first) === lines.length - 1;
  if (torn ? first.subarray(0, LINE_START.length).equals(LINE_START.subarray(0, first.length)) : isJournalLine(first)) return;
  throw refusal(file, 'is not a journal; its first line is something else');
}

/** Canonical form sorts keys, so every line begins with this. */
const LINE_START = Buffer.from('{"attempt":');

/** The pieces between newlines; the last one is what has no newline, perhaps empty. */
function splitLines(text: Buffer): Buffer[] {
  const lines: Buffer[] = [];
  let from = 0;
  for (let end = text.indexOf(0x0a); end !== -1; end = text.indexOf(0x0a, from)) {
    lines.push(text.subarray(from, end));
    from = end + 1;
  }
  lines.push(text.subarray(from));
  return lines;
}

function lastByteIsNewline(descriptor: number, size: number): boolean {
  return readRange(descriptor, size - 1, size)[0] === 0x0a;
}

function startOfLastLine(descriptor: number, size: number): number {
  const step = 64 * 1024;
  for (let to = size; to > 0; to -= step) {
    const from = Math.max(0, to - step);
    const at = readRange(descriptor, from, to).lastIndexOf(0x0a);
    if (at !== -1) return from + at + 1;
  }
  return 0;
}

function readRange(descriptor: number, from: number, to: number): Buffer {
  const buffer = Buffer.alloc(Math.max(0, to - from));
  let length = 0;
  while (length < buffer.length) {
    const got = readSync(descriptor, buffer, length, buffer.length - length, from + length);
    if (got === 0) break;
    length += got;
  }
  return buffer.subarray(0, length);
}

function explain(file: string, error: unknown): ProofrunError {
  if (error instanceof ProofrunError) return error;
  switch (errnoOf(error)) {
    case 'ELOOP':
      return refusal(file, 'is a symlink', error);
    case 'EISDIR':
      return refusal(file, 'is a directory', error);
    case 'ENXIO':
      return refusal(file, 'is not a regular file', error);
    default:
      return refusal(file, messageOf(error), error);
  }
}

function refusal(file: string, fact: string, cause?: unknown): ProofrunError {
  return new ProofrunError('ERR_JOURNAL', {
    message: `journal ${file}: ${fact}`,
    hint: 'give --journal a file that is a journal, or that does not exist',
    ...(cause === undefined ? {} : { cause }),
  });
}
