import { randomBytes } from 'node:crypto';
import { toSnake } from '../core/case.ts';
import { messageOf, ProofrunError } from '../core/errors.ts';
import { newAttemptId, newRunId } from '../core/ids.ts';
import { PLACEHOLDER_PREFIX, type EffectiveJob } from '../core/job.ts';
import type { Admission, ExecutorPlan } from '../core/plan.ts';
import type { Ending } from '../core/run.ts';
import { decideGate } from '../evidence/index.ts';
import { canBegin, type LaunchRequest, type Session } from '../executor/executor.ts';
import { createSecretInjector, type InjectedSecret } from '../overlaynet/injection.ts';
import { currentOwner } from '../store/index.ts';
import { openDesk, type AgentDesk } from './agent-desk.ts';
import { makeAgentDirectory } from './agent-place.host.ts';
import { AGENT_VARIABLE } from './agent-protocol.ts';
import { planRecord } from './bundle-plan.ts';
import { closeRun } from './close-run.host.ts';
import { commandControl } from './command-control.ts';
import { firstCause } from './first-cause.ts';
import { currentUser, formatRecordedFacts, jobRecord } from './job-record.ts';
import { keepLease, LEASE_MS } from './lease.host.ts';
import { bundleLineage, unseenStages } from './lineage.host.ts';
import type { Built, LiveRun } from './live-run.ts';
import { startTimer } from './long-timer.ts';
import { identify, writeAttempt } from './process-identity.host.ts';
import { recordRefusal } from './refused-run.host.ts';
import { keepReserve, spendReserve } from './reserve.host.ts';
import { makeRunDirectory, removeFile } from './run-directory.host.ts';
import { gateWords } from './run-ending.ts';
import { networkServiceFor } from './run-network.host.ts';
import { openStreams } from './run-streams.host.ts';
import type { RunHandle, RunnerParts, RunOptions, RunResult } from './runner.ts';
import { prepareStaging } from './staging.host.ts';
import { refuseOtherRoots } from './starting-point.host.ts';
import { runPaths } from './state-directory.ts';

/**
 * Records a run and lives it: stage, launch, gate, command, close, account. Resolves when the run is in the store; a refused job is a run
 * that is over at once. Rejects, with nothing recorded, when the store can't be written.
 */
export async function startRun(parts: RunnerParts, admission: Admission, options: RunOptions): Promise<RunHandle> {
  const recordedMs = parts.clock();
  const id = newRunId(recordedMs);
  const { workspace } = admission.kind === 'admitted' ? admission.plan.job : admission.job;
  const { from } = options;
  const unseen = unseenStages(parts.store, workspace, from);
  if (admission.kind === 'refused') {
    return await recordRefusal(parts, { id, job: admission.job, refusal: admission.refusal, unseenStages: unseen, recordedMs, options });
  }

  const plan = withPlaceholders(withAgentVariable(admission.plan));
  const { job } = plan;
  if (from !== undefined) await refuseOtherRoots(parts, from, plan);
  keepReserve(parts.stateDirectory);
  const attempt = newAttemptId(recordedMs);
  const stored = parts.store.recordRun(
    {
      id,
      name: job.name ?? null,
      workspace: job.workspace,
      mode: job.mode,
      executor: plan.executor,
      argv: job.argv,
      plan: toSnake(planRecord(plan)),
      ...(from === undefined ? {} : { lineage: from.lineage }),
      state: { kind: 'recorded', lease: { owner: currentOwner(), expiresMs: recordedMs + LEASE_MS } },
    },
    [
      {
        kind: 'run.recorded',
        data: formatRecordedFacts({ attempt, user: currentUser(), lineage: bundleLineage(from, unseen), warnings: plan.warnings, job: jobRecord(job) }),
      },
    ],
  );
  const cause = firstCause();
  const control = commandControl(cause);
  const warnings = [...plan.warnings];
  const run: LiveRun = {
    parts,
    options,
    id,
    attempt,
    paths: runPaths(parts.stateDirectory, id),
    job,
    plan,
    fence: stored.fence,
    recordedMs,
    unseenStages: unseen,
    cause,
    control,
    warnings,
    notify: (kind, data = {}) => {
      try {
        options.onNotice?.({ kind, runId: id, attempt, timeMs: parts.clock(), data });
      } catch (error) {
        warnings.push(`a listener failed at ${kind}: ${messageOf(error)}`);
      }
    },
    at: async (point) => {
      await parts.at?.(point);
    },
  };
  return { id, directory: run.paths.directory, signal: control.signal, stop: control.stop, kill: control.kill, result: live(run) };
}

