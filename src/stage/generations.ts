import type { BytePath } from './byte-path.ts';
import type { LayerIndex } from './layer-index.ts';
import { checkPreimage, type PreimageCheck, type PreimageContext } from './preimage-check.ts';
import type { Preimage } from './preimage.ts';

/** One run's part of a stage, with the tree as it was when that run began. */
export interface Generation {
  /** Undefined: the run that the stage belongs to. */
  readonly run: string | undefined;
  readonly preimage: Preimage;
  /** Paths that it could not see. */
  readonly hidden: readonly BytePath[];
  /** What it touched; undefined: everything. */
  readonly index: LayerIndex | undefined;
  readonly clockFellBack: boolean;
}

/**
 * The conflict check of a stage that builds on earlier results. What a path held was seen by the first run that touched
 * it: the later ones saw that run's version, so the tree is held to the walk before the first. A path that one of the
 * runs that touched it couldn't see is a conflict whenever something is there. Pure.
 */
export function checkGenerations(
  generations: readonly [Generation, ...Generation[]],
  shared: Pick<PreimageContext, 'applied' | 'restored' | 'now'>,
): PreimageCheck {
  const checks = generations.map((generation) => ({ generation, check: checkPreimage({ ...shared, ...generation }) }));
  const [own] = checks;
  if (own === undefined || checks.length === 1) return checkPreimage({ ...shared, ...generations[0] });
  const touching = (path: BytePath): readonly (typeof own)[] => {
    const found = checks.filter(({ generation: { index } }) => index === undefined || index.touches(path));
    return found.length === 0 ? [own] : found;
  };
  const named = (reason: string | undefined, run: string | undefined): string | undefined =>
    reason === undefined || run === undefined ? reason : `${reason} (${run}, which this run builds on)`;
  return {
    conflictAt: (path, before, attributesOnly) => {
      const those = touching(path);
      const blind = before === undefined ? undefined : those.find(({ check }) => check.isHidden(path));
      const first = blind ?? those.at(-1) ?? own;
      return named(first.check.conflictAt(path, before, attributesOnly), first.generation.run);
    },
    conflictAtRoot: (before) => own.check.conflictAtRoot(before),
    isHidden: (path) => checks.some(({ check }) => check.isHidden(path)),
  };
}
