import { lstatSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { BundleArtifact, BundleOutput } from '../core/bundle.ts';
import { sha256Hex } from '../core/canonical-json.ts';
import { describeOutput } from './bundle-output.ts';
import { OUTPUT_KEPT_BYTES, OUTPUT_STREAMS, readKept, type KeptOutput } from './kept-output.host.ts';
import { RUN_FILE } from './run-json.host.ts';

/** Files of a run that a bundle names, in this order. */
const NAMED = [RUN_FILE, ...OUTPUT_STREAMS.map((stream) => `${stream}.log`)];

/** The files that are there, with their digests. */
export function artifactsOf(directory: string): readonly BundleArtifact[] {
  return NAMED.flatMap((name) => {
    const path = join(directory, name);
    if (lstatSync(path, { throwIfNoEntry: false })?.isFile() !== true) return [];
    const bytes = readFileSync(path);
    return [{ name, path: name, bytes: bytes.length, sha256: sha256Hex(bytes) }];
  });
}

/** What is kept of the output, as the bundle has it: excerpts. `kept` undefined: of a run whose owner died. */
export function outputsOf(directory: string, keptBytes: number | undefined, kept?: readonly KeptOutput[]): readonly BundleOutput[] {
  const streams = kept ?? OUTPUT_STREAMS.map((stream) => ({ stream, total: () => undefined }));
  return streams.flatMap(({ stream, total }) => {
    const arrived = total();
    if (arrived === 0) return [describeOutput({ stream, head: Buffer.alloc(0), tail: Buffer.alloc(0), bytesTotal: 0 })];
    const text = readKept(directory, stream, keptBytes ?? OUTPUT_KEPT_BYTES, arrived);
    if (text !== undefined) return [describeOutput(text)];
    return arrived === undefined ? [] : [describeOutput({ stream, head: Buffer.alloc(0), tail: Buffer.alloc(0), bytesTotal: arrived })];
  });
}
