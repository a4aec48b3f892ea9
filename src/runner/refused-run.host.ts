import { mkdirSync } from 'node:fs';
import type { RunId } from '../core/ids.ts';
import type { EffectiveJob } from '../core/job.ts';
import type { Refusal } from '../core/plan.ts';
import type { Ending } from '../core/run.ts';
import { VERSION } from '../core/version.ts';
import { writeAccount } from './account.ts';
import { writeBundle } from './bundle.host.ts';
import { exitCodeOf } from './exit-code.ts';
import { currentUser, jobRecord } from './job-record.ts';
import { bundleLineage } from './lineage.host.ts';
import { claimedDirectory, publishClaimed } from './claimed-directory.host.ts';
import { diskError } from './run-directory.host.ts';
import { artifactsOf } from './run-files.host.ts';
import { writeRunFacts } from './run-json.host.ts';
import type { RunHandle, RunnerParts, RunOptions, RunResult } from './runner.ts';
import { runPaths } from './state-directory.ts';

interface RefusedJob {
  readonly id: RunId;
  readonly job: EffectiveJob;
  readonly refusal: Refusal;
  readonly unseenStages: readonly string[];
  readonly recordedMs: number;
  readonly options: RunOptions;
}

/**
 * Records a refused job: a run that is over at once, with its bundle. The directory bears the name of this process until the store has the
 * run, so that nothing nameless stays when the process dies in between.
 */
export async function recordRefusal(parts: RunnerParts, refused: RefusedJob): Promise<RunHandle> {
  const { id, job, refusal, recordedMs, options } = refused;
  const paths = runPaths(parts.stateDirectory, id);
  const claimed = claimedDirectory(parts.stateDirectory, id);
  const ending: Ending = { kind: 'refused', detail: refusal.reason };
  const record = jobRecord(job);
  const facts = { id, attempt: null, state: 'refused', ending, user: currentUser(), recordedMs, startedMs: null, endedMs: recordedMs } as const;
  try {
    mkdirSync(claimed, { recursive: true, mode: 0o700 });
    writeRunFacts(claimed, {
      version: 1,
      ...facts,
      name: record.name,
      mode: record.mode,
      argv: record.argv,
      cwd: record.cwd,
      workspace: record.workspace,
      executor: null,
      proofrunVersion: VERSION,
    });
  } catch (error) {
    throw diskError(error, claimed);
  }
  const bundle = writeBundle(
    claimed,
    writeAccount({
      ...facts,
      job: record,
      plan: null,
      refusal,
      lineage: bundleLineage(options.from, refused.unseenStages),
      closing: undefined,
      logins: [],
      stateDirectory: parts.stateDirectory,
      readable: undefined,
      hidden: [],
      possiblyRead: null,
      changes: null,
      outputs: [],
      artifacts: artifactsOf(claimed),
      warnings: job.warnings,
    }),
  );
  parts.store.recordRun(
    {
      id,
      name: job.name ?? null,
      workspace: job.workspace,
      mode: job.mode,
      executor: null,
      argv: job.argv,
      plan: null,
      ...(options.from === undefined ? {} : { lineage: options.from.lineage }),
      state: { kind: 'refused', ending, bundle: { path: paths.bundleRelative, sha256: bundle.sha256 } },
    },
    [{ kind: 'run.refused', data: { reason: refusal.reason } }],
  );
  publishClaimed(claimed, paths.directory);
  const notify = (kind: string, data: Readonly<Record<string, string | number | null>>): void => {
    options.onNotice?.({ kind, runId: id, attempt: null, timeMs: parts.clock(), data });
  };
  notify('run.refused', { reason: refusal.reason, mode: job.mode });
  notify('bundle.written', { sha256: bundle.sha256 });
  options.onRecorded?.({ id, directory: paths.directory, plan: null, unseenStages: refused.unseenStages });
  await parts.at?.('recorded');
  const exitCode = exitCodeOf(ending);
  notify('run.finished', { state: 'refused', ending: ending.kind, exit_code: exitCode });
  const result: RunResult = { id, directory: paths.directory, state: 'refused', stageState: 'none', ending, exitCode, refusal, bundle };
  const nothing = (): void => undefined;
  return { id, directory: paths.directory, signal: nothing, stop: nothing, kill: nothing, result: Promise.resolve(result) };
}
