import { join } from 'node:path';
import { canonicalJson } from '../core/canonical-json.ts';
import { toCamel, toSnake } from '../core/case.ts';
import type { Mode } from '../core/dimension.ts';
import { errnoOf, messageOf } from '../core/errors.ts';
import type { ExecutorId } from '../core/plan.ts';
import type { Ending, RunState } from '../core/run.ts';
import { parseStrictJson } from '../core/strict-json.ts';
import { readRegularFile, writeDurably, type DurableWriteOptions } from '../store/durable-file.host.ts';
import { invalid } from './bundle-form.ts';
import { compileSchema, type SchemaValidator } from './schema-validator.ts';

export const RUN_FILE = 'run.json';

const MAX_BYTES = 4 * 1024 * 1024;

/**
 * Facts of a run and which program executed it. Never a level, a receipt or a claim: those are in the bundle alone, and the schema has no
 * place for them here. Times are ms since the epoch.
 */
export interface RunFacts {
  readonly version: 1;
  readonly id: string;
  readonly attempt: string | null;
  readonly name: string | null;
  readonly state: RunState;
  readonly ending: Ending | null;
  readonly mode: Mode;
  readonly argv: readonly string[];
  readonly cwd: string;
  readonly workspace: string;
  readonly user: { readonly uid: number; readonly gid: number };
  readonly recordedMs: number;
  readonly startedMs: number | null;
  readonly endedMs: number | null;
  readonly executor: { readonly id: ExecutorId; readonly version: string } | null;
  readonly proofrunVersion: string;
}

/** Writes `run.json` into the run's directory: 0600, as a whole or not at all. ERR_DISK_FULL. */
export function writeRunFacts(runDirectory: string, facts: RunFacts, options: DurableWriteOptions = {}): void {
  writeDurably(join(runDirectory, RUN_FILE), `${canonicalJson(toSnake(facts))}\n`, options);
}

/** Reads `run.json`. ERR_BUNDLE_INVALID when it is missing, isn't strict JSON or doesn't fit the schema. */
export async function readRunFacts(runDirectory: string): Promise<RunFacts> {
  const file = join(runDirectory, RUN_FILE);
  const validate = await runValidator();
  try {
    const value = parseStrictJson(readRegularFile(file, MAX_BYTES));
    const faults = validate(value);
    if (faults.length > 0) throw new Error(faults.join('; '));
    // The schema has accepted the value, and describes this type.
    return toCamel(value) as unknown as RunFacts;
  } catch (error) {
    throw invalid(file, errnoOf(error) === 'ELOOP' ? 'is a symlink' : messageOf(error), error);
  }
}

let validator: Promise<SchemaValidator> | undefined;

function runValidator(): Promise<SchemaValidator> {
  validator ??= import('../../schemas/run.schema.json', { with: { type: 'json' } }).then((schema) => compileSchema(schema.default));
  return validator;
}
