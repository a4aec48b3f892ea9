import { readFileSync } from 'node:fs';
import { errnoOf, messageOf, ProofrunError } from '../core/errors.ts';
import { parseLayerIndex, type LayerIndex } from './layer-index.ts';
import { runShim } from './shim-process.host.ts';

export interface MergeLayers {
  readonly shim: string;
  /** Absolute directory that doesn't exist yet: the layer that is made. */
  readonly to: string;
  readonly base: string;
  /** A layer above `base`. Absent: `to` holds what `base` holds. */
  readonly over?: string;
  /** The layers may still be written: content is copied (shared where the filesystem can), not linked. */
  readonly copy?: boolean;
  /** File to write: what the topmost layer touches. */
  readonly index?: string;
  /** The tree that it will lie over: whiteouts with nothing below them are left out. */
  readonly tree?: string;
  /** On disk when this resolves. */
  readonly sync?: boolean;
}

/**
 * Makes a layer that shows, over the same tree, what `over` on `base` showed. Files are links to theirs, so content isn't copied and each layer can be
 * removed without the others. Throws ERR_STAGE_LAYER, ERR_STAGE_FULL; what was made until then is left at `to`.
 */
export async function mergeLayers(input: MergeLayers): Promise<void> {
  await runShim(input.shim, [
    'layer',
    'merge',
    input.to,
    input.base,
    ...(input.over === undefined ? [] : ['--over', input.over]),
    ...(input.copy === true ? ['--copy'] : []),
    ...(input.index === undefined ? [] : ['--index', input.index]),
    ...(input.tree === undefined ? [] : ['--tree', input.tree]),
    ...(input.sync === true ? ['--sync'] : []),
  ]);
}

/**
 * Everything that a layer holds, one record an entry (executors/shim/layer.c). `content`: with the hash of each file. `facts`: with its inode and ctime
 * instead, which costs no reading.
 */
export async function listLayer(shim: string, layer: string, what: 'content' | 'facts'): Promise<Buffer> {
  return (await runShim(shim, ['layer', 'list', layer, ...(what === 'facts' ? ['--facts'] : [])])).stdout;
}

/** Throws ERR_STAGE_LAYER. */
export function readLayerIndex(file: string): LayerIndex {
  let bytes: Buffer;
  try {
    bytes = readFileSync(file);
  } catch (error) {
    throw new ProofrunError('ERR_STAGE_LAYER', {
      message: `the record of what an earlier run touched can't be read: ${messageOf(error)}`,
      data: { errno: errnoOf(error) ?? '' },
      cause: error,
    });
  }
  return parseLayerIndex(bytes);
}
