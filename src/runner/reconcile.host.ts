import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { BUNDLE_FILE, type BundleChanges, type BundleLogin, type BundlePlan, type HiddenPath, type RunBundle } from '../core/bundle.ts';
import { toCamel } from '../core/case.ts';
import { messageOf, ProofrunError } from '../core/errors.ts';
import { EXECUTOR_IDS } from '../core/plan.ts';
import { TERMINAL_STATES, type Ending, type RunState } from '../core/run.ts';
import { VERSION } from '../core/version.ts';
import { canReap } from '../executor/executor.ts';
import { dropStage, type RecoveredApply } from '../stage/index.ts';
import { missingNames } from '../stage/linked-names.host.ts';
import { sweepTemporaries } from '../store/durable-file.host.ts';
import { currentOwner, type StoredRun } from '../store/index.ts';
import { writeAccount } from './account.ts';
import { agentDirectory } from './agent-place.host.ts';
import { recoverApplies } from './apply-run.host.ts';
import { readBundle, writeBundle } from './bundle.host.ts';
import { settleCheckpoints } from './checkpoint.host.ts';
import { settleClaimed } from './claimed-directory.host.ts';
import { removeControlSocket } from './control-socket.host.ts';
import { parseRecordedFacts, type RecordedFacts } from './job-record.ts';
import { failedLogin } from './login-words.ts';
import { LEASE_MS } from './lease.host.ts';
import { endLeftovers } from './leftover-processes.host.ts';
import { RUN_LIVING } from './live-states.ts';
import { readAttempt, type AttemptRecord } from './process-identity.host.ts';
import { readChanges } from './read-stage.host.ts';
import { spendReserve } from './reserve.host.ts';
import { discardTree, makeRunDirectory, removeTree } from './run-directory.host.ts';
import { artifactsOf, outputsOf } from './run-files.host.ts';
import { RUN_FILE, writeRunFacts } from './run-json.host.ts';
import { hasLedgers } from './pending-work.host.ts';
import type { RunnerParts } from './runner.ts';
import type { StageRecord } from './stage-record.ts';
import { joinBases, replaceRecord } from './stage-base.host.ts';
import { readStageRecord } from './staged-run.host.ts';
import { runPaths, type RunPaths } from './state-directory.ts';

/** What became of one run whose owner died. */
export interface ReconciledRun {
  readonly id: string;
  /** interrupted; another end when the owner died after its account was written. */
  readonly state: RunState;
  readonly killed: readonly number[];
  readonly warnings: readonly string[];
}

export interface Reconciled {
  readonly runs: readonly ReconciledRun[];
  readonly applies: readonly RecoveredApply[];
  /** What couldn't be settled now: an apply that needs a person (ERR_APPLY_INTERRUPTED), or anything on a full disk (ERR_DISK_FULL). */
  readonly unsettled: ProofrunError | undefined;
}

/**
 * Ends every run whose owner died: leftover processes are killed by their recorded identity, scratch goes, the executor takes away what it
 * left outside the process tree, the stage is kept and read, a bundle is written in which nothing is enforced, and the run becomes
 * `interrupted`. A run that another command reconciles at the same moment is left to it. Applies that a killed process left half way are
 * finished or rolled back. Throws what the store throws.
 */
export async function reconcile(parts: RunnerParts): Promise<Reconciled> {
  const runs: ReconciledRun[] = [];
  const applies: RecoveredApply[] = [];
  try {
    settleClaimed(parts.stateDirectory, parts.store);
    await settleCheckpoints(parts);
    if (existsSync(join(parts.stateDirectory, 'logins'))) (await import('./logins.host.ts')).sweepLogins(parts, parts.store);
    for (const run of parts.store.reconcilable()) {
      const result = await reconcileRun(parts, run);
      if (result !== undefined) runs.push(result);
    }
    if (hasLedgers(parts.stateDirectory)) applies.push(...(await recoverApplies(parts)));
    return { runs, applies, unsettled: undefined };
  } catch (error) {
    if (!(error instanceof ProofrunError) || (error.code !== 'ERR_APPLY_INTERRUPTED' && error.code !== 'ERR_DISK_FULL')) throw error;
    if (error.code !== 'ERR_DISK_FULL' || !spendReserve(parts.stateDirectory)) return { runs, applies, unsettled: error };
    const rest = await reconcile(parts);
    return { runs: [...runs, ...rest.runs], applies: [...applies, ...rest.applies], unsettled: rest.unsettled };
  }
}

