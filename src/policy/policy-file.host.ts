import { createHash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { ProofrunError, errnoOf } from '../core/errors.ts';
import { MAX_DOCUMENT_BYTES, decodeDocument, type DocumentCode } from './document.ts';

export interface TextFile {
  readonly text: string;
  /** Of the bytes, lower-case hex. */
  readonly sha256: string;
}

/**
 * Reads a policy or profile that rules over a run. It is opened without following a link in its last step and judged by that one descriptor: regular, owned by
 * one of `owners`, writable by nobody else, at most 1 MiB. Undefined when there is no such file. Throws ERR_POLICY_FILE.
 */
export function readPolicyFile(path: string, owners: readonly number[]): TextFile | undefined {
  const refuse = (fact: string, hint: string, cause?: unknown): never => {
    throw new ProofrunError('ERR_POLICY_FILE', { message: `${path}: ${fact}`, hint, ...(cause === undefined ? {} : { cause }) });
  };
  let file: number;
  try {
    // NONBLOCK: a FIFO must not hold the run.
    file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (cause) {
    switch (errnoOf(cause)) {
      case 'ENOENT':
      case 'ENOTDIR':
        return undefined;
      case 'ELOOP':
        return refuse('is a symbolic link', 'put the file itself there', cause);
      default:
        return refuse(`can't be opened (${errnoOf(cause) ?? 'unknown'})`, `check its owner and mode: ls -l ${path}`, cause);
    }
  }
  try {
    const entry = fstatSync(file);
    if (!entry.isFile()) return refuse('is not a regular file', 'put a regular file there');
    if (!owners.includes(entry.uid)) {
      return refuse(`is owned by uid ${String(entry.uid)}, expected ${owners.map((uid) => `uid ${String(uid)}`).join(' or ')}`, `chown it, or remove it`);
    }
    if ((entry.mode & 0o022) !== 0) return refuse(`is writable by others (mode ${(entry.mode & 0o7777).toString(8).padStart(4, '0')})`, `chmod go-w ${path}`);
    if (entry.size > MAX_DOCUMENT_BYTES) return refuse('is larger than 1 MiB', 'make it smaller');
    return readAll(file, path, 'ERR_POLICY_FILE');
  } finally {
    closeSync(file);
  }
}

/** Reads a job file: regular, at most 1 MiB; links are followed, because the person named it. Throws ERR_JOB_FILE. */
export function readJobFile(path: string, shown: string): TextFile {
  let file: number;
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (cause) {
    const reason = errnoOf(cause) === 'ENOENT' ? 'there is no such file' : `can't be opened (${errnoOf(cause) ?? 'unknown'})`;
    throw new ProofrunError('ERR_JOB_FILE', {
      message: `${shown}: ${reason}`,
      hint: 'job init writes an example; put -- before a program of that name',
      cause,
    });
  }
  try {
    const entry = fstatSync(file);
    if (!entry.isFile()) throw new ProofrunError('ERR_JOB_FILE', { message: `${shown}: is not a regular file` });
    if (entry.size > MAX_DOCUMENT_BYTES) throw new ProofrunError('ERR_JOB_FILE', { message: `${shown}: larger than 1 MiB` });
    return readAll(file, shown, 'ERR_JOB_FILE');
  } finally {
    closeSync(file);
  }
}

function readAll(file: number, shown: string, code: DocumentCode): TextFile {
  // One byte more than allowed: a file that grew after its size was read is noticed.
  const buffer = Buffer.alloc(MAX_DOCUMENT_BYTES + 1);
  let length = 0;
  while (length < buffer.length) {
    const bytesRead = readSync(file, buffer, length, buffer.length - length, null);
    if (bytesRead === 0) break;
    length += bytesRead;
  }
  const bytes = buffer.subarray(0, length);
  return { text: decodeDocument(bytes, shown, code), sha256: createHash('sha256').update(bytes).digest('hex') };
}
