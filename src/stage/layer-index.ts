import { ProofrunError } from '../core/errors.ts';
import { bytePath, parentOf, type BytePath } from './byte-path.ts';

const MAGIC = 'PRINDEX1';

/** What one layer touches, without its contents (executors/shim/layer.c). */
export interface LayerIndex {
  /** Whether the layer says something about a path: it has an entry there, or one above that covers what lies below. */
  touches(path: BytePath): boolean;
}

function broken(what: string): ProofrunError {
  return new ProofrunError('ERR_STAGE_LAYER', { message: `the record of what an earlier run touched is damaged: ${what}` });
}

/** Parses what `proofrun-shim layer merge --index` wrote. Pure. Throws ERR_STAGE_LAYER for a file that isn't whole. */
export function parseLayerIndex(bytes: Buffer): LayerIndex {
  if (bytes.toString('latin1', 0, MAGIC.length) !== MAGIC) throw broken('it does not begin as one');
  const covers = new Map<BytePath, boolean>();
  let at = MAGIC.length;
  for (;;) {
    const end = bytes.indexOf(0, at);
    if (end <= at) throw broken('it ends too early');
    const tag = String.fromCharCode(bytes[at] ?? 0);
    const path = bytePath(bytes.subarray(at + 1, end));
    at = end + 1;
    if (tag === 'z' && path === '' && at === bytes.length) break;
    if ((tag !== 'c' && tag !== 'd') || path === '') throw broken(`an unknown record at byte ${at}`);
    covers.set(path, tag === 'c');
  }
  const known = new Map<BytePath, boolean>();
  const isCovered = (path: BytePath): boolean => {
    if (path === '') return false;
    const found = known.get(path) ?? covers.get(path) ?? isCovered(parentOf(path));
    known.set(path, found);
    return found;
  };
  return { touches: (path) => covers.has(path) || isCovered(path) };
}
