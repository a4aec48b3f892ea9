import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { canonicalJson, sha256Hex } from '../core/canonical-json.ts';
import type { EarlierStage, StagedRoot } from '../core/change.ts';
import { errnoOf, messageOf, ProofrunError } from '../core/errors.ts';
import type { JsonValue } from '../core/json.ts';
import { parseStrictJson } from '../core/strict-json.ts';
import { displayPath } from '../core/text-safety.ts';
import { listLayer } from '../stage/layer.host.ts';
import { readRegularFile, writeDurably } from '../store/durable-file.host.ts';
import type { StoredCheckpoint } from '../store/index.ts';
import type { OverlayMarkers } from './stage-record.ts';
import type { TakenOver } from './stage-base.host.ts';

/** What a checkpoint is, beside its layers. Its own hash is in the store; it holds those of everything else. */
export const MANIFEST = 'manifest.json';
/** The list of everything in a layer, with hashes. */
const LIST = 'list';
const MAX_MANIFEST_BYTES = 64 << 20;

export interface CheckpointFiles {
  readonly markers: OverlayMarkers;
  /** Absolute paths that its run couldn't see. */
  readonly hidden: readonly string[];
  /** As a stage's, `upper` being the kept layer. Absolute. */
  readonly roots: readonly StagedRoot[];
  /** SHA-256 of each file beside the layers, by its path beneath the checkpoint. */
  readonly files: Readonly<Record<string, string>>;
}

/** A staged root of a checkpoint from the parts that were taken over. */
export function keptRoot(root: string, taken: TakenOver): StagedRoot {
  const [own, ...earlier] = taken.earlier;
  if (own === undefined) throw new ProofrunError('ERR_INTERNAL', { message: `nothing is known of the stage of ${root}` });
  return { root, upper: taken.base, work: '', preimage: own.preimage, index: own.index, earlier };
}

export interface WrittenManifest {
  readonly manifestSha256: string;
  readonly entries: number;
  readonly bytes: number;
}

/** Lists the layers, hashes all files beside them, and writes the manifest; on disk when it resolves. */
export async function writeManifest(
  shim: string,
  directory: string,
  of: Pick<StoredCheckpoint, 'id' | 'runId' | 'workspace' | 'source'>,
  parts: Pick<CheckpointFiles, 'markers' | 'hidden' | 'roots'>,
): Promise<WrittenManifest> {
  const files: Record<string, string> = {};
  let entries = 0;
  let bytes = 0;
  for (const root of parts.roots) {
    const list = await listLayer(shim, root.upper, 'content');
    const listFile = join(root.upper, '..', LIST);
    writeFileSync(listFile, list, { mode: 0o600, flag: 'wx' });
    files[relative(directory, listFile)] = sha256Hex(list);
    for (const file of besideLayer(root)) files[relative(directory, file)] = fileSha256(file);
    for (const record of parseList(list).values()) {
      entries += 1;
      bytes += record.size;
    }
  }
  const text = canonicalJson({
    version: 1,
    id: of.id,
    run: of.runId,
    workspace: of.workspace,
    source: of.source,
    markers: parts.markers,
    hidden: parts.hidden,
    roots: parts.roots.map((root) => manifestRoot(root, directory)),
    files,
  });
  writeDurably(join(directory, MANIFEST), text);
  return { manifestSha256: sha256Hex(text), entries, bytes };
}

function besideLayer(root: StagedRoot): readonly string[] {
  return [root.preimage, ...(root.index === undefined ? [] : [root.index]), ...(root.earlier ?? []).flatMap((one) => [one.preimage, one.index])];
}

function manifestRoot(root: StagedRoot, directory: string): JsonValue {
  const inside = (path: string): string => relative(directory, path);
  return {
    root: root.root,
    layer: inside(root.upper),
    preimage: inside(root.preimage),
    index: inside(root.index ?? ''),
    earlier: (root.earlier ?? []).map((one) => ({ run: one.run, preimage: inside(one.preimage), index: inside(one.index), hidden: one.hidden })),
  };
}

/** What the manifest says, held to the hash that the store recorded. ERR_CHECKPOINT_ALTERED. */
export function readManifest(directory: string, checkpoint: StoredCheckpoint): CheckpointFiles {
  const file = join(directory, MANIFEST);
  let bytes: Buffer;
  try {
    bytes = readRegularFile(file, MAX_MANIFEST_BYTES);
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
    throw altered(checkpoint, [`${MANIFEST}: ${messageOf(error)}`]);
  }
  if (sha256Hex(bytes) !== checkpoint.manifestSha256) throw altered(checkpoint, [`${MANIFEST}: its hash differs from the store's`]);
  return parseManifest(bytes, directory, checkpoint);
}

