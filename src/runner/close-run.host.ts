import type { BundleChanges, BundleLogin, RunBundle } from '../core/bundle.ts';
import { messageOf } from '../core/errors.ts';
import type { Ending, RunState, StageState } from '../core/run.ts';
import { VERSION } from '../core/version.ts';
import { missingNames } from '../stage/linked-names.host.ts';
import { dropStage } from '../stage/stage-directory.host.ts';
import { agentDirectory } from './agent-place.host.ts';
import { missingControls, unobserved, writeAccount } from './account.ts';
import { planRecord } from './bundle-plan.ts';
import { writeBundle } from './bundle.host.ts';
import { exitCodeOf } from './exit-code.ts';
import { currentUser, jobRecord } from './job-record.ts';
import { bundleLineage } from './lineage.host.ts';
import type { Built, LiveRun } from './live-run.ts';
import { isUntouchedStage, readChanges } from './read-stage.host.ts';
import { discardTree, makeRunDirectory, removeTree } from './run-directory.host.ts';
import { limitBehind, lostDimensions, stateOf } from './run-ending.ts';
import { artifactsOf, outputsOf } from './run-files.host.ts';
import { writeRunFacts } from './run-json.host.ts';
import type { RunResult } from './runner.ts';
import { joinBases, replaceRecord } from './stage-base.host.ts';
import type { Staging } from './staging.host.ts';
import { RUN_LIVING } from './live-states.ts';

/**
 * The end of a run whose sandbox is gone: change set, account, commit. `cause` is the first cause; what the final receipts say can only
 * make it worse. Rejects when the account can't be written (ERR_DISK_FULL) or another process owns the run (ERR_STORE_STALE); then the next
 * command reconciles it.
 */
export async function closeRun(run: LiveRun, built: Built, cause: Ending): Promise<RunResult> {
  const { parts, paths, plan, job } = run;
  // It was made at the start, unless that is what failed.
  makeRunDirectory(paths);
  const endedMs = parts.clock();
  const observations = built.closing?.observations ?? unobserved(plan.executor);
  const released = built.startedMs !== null;
  const ending = finalEnding(run, built, cause);
  const state = stateOf(ending, released);

  const staged = await stagedChanges(run, built, released);
  await run.at('change-set');
  const logins = await endLogins(run);
  await tidy(run, built, staged.state);

  const record = jobRecord(job);
  const user = currentUser();
  const facts = {
    id: run.id,
    attempt: run.attempt,
    state,
    ending,
    user,
    recordedMs: run.recordedMs,
    startedMs: built.startedMs,
    endedMs,
  };
  // Not synced: the bundle, which is, says the same.
  writeRunFacts(
    paths.directory,
    {
      version: 1,
      ...facts,
      name: record.name,
      mode: record.mode,
      argv: record.argv,
      cwd: record.cwd,
      workspace: record.workspace,
      executor: { id: plan.executor, version: VERSION },
      proofrunVersion: VERSION,
    },
    { sync: false },
  );
  const bundle = writeBundle(
    paths.directory,
    writeAccount({
      ...facts,
      job: record,
      plan: planRecord(plan),
      refusal: null,
      lineage: bundleLineage(run.options.from, run.unseenStages),
      closing: built.closing,
      logins,
      stateDirectory: parts.stateDirectory,
      agentctl: built.desk?.record(),
      readable: built.session?.readable,
      hidden: built.staging?.present ?? [],
      possiblyRead: built.possiblyRead,
      secretUse: built.secrets?.use,
      changes: staged.changes,
      outputs: built.streams === undefined ? [] : outputsOf(paths.directory, job.permissions.resources.limits.outputKeptBytes, built.streams.kept),
      artifacts: artifactsOf(paths.directory),
      warnings: [...run.warnings, ...(released ? missingControls(plan, observations) : [])],
    }),
  );
  run.notify('bundle.written', { sha256: bundle.sha256 });
  await run.at('bundle-written');
  await built.streams?.hide();
  commit(run, bundle, state, staged);
  if (logins.length > 0) (await import('./logins.host.ts')).forgetLogins(parts, run.id);
  const exitCode = exitCodeOf(ending);
  run.notify('run.finished', { state, ending: ending.kind, exit_code: exitCode });
  await run.at('committed');
  return { id: run.id, directory: paths.directory, state, stageState: staged.state, ending, exitCode, refusal: null, bundle };
}

