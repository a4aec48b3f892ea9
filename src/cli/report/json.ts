import { toSnake } from '../../core/case.ts';
import type { RunBundle } from '../../core/bundle.ts';
import type { JsonObject, JsonValue } from '../../core/json.ts';
import type { StoredEvent } from '../../store/event-chain.ts';
import type { StoredRun } from '../../store/stored-run.ts';
import { exitCodeOf } from '../../runner/exit-code.ts';
import type { Verification } from '../../runner/verify.ts';
import { listedChanges, tallyOf } from './changes.ts';
import { mismatches } from './review-facts.ts';

/**
 * JSON for stdout: one line with its newline, keys in snake_case. Characters that a terminal would act on or hide are written as
 * escapes, which JSON reads back as the same characters.
 */
export function jsonLine(value: JsonValue): string {
  return `${visibleJson(JSON.stringify(value))}\n`;
}

/** The same over several lines, for a person. */
export function jsonPage(value: JsonValue): string {
  return `${visibleJson(JSON.stringify(value, null, 2))}\n`;
}

/** Anything at all beyond printable ASCII: most JSON has none, and the pattern below takes milliseconds to make. */
const BEYOND_ASCII = /[^\n\x20-\x7e]/;

function visibleJson(text: string): string {
  if (!BEYOND_ASCII.test(text)) return text;
  return text.replace(/[\u007f-\u009f\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu, (character) =>
    Array.from({ length: character.length }, (_, index) => `\\u${character.charCodeAt(index).toString(16).padStart(4, '0')}`).join(''),
  );
}

/** One run as `job ls --json` and `job status --json` give it. */
export function runJson(run: StoredRun): JsonObject {
  const { lease, plan, ...rest } = run;
  const converted = toSnake({ ...rest, owner: lease === null ? null : { pid: lease.owner.pid } });
  return { ...(isObject(converted) ? converted : {}), exit_code: run.ending === null ? null : exitCodeOf(run.ending), planned: plan !== null };
}

/** What `job run --json` prints at the end: the facts of the summary. */
export function summaryJson(bundle: RunBundle, more: { readonly appliedFiles: number | null; readonly bundlePath: string | null }): JsonValue {
  const { run, safety, changes } = bundle;
  return {
    run: toSnake(run),
    exit_code: run.ending === null ? null : exitCodeOf(run.ending),
    elapsed_ms: run.startedMs === null || run.endedMs === null ? null : run.endedMs - run.startedMs,
    safety: toSnake(safety),
    staged: changes === null ? null : toSnake(tallyOf(changes)),
    executes_on_host:
      changes === null
        ? []
        : listedChanges(changes).flatMap((change) =>
            change.executes === undefined ? [] : [{ path: change.path, encoding: change.encoding, why: change.executes }],
          ),
    applied_files: more.appliedFiles,
    direct_shares: toSnake(bundle.directShares),
    logins: toSnake(bundle.credentials.logins ?? []),
    discarded: toSnake(bundle.discarded),
    hidden: toSnake(bundle.hostPaths.hidden),
    network: toSnake(bundle.network),
    refusal: toSnake(bundle.refusal),
    killed: toSnake(bundle.killed),
    warnings: bundle.warnings,
    bundle: { path: more.bundlePath, sha256: bundle.sha256 },
  };
}

/** The whole account, for `job status --review --json`: the bundle, how it verified, and the change set as it is now. */
export function reviewJson(input: {
  readonly bundle: RunBundle;
  readonly verification: Verification;
  readonly changes: RunBundle['changes'];
  readonly stage: string;
}): JsonValue {
  return {
    bundle: toSnake(input.bundle),
    verification: toSnake(input.verification),
    mismatches: mismatches(input.bundle),
    stage: input.stage,
    changes_now: toSnake(input.changes),
  };
}

export function eventJson(event: StoredEvent): JsonValue {
  return toSnake(event);
}

function isObject(value: JsonValue): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