/** A job finds AgentCtl by a variable of its environment; one that it was started with, inside another job perhaps, names nothing here. */
function withAgentVariable(plan: ExecutorPlan): ExecutorPlan {
  const { credentials } = plan.job.permissions;
  const others = Object.entries(credentials.environment).filter(([name]) => name !== AGENT_VARIABLE);
  const named: readonly (readonly [string, string])[] = plan.agentSocket === undefined ? others : [...others, [AGENT_VARIABLE, plan.agentSocket]];
  const environment = Object.fromEntries([...named].sort(([a], [b]) => (a < b ? -1 : 1)));
  return { ...plan, job: { ...plan.job, permissions: { ...plan.job.permissions, credentials: { ...credentials, environment } } } };
}

/** What the job holds in place of each injected secret: another text in each run, and recognisable. */
function withPlaceholders(plan: ExecutorPlan): ExecutorPlan {
  const { credentials } = plan.job.permissions;
  const names = new Set(credentials.secrets.flatMap((secret) => (secret.inject === undefined ? [] : [secret.name])));
  if (names.size === 0) return plan;
  const environment = Object.fromEntries(
    Object.entries(credentials.environment).map(([name, value]) => [name, names.has(name) ? `${PLACEHOLDER_PREFIX}${randomBytes(16).toString('hex')}` : value]),
  );
  return { ...plan, job: { ...plan.job, permissions: { ...plan.job.permissions, credentials: { ...credentials, environment } } } };
}

async function injectedSecrets(job: EffectiveJob): Promise<readonly InjectedSecret[]> {
  if (job.permissions.network.kind !== 'selective' || job.permissions.credentials.secrets.every((secret) => secret.inject === undefined)) return [];
  return await (await import('./secret-source.host.ts')).readInjectedSecrets(job, process.env);
}

async function live(run: LiveRun): Promise<RunResult> {
  const built: Built = {
    streams: undefined,
    staging: undefined,
    session: undefined,
    startedMs: null,
    desk: undefined,
    closing: undefined,
    possiblyRead: null,
    secrets: undefined,
  };
  const stopLease = keepLease(run);
  try {
    try {
      makeRunDirectory(run.paths);
      run.notify('run.recorded', { executor: run.plan.executor, mode: run.job.mode });
      run.options.onRecorded?.({ id: run.id, directory: run.paths.directory, plan: run.plan, unseenStages: run.unseenStages });
      await run.at('recorded');
      const session = await build(run, built);
      if (session !== undefined) await gateAndCommand(run, session, built);
    } catch (error) {
      const hint = error instanceof ProofrunError && error.hint !== undefined ? `; ${error.hint}` : '';
      run.cause.settle({ kind: built.startedMs === null ? 'launch_failed' : 'control_lost', detail: `${messageOf(error)}${hint}` });
    }
    const ending = await run.cause.settled;
    run.control.detach();
    await built.desk?.end();
    await tearDown(run, built);
    return await closeWithRoom(run, built, ending);
  } finally {
    stopLease();
    await built.streams?.end();
  }
}

/** A job may have filled the disk: then the reserve makes room, and the account is written again. */
async function closeWithRoom(run: LiveRun, built: Built, ending: Ending): Promise<RunResult> {
  try {
    return await closeRun(run, built, ending);
  } catch (error) {
    if (!(error instanceof ProofrunError) || error.code !== 'ERR_DISK_FULL' || !spendReserve(run.parts.stateDirectory)) throw error;
    run.warnings.push(`the disk that holds the state directory was full at the end: ${error.message}`);
    return await closeRun(run, built, ending);
  }
}