/** Before the private home goes. A lock that can't be had leaves the record and the home to the next command. */
async function endLogins(run: LiveRun): Promise<readonly BundleLogin[]> {
  if (run.job.permissions.credentials.logins === undefined) return [];
  return (await import('./logins.host.ts')).settleLogins(run.parts, run.id);
}

/** A needed control that isn't there at the end makes the command's own end worthless. */
function finalEnding(run: LiveRun, built: Built, cause: Ending): Ending {
  const { plan, job } = run;
  if (built.startedMs === null || cause.kind === 'control_lost' || cause.kind === 'launch_failed') return cause;
  const lost = lostDimensions(plan.needed, built.closing?.observations ?? unobserved(plan.executor));
  if (lost.length > 0) return { kind: 'control_lost', detail: `${lost.join(', ')} ${lost.length === 1 ? 'was' : 'were'} not enforced at the end` };
  return limitBehind(cause, job.permissions.resources.limits, built.closing?.limitHits ?? []);
}

interface StagedOutcome {
  readonly changes: BundleChanges | null;
  readonly state: StageState;
}

async function stagedChanges(run: LiveRun, built: Built, released: boolean): Promise<StagedOutcome> {
  const { staging } = built;
  // Before the release nothing of the job ran, and nothing can lie in the stage.
  if (staging === undefined || !released) return { changes: null, state: 'none' };
  if (staging.roots.length === 0) return { changes: null, state: 'none' };
  try {
    run.warnings.push(...missingNames(staging.roots));
    const roots = await joinStage(run, staging);
    const changes = await readChanges(run.parts, { ...staging, roots, workspace: run.job.workspace });
    return { changes, state: changes.changes.length === 0 ? 'none' : 'staged' };
  } catch (error) {
    // Nothing is thrown away that could not be looked at.
    run.warnings.push(`the stage could not be read: ${messageOf(error)}; it is kept`);
    return { changes: null, state: 'staged' };
  }
}

/** One layer of what the run started from and what it wrote. */
async function joinStage(run: LiveRun, staging: Staging): Promise<Staging['roots']> {
  if (staging.roots.every((root) => root.base === undefined)) return staging.roots;
  const { stage } = run.paths;
  return await joinBases(
    run.parts,
    stage,
    staging,
    (roots) => {
      replaceRecord(stage, { version: 1, markers: staging.markers, hidden: staging.hidden, present: staging.present, roots });
    },
    run.at,
  );
}

/** The private home and the overlay's work directories go; an empty stage too. */
async function tidy(run: LiveRun, built: Built, stage: StageState): Promise<void> {
  const left = [
    ...(await discardTree(run.parts.shim, run.paths.scratch)),
    ...removeTree(agentDirectory(run.paths.directory)),
    ...(stage === 'none' ? [] : (built.staging?.roots ?? []).flatMap((root) => removeTree(root.work))),
  ];
  if (left.length > 0) run.warnings.push(`could not be removed: ${left.slice(0, 3).join(', ')}${left.length > 3 ? ` and ${left.length - 3} more` : ''}`);
  if (stage === 'none' && built.staging !== undefined) await dropEmptyStage(run, built.staging);
}

/** A layer in which something was made and nothing is left to apply may still be as deep as no path can be: that takes the shim. */
async function dropEmptyStage(run: LiveRun, staging: Staging): Promise<void> {
  try {
    if (isUntouchedStage(staging)) {
      if (removeTree(run.paths.stage).length === 0) return;
    }
    await dropStage({ shim: run.parts.shim, directory: run.paths.stage });
  } catch (error) {
    run.warnings.push(`the empty stage could not be removed: ${messageOf(error)}`);
  }
}

function commit(run: LiveRun, bundle: RunBundle, state: RunState, staged: StagedOutcome): void {
  const { ending, startedMs, endedMs } = bundle.run;
  run.parts.store.transition(run.id, {
    from: RUN_LIVING,
    to: state,
    fence: run.fence,
    events: [{ kind: `run.${state}`, data: { ending: ending?.kind ?? null, bundle_sha256: bundle.sha256 } }],
    fields: {
      ...(ending === null ? {} : { ending }),
      ...(startedMs === null ? {} : { startedMs }),
      ...(endedMs === null ? {} : { endedMs }),
      bundle: { path: run.paths.bundleRelative, sha256: bundle.sha256 },
      stageState: staged.state,
      ...(staged.changes === null ? {} : { stagedSummary: staged.changes.totals }),
    },
  });
}
