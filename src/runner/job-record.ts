import type { BundleLineage, BundlePermissions } from '../core/bundle.ts';
import { toCamel, toSnake } from '../core/case.ts';
import type { Mode } from '../core/dimension.ts';
import type { EffectiveJob, LayerRecord } from '../core/job.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { permissionsRecord } from './bundle-plan.ts';

/** A job as it is kept: everything but the values of its environment. */
export interface JobRecord {
  readonly name: string | null;
  readonly mode: Mode;
  readonly argv: readonly string[];
  readonly cwd: string;
  readonly workspace: string;
  readonly permissions: BundlePermissions;
  readonly layers: readonly LayerRecord[];
}

/**
 * Data of the event `run.recorded`: with the row it is all that a bundle needs of what was asked, so that a run whose owner died at any later
 * moment still gets one.
 */
export interface RecordedFacts {
  readonly attempt: string;
  readonly user: { readonly uid: number; readonly gid: number };
  readonly lineage: BundleLineage;
  readonly warnings: readonly string[];
  readonly job: JobRecord;
}

export function jobRecord(job: EffectiveJob): JobRecord {
  return {
    name: job.name ?? null,
    mode: job.mode,
    argv: job.argv,
    cwd: job.cwd,
    workspace: job.workspace,
    permissions: permissionsRecord(job.permissions),
    layers: job.layers,
  };
}

export function formatRecordedFacts(facts: RecordedFacts): JsonObject {
  return toSnake(facts) as JsonObject;
}

/** Undefined for data that doesn't hold them. Their fine structure is checked with the bundle that is made of them. */
export function parseRecordedFacts(data: JsonValue): RecordedFacts | undefined {
  if (!isObject(data) || !isObject(data.job) || !isObject(data.user) || !isObject(data.job.permissions)) return undefined;
  // Records of the first version named the unseen stages alone.
  const lineage = data.lineage ?? { on: null, forked_from: null, unseen_stages: data.unseen_stages ?? null };
  if (!isObject(lineage)) return undefined;
  const lists = [lineage.unseen_stages, data.warnings, data.job.argv, data.job.layers];
  const texts = [data.attempt, data.job.mode, data.job.cwd, data.job.workspace];
  if (!lists.every(Array.isArray) || !texts.every((text) => typeof text === 'string')) return undefined;
  return toCamel({ ...data, lineage }) as unknown as RecordedFacts;
}

function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Who runs here; 0 where the system has no numbers for it. */
export function currentUser(): { readonly uid: number; readonly gid: number } {
  return { uid: process.geteuid?.() ?? 0, gid: process.getegid?.() ?? 0 };
}