/** Stage, sandbox: up to the moment at which the sandbox waits. Undefined: something ended the run before. */
async function build(run: LiveRun, built: Built): Promise<Session | undefined> {
  const { io, onOutput } = run.options;
  built.streams = openStreams({
    directory: run.paths.directory,
    io,
    keptBytes: run.job.permissions.resources.limits.outputKeptBytes,
    control: run.control,
    onOutput,
  });
  const executor = await run.parts.executor(run.plan.executor);
  const launch = {
    plan: run.plan,
    scratch: run.paths.scratch,
    ...(run.plan.agentSocket === undefined ? {} : { agent: { guestSocket: run.plan.agentSocket, hostDirectory: makeAgentDirectory(run.paths.directory) } }),
    io: io.kind === 'terminal' ? { kind: 'terminal' as const } : { kind: 'pipes' as const, stdin: io.stdin },
  };
  const preparing = prepareStaging(run);
  const begun = canBegin(executor) ? executor.begin(launch) : undefined;
  try {
    built.staging = await preparing;
    await run.at('stage-prepared');
    if (run.cause.current() !== undefined) return undefined;
    const logins = await takeLogins(run);
    const injected = await injectedSecrets(run.job);
    if (injected.length > 0) built.secrets = createSecretInjector(injected, run.parts.clock);
    const network = networkServiceFor(run.job, run.parts.upstream, run.parts.clock, built.secrets);
    built.session = await executor.launch({
      ...launch,
      ...(network === undefined ? {} : { network }),
      stage: built.staging.roots,
      hidden: built.staging.absent,
      stateDirectory: run.parts.stateDirectory,
      ...(logins.length === 0 ? {} : { logins }),
      abort: run.control.abort,
      ...(begun === undefined ? {} : { begun }),
    });
  } finally {
    await begun?.discard();
  }
  // Before anything of the job runs: what is recorded here is what a later command ends when this process dies.
  recordProcesses(run, built.session);
  await placeHome(run, built.session);
  run.notify('run.launched');
  await run.at('launched');
  return built.session;
}

/** Copies of the login files that the job's profiles name. */
async function takeLogins(run: LiveRun): Promise<NonNullable<LaunchRequest['logins']>> {
  if (run.job.permissions.credentials.logins === undefined) return [];
  const { prepareLogins, sweepLogins } = await import('./logins.host.ts');
  sweepLogins(run.parts, run.parts.store);
  const { files, warnings } = prepareLogins(run.parts, run.id, run.job);
  run.warnings.push(...warnings);
  return files;
}

/** From here on another command finds what the job does to its login. */
async function placeHome(run: LiveRun, session: Session): Promise<void> {
  if (run.job.permissions.credentials.logins === undefined || session.privateHome === undefined) return;
  (await import('./logins.host.ts')).placeLogins(run.parts, run.id, session.privateHome);
}

/** Compares the receipts with the plan, and releases the command or not. Resolves when something has ended the run. */
async function gateAndCommand(run: LiveRun, session: Session, built: Built): Promise<void> {
  const { cause, control, plan } = run;
  const decision = decideGate(plan.needed, session.requirements, session.receipts);
  run.notify('gate.decided', { decision: decision.kind });
  await run.at('gate');
  if (decision.kind === 'refuse') cause.settle({ kind: 'evidence_missing', detail: gateWords(decision) });
  if (cause.current() !== undefined) return;

  built.streams?.connect(session);
  void session.exited.then(cause.settle);
  control.attach(session);
  built.desk = openAgentDesk(run, session, built);
  const before = session.hostPids.length;
  await session.release();
  // An executor without a sandbox has its process only now.
  if (session.hostPids.length > before) recordProcesses(run, session);
  built.startedMs = run.parts.clock();
  run.options.onReleased?.();
  run.notify('command.released');
  await run.at('released');
  const { wallTimeMs } = plan.job.permissions.resources.limits;
  const cancel = wallTimeMs === undefined ? undefined : startTimer(wallTimeMs, () => cause.settle({ kind: 'timeout', afterMs: wallTimeMs }));
  const recorded = recordRunning(run, built.startedMs);
  await run.at('running');
  const ending = await cause.settled;
  cancel?.();
  recorded.cancel();
  run.notify('command.ended', {
    ending: ending.kind,
    ...(ending.kind === 'exit' ? { code: ending.code } : ending.kind === 'signal' ? { signal: ending.signal } : {}),
  });
  await run.at('exited');
}