async function reconcileRun(parts: RunnerParts, orphan: StoredRun): Promise<ReconciledRun | undefined> {
  const { store } = parts;
  let run: StoredRun;
  try {
    run = store.takeOver(orphan.id, orphan.fence, { owner: currentOwner(), expiresMs: parts.clock() + LEASE_MS }, [{ kind: 'run.taken_over' }]);
  } catch (error) {
    if (error instanceof ProofrunError && error.code === 'ERR_STORE_STALE') return undefined;
    throw error;
  }
  const paths = runPaths(parts.stateDirectory, run.id);
  const warnings: string[] = [];
  makeRunDirectory(paths);
  const attempt = readAttempt(paths.attempt);
  const { killed, left: deaf } = endLeftovers(attempt?.processes ?? []);
  if (deaf.length > 0) warnings.push(`processes ${deaf.join(', ')} of the job could not be killed`);
  removeControlSocket(paths.directory);
  await reapRest(parts, run, attempt, paths, warnings);
  const logins = existsSync(join(parts.stateDirectory, 'logins')) ? (await import('./logins.host.ts')).settleLogins(parts, run.id) : [];
  for (const login of logins) if (login.outcome === 'failed') warnings.push(failedLogin(login));
  const left = [...(await discardTree(parts.shim, paths.scratch)), ...removeTree(agentDirectory(paths.directory))];
  if (left.length > 0) warnings.push(`could not be removed: ${left.slice(0, 3).join(', ')}`);
  rmSync(paths.attempt, { force: true });
  const { state } = await commit(parts, run, paths, { warnings, logins, ownerPid: orphan.lease?.owner.pid });
  if (logins.length > 0) (await import('./logins.host.ts')).forgetLogins(parts, run.id);
  return { id: run.id, state, killed, warnings };
}

async function reapRest(parts: RunnerParts, run: StoredRun, attempt: AttemptRecord | undefined, paths: RunPaths, warnings: string[]): Promise<void> {
  const id = EXECUTOR_IDS.find((one) => one === run.executor);
  if (id === undefined) return;
  try {
    const executor = await parts.executor(id);
    if (canReap(executor)) warnings.push(...(await executor.reap({ runId: run.id, attempt: attempt?.attempt ?? '', scratch: paths.scratch })));
  } catch (error) {
    warnings.push(`the ${id} executor could not be asked what it left: ${messageOf(error)}`);
  }
}

interface Reconciling {
  readonly warnings: string[];
  readonly logins: readonly BundleLogin[];
  readonly ownerPid: number | undefined;
}

async function commit(parts: RunnerParts, run: StoredRun, paths: RunPaths, { warnings, logins, ownerPid }: Reconciling): Promise<StoredRun> {
  for (const name of [RUN_FILE, BUNDLE_FILE]) sweepTemporaries(join(paths.directory, name));
  const finished = await wholeBundle(run, paths);
  if (finished !== undefined) {
    // The owner died between its bundle and the record of it: the account is whole, and says how the run ended.
    const { state, ending, endedMs } = finished.run;
    const changes = finished.changes;
    return parts.store.transition(run.id, {
      from: RUN_LIVING,
      to: state,
      fence: run.fence,
      events: [{ kind: `run.${state}`, data: { ending: ending?.kind ?? null, bundle_sha256: finished.sha256 } }],
      fields: {
        ...(ending === null ? {} : { ending }),
        ...(endedMs === null ? {} : { endedMs }),
        bundle: { path: paths.bundleRelative, sha256: finished.sha256 },
        stageState: changes !== null && changes.changes.length > 0 ? 'staged' : 'none',
        ...(changes === null ? {} : { stagedSummary: changes.totals }),
      },
    });
  }
  const ending: Ending = {
    kind: 'interrupted',
    detail: ownerPid === undefined ? 'the process that owned it died' : `the process that owned it (${ownerPid}) died`,
  };
  const record = recordedFacts(parts, run);
  const staged = await stagedOf(parts, run, paths, warnings);
  const bundle =
    record === undefined
      ? undefined
      : await interruptedBundle({ run, paths, ending, record, staged, warnings, logins, stateDirectory: parts.stateDirectory, endedMs: parts.clock() });
  return parts.store.transition(run.id, {
    from: RUN_LIVING,
    to: 'interrupted',
    fence: run.fence,
    events: [{ kind: 'run.interrupted', data: { reason: ending.detail, ...(bundle === undefined ? {} : { bundle_sha256: bundle.sha256 }) } }],
    fields: {
      ending,
      ...(bundle === undefined ? {} : { bundle: { path: paths.bundleRelative, sha256: bundle.sha256 } }),
      stageState: staged.kept ? 'staged' : 'none',
      ...(staged.changes === null ? {} : { stagedSummary: staged.changes.totals }),
    },
  });
}