function parseManifest(bytes: Buffer, directory: string, checkpoint: StoredCheckpoint): CheckpointFiles {
  const value: unknown = parseStrictJson(bytes, { maxLength: MAX_MANIFEST_BYTES });
  const fault = (): never => {
    throw altered(checkpoint, [`${MANIFEST}: is not one that this Proofrun reads`]);
  };
  const object = (one: unknown): Readonly<Record<string, unknown>> => (typeof one === 'object' && one !== null && !Array.isArray(one) ? { ...one } : fault());
  const list = (one: unknown): readonly unknown[] => (Array.isArray(one) ? one : fault());
  const text = (one: unknown): string => (typeof one === 'string' ? one : fault());
  const path = (one: unknown): string => join(directory, text(one));
  const manifest = object(value);
  const { markers } = manifest;
  if (manifest.version !== 1 || (markers !== 'user' && markers !== 'trusted')) return fault();
  const roots = list(manifest.roots).map((item): StagedRoot => {
    const root = object(item);
    const earlier = list(root.earlier).map((one): EarlierStage => {
      const stage = object(one);
      return { run: text(stage.run), preimage: path(stage.preimage), index: path(stage.index), hidden: list(stage.hidden).map(text) };
    });
    return { root: text(root.root), upper: path(root.layer), work: '', preimage: path(root.preimage), index: path(root.index), earlier };
  });
  const files = Object.fromEntries(Object.entries(object(manifest.files)).map(([name, hash]) => [name, text(hash)]));
  return { markers, hidden: list(manifest.hidden).map(text), roots, files };
}

/** What differs from the checkpoint as it was made: every changed byte, mode, owner, time, attribute and name. Empty: nothing. */
export async function findAlterations(shim: string, directory: string, checkpoint: StoredCheckpoint): Promise<readonly string[]> {
  let manifest: CheckpointFiles;
  try {
    manifest = readManifest(directory, checkpoint);
  } catch (error) {
    if (error instanceof ProofrunError && error.code === 'ERR_CHECKPOINT_ALTERED') return [error.message];
    throw error;
  }
  const found: string[] = [];
  for (const [name, hash] of Object.entries(manifest.files)) {
    if (fileSha256(join(directory, name)) !== hash) found.push(`${name}: it was altered`);
  }
  if (found.length > 0) return found;
  for (const root of manifest.roots) {
    const was = parseList(readFileSync(join(root.upper, '..', LIST)));
    let now: ReadonlyMap<string, ListRecord>;
    try {
      now = parseList(await listLayer(shim, root.upper, 'content'));
    } catch (error) {
      found.push(`${root.root}: its layer can't be read: ${messageOf(error)}`);
      continue;
    }
    for (const [path, record] of was) {
      const there = now.get(path);
      if (there === undefined) found.push(`${shown(root, path)}: it is gone`);
      else if (there.text !== record.text) found.push(`${shown(root, path)}: it was altered`);
    }
    for (const path of now.keys()) if (!was.has(path)) found.push(`${shown(root, path)}: it was added`);
  }
  return found;
}

function shown(root: StagedRoot, latin1: string): string {
  return displayPath(join(root.root, Buffer.from(latin1, 'latin1').toString('utf8')));
}

interface ListRecord {
  readonly text: string;
  readonly size: number;
}

/** Records by path (one character a byte). */
function parseList(list: Buffer): ReadonlyMap<string, ListRecord> {
  const records = new Map<string, ListRecord>();
  for (const record of list.toString('latin1').split('\0')) {
    if (record === '') continue;
    const fields = record.split(' ', 9);
    const facts = fields.join(' ');
    records.set(record.slice(facts.length + 1), { text: facts, size: Number(fields[4] ?? 0) });
  }
  return records;
}

function fileSha256(file: string): string {
  try {
    return createHash('sha256').update(readFileSync(file)).digest('hex');
  } catch (error) {
    return messageOf(error);
  }
}

/** ERR_CHECKPOINT_ALTERED. */
export function altered(checkpoint: Pick<StoredCheckpoint, 'id'>, facts: readonly string[]): ProofrunError {
  const more = facts.length > 5 ? `\nand ${facts.length - 5} more` : '';
  return new ProofrunError('ERR_CHECKPOINT_ALTERED', {
    message: `${checkpoint.id} does not hold what it held when it was made\n${facts.slice(0, 5).join('\n')}${more}`,
    hint: `job checkpoint delete ${checkpoint.id}`,
    data: { checkpoint: checkpoint.id, differences: facts },
  });
}