/** AgentCtl of a run whose sandbox has it. */
function openAgentDesk(run: LiveRun, session: Session, built: Built): AgentDesk | undefined {
  const { staging } = built;
  if (session.agent === undefined || staging === undefined) return undefined;
  return openDesk(session.agent, {
    id: run.id,
    clock: run.parts.clock,
    checkpoint: async (name, unchanged) => await (await import('./live-checkpoint.host.ts')).keepLive(run, staging, name, unchanged),
    stop: () => {
      run.control.stop(STOP_GRACE_MS);
    },
  });
}

/** From SIGTERM to SIGKILL, for a program that was asked to end and didn't. */
const STOP_GRACE_MS = 5000;

function recordProcesses(run: LiveRun, session: Session): void {
  writeAttempt(run.paths.attempt, { attempt: run.attempt, executor: run.plan.executor, processes: identify(session.hostPids) });
}

/** How long a command has to run before the store says that it runs, in milliseconds: a shorter one is only recorded at its end. */
const WORTH_RECORDING_MS = 25;

/**
 * Off the way of the command, which already runs. A full disk costs the state `running`, not the run; another owner of the run ends it. A
 * process that announces its points records at once, so that there is a point after it.
 */
function recordRunning(run: LiveRun, startedMs: number): { readonly cancel: () => void } {
  const record = (): void => {
    try {
      run.parts.store.transition(run.id, { from: ['recorded'], to: 'running', fence: run.fence, events: [{ kind: 'run.running' }], fields: { startedMs } });
    } catch (error) {
      if (error instanceof ProofrunError && error.code === 'ERR_STORE_STALE') {
        if (run.cause.settle({ kind: 'control_lost', detail: error.message })) run.control.kill();
        return;
      }
      run.warnings.push(`the store could not record that the command runs: ${messageOf(error)}`);
    }
  };
  if (run.parts.at !== undefined) {
    record();
    return { cancel: () => undefined };
  }
  const timer = setTimeout(record, WORTH_RECORDING_MS);
  return {
    cancel: () => {
      clearTimeout(timer);
    },
  };
}

/** The hidden names were those at the start; what appeared since may have been read. */
async function searchAgain(run: LiveRun, built: Built): Promise<void> {
  try {
    built.possiblyRead = (await built.staging?.possiblyRead()) ?? null;
  } catch (error) {
    run.warnings.push(`the workspace could not be searched again for names that should be hidden: ${messageOf(error)}`);
  }
}

/** Ends the tree and takes the final receipts. A sandbox that can't be closed leaves no observations, and so no level. */
async function tearDown(run: LiveRun, built: Built): Promise<void> {
  const { session, streams } = built;
  if (session !== undefined) {
    streams?.hurry();
    await run.at('closing');
    const searched = built.startedMs === null ? undefined : searchAgain(run, built);
    try {
      built.closing = await session.close();
    } catch (error) {
      run.warnings.push(`the sandbox could not be taken down cleanly: ${messageOf(error)}`);
    }
    await searched;
    await streams?.drained();
    removeFile(run.paths.attempt);
    run.notify('run.closed');
    await run.at('closed');
  }
  run.warnings.push(...(streams?.faults() ?? []), ...(built.closing?.warnings ?? []));
}