/** The bundle that a dying owner still wrote, when it is whole and of this run. */
async function wholeBundle(run: StoredRun, paths: RunPaths): Promise<RunBundle | undefined> {
  const file = join(paths.directory, BUNDLE_FILE);
  if (!existsSync(file)) return undefined;
  try {
    const bundle = await readBundle(file);
    return bundle.run.id === run.id && TERMINAL_STATES.includes(bundle.run.state) ? bundle : undefined;
  } catch (error) {
    if (error instanceof ProofrunError && error.code === 'ERR_BUNDLE_INVALID') return undefined;
    throw error;
  }
}

/** What was asked, from the first event. Undefined for a damaged record. */
function recordedFacts(parts: RunnerParts, run: StoredRun): RecordedFacts | undefined {
  const [first] = parts.store.events(run.id);
  return first?.kind === 'run.recorded' ? parseRecordedFacts(first.data) : undefined;
}

interface KeptStage {
  readonly kept: boolean;
  readonly changes: BundleChanges | null;
  readonly hidden: readonly HiddenPath[];
}

/** A stage that can't be read is kept; one in which nothing was made goes. */
async function stagedOf(parts: RunnerParts, run: StoredRun, paths: RunPaths, warnings: string[]): Promise<KeptStage> {
  const drop = async (): Promise<void> => {
    await dropStage({ shim: parts.shim, directory: paths.stage }).catch((error: unknown) =>
      warnings.push(`the stage could not be removed: ${messageOf(error)}`),
    );
  };
  let record: StageRecord | undefined;
  try {
    record = readStageRecord(paths.stage);
    if (record === undefined) {
      if (existsSync(paths.stage)) await drop();
      return { kept: false, changes: null, hidden: [] };
    }
    warnings.push(...missingNames(record.roots));
    for (const root of record.roots) removeTree(root.work);
    const known = record;
    const roots = await joinBases(parts, paths.stage, known, (joined) => {
      replaceRecord(paths.stage, { ...known, roots: joined });
    });
    const changes = await readChanges(parts, { ...record, roots, workspace: run.workspace });
    const kept = changes.changes.length > 0;
    if (!kept) await drop();
    return { kept, changes, hidden: record.present };
  } catch (error) {
    warnings.push(`the stage could not be read: ${messageOf(error)}; it is kept`);
    return { kept: true, changes: null, hidden: record?.present ?? [] };
  }
}

interface InterruptedFacts {
  readonly run: StoredRun;
  readonly paths: RunPaths;
  readonly ending: Ending;
  readonly record: RecordedFacts;
  readonly staged: KeptStage;
  readonly warnings: readonly string[];
  readonly logins: readonly BundleLogin[];
  readonly stateDirectory: string;
  readonly endedMs: number;
}

/** Nothing was observed at the end, so nothing is enforced. Undefined when the record doesn't make a bundle that can be read back. */
async function interruptedBundle({
  run,
  paths,
  ending,
  record,
  staged,
  warnings,
  logins,
  stateDirectory,
  endedMs,
}: InterruptedFacts): Promise<RunBundle | undefined> {
  const { job, attempt, user } = record;
  const facts = { id: run.id, attempt, state: 'interrupted', ending, user, recordedMs: run.createdMs, startedMs: run.startedMs, endedMs } as const;
  const plan = run.plan === null ? null : (toCamel(run.plan) as unknown as BundlePlan);
  writeRunFacts(paths.directory, {
    version: 1,
    ...facts,
    name: job.name,
    mode: job.mode,
    argv: job.argv,
    cwd: job.cwd,
    workspace: job.workspace,
    executor: plan === null ? null : { id: plan.executor, version: VERSION },
    proofrunVersion: VERSION,
  });
  const bundle = writeBundle(
    paths.directory,
    writeAccount({
      ...facts,
      job,
      plan,
      refusal: null,
      lineage: record.lineage,
      closing: undefined,
      logins,
      stateDirectory,
      readable: undefined,
      hidden: staged.hidden,
      possiblyRead: null,
      changes: staged.changes,
      outputs: outputsOf(paths.directory, job.permissions.resources.limits.outputKeptBytes),
      artifacts: artifactsOf(paths.directory),
      warnings: [...record.warnings, ...warnings],
    }),
  );
  return await readBundle(join(paths.directory, BUNDLE_FILE), bundle.sha256).catch((error: unknown) => {
    if (!(error instanceof ProofrunError)) throw error;
    rmSync(join(paths.directory, BUNDLE_FILE), { force: true });
    return undefined;
  });
}
