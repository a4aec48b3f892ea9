import { join } from 'node:path';
import { BUNDLE_FILE, type RunBundle, type RunBundleBody } from '../core/bundle.ts';
import { errnoOf, messageOf } from '../core/errors.ts';
import { readRegularFile, writeDurably, type DurableWriteOptions } from '../store/durable-file.host.ts';
import { BUNDLE_MAX_BYTES, formatBundle, invalid, parseBundle, type BundleValidator } from './bundle-form.ts';
import { compileSchema } from './schema-validator.ts';

/**
 * Hashes the bundle and writes `run-bundle.json` into the run's directory: canonical, 0600, as a whole or not at all, on disk when this
 * returns. Returns the bundle with its hash. ERR_DISK_FULL; ERR_JSON for a value that does not encode.
 */
export function writeBundle(runDirectory: string, body: RunBundleBody, options: DurableWriteOptions = {}): RunBundle {
  const { bundle, text } = formatBundle(body);
  if (Buffer.byteLength(text) > BUNDLE_MAX_BYTES) {
    throw invalid(join(runDirectory, BUNDLE_FILE), `would have ${Buffer.byteLength(text)} bytes, at most ${BUNDLE_MAX_BYTES} are read`);
  }
  writeDurably(join(runDirectory, BUNDLE_FILE), text, options);
  return bundle;
}

/**
 * Reads a bundle and refuses one that isn't a regular file, is too large, isn't strict JSON, lacks `executor_observations`, doesn't fit the
 * schema or was altered: ERR_BUNDLE_INVALID. `expectedSha256`: the hash that the store recorded. Derived statements are checked by
 * verifyBundle.
 */
export async function readBundle(file: string, expectedSha256?: string): Promise<RunBundle> {
  const bundle = parseBundle(readBytes(file), file, await bundleValidator());
  if (expectedSha256 !== undefined && bundle.sha256 !== expectedSha256) {
    throw invalid(file, `is another bundle: its hash is ${bundle.sha256.slice(0, 16)}, the store recorded ${expectedSha256.slice(0, 16)}`);
  }
  return bundle;
}

let validator: Promise<BundleValidator> | undefined;

/** Compiled once a process. */
function bundleValidator(): Promise<BundleValidator> {
  validator ??= import('../../schemas/run-bundle.schema.json', { with: { type: 'json' } }).then((schema) => compileSchema(schema.default));
  return validator;
}

function readBytes(file: string): Buffer {
  try {
    return readRegularFile(file, BUNDLE_MAX_BYTES);
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === 'ENOENT') throw invalid(file, 'there is no bundle', error);
    throw invalid(file, errno === 'ELOOP' ? 'is a symlink' : messageOf(error), error);
  }
}
