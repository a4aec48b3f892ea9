import { join, relative } from 'node:path';
import type { HiddenPath } from '../core/bundle.ts';
import type { EarlierStage, StagedRoot } from '../core/change.ts';
import { ProofrunError } from '../core/errors.ts';
import { parseStrictJson } from '../core/strict-json.ts';

/** Which extended attributes an overlay keeps its marks in: `user` when it was mounted with userxattr, as an ordinary user has to. */
export type OverlayMarkers = 'user' | 'trusted';

/** File of a run's stage directory that says what its layers are. */
export const STAGE_RECORD = 'stage.json';

/** Paths of the layers are relative to the stage directory. */
export interface StageRecord {
  readonly version: 1;
  readonly markers: OverlayMarkers;
  readonly hidden: readonly HiddenPath[];
  /** Those of `hidden` that existed. */
  readonly present: readonly HiddenPath[];
  readonly roots: readonly StagedRoot[];
}

/** What the file says, its roots absolute again. Throws ERR_STAGE_LAYER. */
export function parseStageRecord(bytes: Uint8Array, stageDirectory: string): StageRecord {
  const value: unknown = parseStrictJson(bytes, { source: join(stageDirectory, STAGE_RECORD) });
  if (!isObject(value) || value.version !== 1 || (value.markers !== 'user' && value.markers !== 'trusted')) throw damaged(stageDirectory);
  const roots = list(value.roots, stageDirectory).map((item) => {
    const { root, upper, work, preimage } = item;
    if (typeof root !== 'string' || typeof upper !== 'string' || typeof work !== 'string' || typeof preimage !== 'string') throw damaged(stageDirectory);
    const base = optionalPath(item.base, stageDirectory);
    const index = optionalPath(item.index, stageDirectory);
    return {
      root,
      upper: join(stageDirectory, upper),
      work: join(stageDirectory, work),
      preimage: join(stageDirectory, preimage),
      ...(base === undefined ? {} : { base }),
      ...(index === undefined ? {} : { index }),
      ...(item.earlier === undefined ? {} : { earlier: list(item.earlier, stageDirectory).map((one) => earlierStage(one, stageDirectory)) }),
    };
  });
  return { version: 1, markers: value.markers, hidden: hiddenList(value.hidden, stageDirectory), present: hiddenList(value.present, stageDirectory), roots };
}

function optionalPath(value: unknown, stageDirectory: string): string | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== 'string') throw damaged(stageDirectory);
  return join(stageDirectory, value);
}

function earlierStage({ run, preimage, index, hidden }: Readonly<Record<string, unknown>>, stageDirectory: string): EarlierStage {
  if (typeof run !== 'string' || typeof preimage !== 'string' || typeof index !== 'string' || !Array.isArray(hidden)) throw damaged(stageDirectory);
  const paths = hidden.map((path: unknown) => {
    if (typeof path !== 'string') throw damaged(stageDirectory);
    return path;
  });
  return { run, preimage: join(stageDirectory, preimage), index: join(stageDirectory, index), hidden: paths };
}

/** A root as the record keeps it: its paths relative to the stage directory. */
export function relativeRoot(root: StagedRoot, stageDirectory: string): StagedRoot {
  const inside = (path: string): string => relative(stageDirectory, path);
  return {
    root: root.root,
    upper: inside(root.upper),
    work: inside(root.work),
    preimage: inside(root.preimage),
    ...(root.base === undefined ? {} : { base: inside(root.base) }),
    ...(root.index === undefined ? {} : { index: inside(root.index) }),
    ...(root.earlier === undefined
      ? {}
      : { earlier: root.earlier.map((one) => ({ run: one.run, preimage: inside(one.preimage), index: inside(one.index), hidden: one.hidden })) }),
  };
}

function hiddenList(value: unknown, stageDirectory: string): readonly HiddenPath[] {
  return list(value, stageDirectory).map(({ path, rule }) => {
    if (typeof path !== 'string' || typeof rule !== 'string') throw damaged(stageDirectory);
    return { path, rule };
  });
}

function list(value: unknown, stageDirectory: string): readonly Readonly<Record<string, unknown>>[] {
  if (!Array.isArray(value)) throw damaged(stageDirectory);
  return value.map((item: unknown) => {
    if (!isObject(item)) throw damaged(stageDirectory);
    return item;
  });
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function damaged(stageDirectory: string): ProofrunError {
  return new ProofrunError('ERR_STAGE_LAYER', { message: `${join(stageDirectory, STAGE_RECORD)}: the record of the stage is damaged`, hint: 'job drop RUN' });
}
