import { constants } from 'node:fs';
import { mkdir, open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { randomBytes } from 'node:crypto';
import { ProofrunError, errnoOf } from '../core/errors.ts';

/** A job file that a person accepted. */
export interface TrustRecord {
  /** Absolute real path of the job file. */
  readonly file: string;
  readonly digest: string;
  /** Milliseconds since 1970. */
  readonly acceptedMs: number;
}

const FILE = 'trust.json';
const MAX_BYTES = 4 * 1024 * 1024;

/** Accepted job files, oldest first. Throws ERR_STORE_UNREADABLE when the record is damaged or open to others. */
export async function listTrusted(stateDirectory: string, uid: number): Promise<readonly TrustRecord[]> {
  const path = join(stateDirectory, FILE);
  const refuse = (fact: string, cause?: unknown): never => {
    throw new ProofrunError('ERR_STORE_UNREADABLE', {
      message: `${path}: ${fact}`,
      hint: `remove the file to forget what was accepted`,
      ...(cause === undefined ? {} : { cause }),
    });
  };
  const handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch((cause: unknown) =>
    errnoOf(cause) === 'ENOENT' ? undefined : refuse(`can't be opened (${errnoOf(cause) ?? 'unknown'})`, cause),
  );
  if (handle === undefined) return [];
  try {
    const entry = await handle.stat();
    if (!entry.isFile() || entry.uid !== uid || (entry.mode & 0o077) !== 0 || entry.size > MAX_BYTES) {
      return refuse('expected a regular file of yours, mode 0600');
    }
    const value: unknown = JSON.parse(await handle.readFile('utf8'));
    if (!isRecordFile(value)) return refuse('is damaged');
    return value.accepted;
  } catch (error) {
    if (error instanceof SyntaxError) return refuse('is damaged', error);
    throw error;
  } finally {
    await handle.close();
  }
}

/** True when this very digest was accepted for this file. */
export async function isTrusted(stateDirectory: string, uid: number, file: string, digest: string): Promise<boolean> {
  return (await listTrusted(stateDirectory, uid)).some((record) => record.file === file && record.digest === digest);
}

/** Remembers an acceptance; it replaces an earlier one of the same file. */
export async function acceptTrust(stateDirectory: string, uid: number, record: TrustRecord): Promise<void> {
  const kept = (await listTrusted(stateDirectory, uid)).filter((one) => one.file !== record.file);
  await write(stateDirectory, [...kept, record]);
}

/** Forgets a file. False when it was not accepted. */
export async function revokeTrust(stateDirectory: string, uid: number, file: string): Promise<boolean> {
  const records = await listTrusted(stateDirectory, uid);
  const kept = records.filter((one) => one.file !== file);
  if (kept.length === records.length) return false;
  await write(stateDirectory, kept);
  return true;
}

/** Written beside, synced, renamed: a reader sees the old file or the new one. */
async function write(stateDirectory: string, accepted: readonly TrustRecord[]): Promise<void> {
  await mkdir(stateDirectory, { recursive: true, mode: 0o700 });
  const temporary = join(stateDirectory, `.${FILE}.${randomBytes(8).toString('hex')}`);
  const handle = await open(temporary, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW, 0o600);
  try {
    await handle.chmod(0o600);
    await handle.writeFile(`${JSON.stringify({ version: 1, accepted })}\n`);
    await handle.sync();
    await handle.close();
    await rename(temporary, join(stateDirectory, FILE));
  } catch (error) {
    await handle.close().catch(() => undefined);
    await rm(temporary, { force: true });
    throw error;
  }
}

function isRecordFile(value: unknown): value is { readonly accepted: readonly TrustRecord[] } {
  if (typeof value !== 'object' || value === null || !('version' in value) || value.version !== 1 || !('accepted' in value) || !Array.isArray(value.accepted)) {
    return false;
  }
  return value.accepted.every(
    (one: unknown) =>
      typeof one === 'object' &&
      one !== null &&
      'file' in one &&
      typeof one.file === 'string' &&
      'digest' in one &&
      typeof one.digest === 'string' &&
      'acceptedMs' in one &&
      typeof one.acceptedMs === 'number',
  );
}
