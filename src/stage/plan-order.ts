import { compareBytes } from './byte-path.ts';
import type { PlanOperation } from './plan-bytes.ts';

type Ordered = Pick<PlanOperation, 'kind' | 'root' | 'path' | 'before' | 'after'>;

/** A directory that its owner gets rights back on has to be changed before its entries; any other after them. */
function opensDirectory(operation: Ordered): boolean {
  const gained = (operation.after?.mode ?? 0) & ~(operation.before?.mode ?? 0) & 0o700;
  return operation.kind === 'attributes' && operation.before?.type === 'directory' && gained !== 0;
}

function phase(operation: Ordered): number {
  if (operation.kind === 'attributes') return opensDirectory(operation) ? 0 : 3;
  return operation.kind === 'delete' ? 1 : 2;
}

/** Directories are opened from the top down, entries deleted from the deepest up, everything new made from the top down, directories closed from the deepest up. */
export function compareOperations(a: Ordered, b: Ordered): number {
  const [first, second] = [phase(a), phase(b)];
  const order = a.root - b.root || compareBytes(a.path, b.path);
  return first - second || (first === 1 || first === 3 ? -order : order);
}
