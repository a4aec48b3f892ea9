import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { admit } from '../admission/admit.ts';
import { ProofrunError } from '../core/errors.ts';
import { newRunId } from '../core/ids.ts';
import type { EffectiveJob } from '../core/job.ts';
import type { ExecutorCapabilities } from '../core/plan.ts';
import type { Ending } from '../core/run.ts';
import { decideGate } from '../evidence/index.ts';
import { startsFromLayers, type Session, type StagedView } from '../executor/executor.ts';
import type { StoredRun } from '../store/index.ts';
import { claimedDirectory } from './claimed-directory.host.ts';
import { commandControl, type CommandControl } from './command-control.ts';
import { firstCause, type FirstCause } from './first-cause.ts';
import { discardTree } from './run-directory.host.ts';
import { gateWords, lostDimensions } from './run-ending.ts';
import type { RunIo, RunnerParts } from './runner.ts';
import { hiddenInView } from './staging.host.ts';
import { startOnRun, type StartingPoint } from './starting-point.host.ts';

export interface Inspection {
  readonly control: Pick<CommandControl, 'signal' | 'stop' | 'kill'>;
  /** How the command ended. */
  readonly ending: Promise<Ending>;
}

export interface InspectInput {
  readonly run: StoredRun;
  /** What is asked of the sandbox; its stage is what the run staged, shown read-only. */
  readonly job: EffectiveJob;
  readonly capabilities: readonly ExecutorCapabilities[];
  readonly io: RunIo;
}

/**
 * Starts a command over a read-only view of what a run staged. Nothing is recorded and nothing is kept; the sandbox is held to the same
 * gate as a run's. ERR_RUN_STATE, ERR_ADMISSION_REFUSED, ERR_WORKSPACE; ERR_EVIDENCE_MISSING and ERR_LAUNCH reject the ending.
 */
export function inspectRun(parts: RunnerParts, input: InspectInput): Inspection {
  const { job, capabilities } = input;
  const from = startOnRun(parts, input.run);
  const roots = from.roots.map(({ root }) => root);
  if (!roots.includes(job.workspace)) {
    throw new ProofrunError('ERR_WORKSPACE', { message: `${from.name} staged ${roots.join(', ')}, not ${job.workspace}`, hint: `cd ${roots[0] ?? ''}` });
  }
  const readOnly: EffectiveJob = {
    ...job,
    permissions: { ...job.permissions, fileRead: { ...job.permissions.fileRead, states: [] }, fileWrite: { ...job.permissions.fileWrite, stage: [] } },
  };
  const admission = admit(readOnly, capabilities);
  if (admission.kind === 'refused') throw new ProofrunError('ERR_ADMISSION_REFUSED', { message: admission.refusal.reason, hint: 'job doctor' });
  const cause = firstCause();
  const control = commandControl(cause);
  return { control, ending: live(parts, { ...input, from, plan: admission.plan, cause, control }) };
}

interface LiveInspection extends InspectInput {
  readonly from: StartingPoint;
  readonly plan: Extract<ReturnType<typeof admit>, { kind: 'admitted' }>['plan'];
  readonly cause: FirstCause;
  readonly control: CommandControl;
}

async function live(parts: RunnerParts, input: LiveInspection): Promise<Ending> {
  const { from, plan, job, cause, control, io } = input;
  const executor = await parts.executor(plan.executor);
  if (!startsFromLayers(executor)) {
    throw new ProofrunError('ERR_USAGE', {
      message: `the ${plan.executor} executor can't show a staged result read-only`,
      hint: 'job inspect --executor native ...',
    });
  }
  const views = from.roots.map((root): StagedView => {
    const own = { run: from.lineage.parent, preimage: root.preimage, index: root.index ?? '', hidden: from.hidden };
    return { root: root.root, base: root.upper, earlier: [own, ...(root.earlier ?? [])] };
  });
  const directory = claimedDirectory(parts.stateDirectory, newRunId(parts.clock()));
  // The executor takes the name above the scratch directory for the sandbox's own.
  const scratch = join(directory, 'scratch');
  mkdirSync(scratch, { recursive: true, mode: 0o700 });
  let session: Session | undefined;
  try {
    session = await executor.launch({
      plan,
      stage: [],
      views,
      scratch,
      hidden: await hiddenInView(parts.shim, job, views),
      stateDirectory: parts.stateDirectory,
      io: io.kind === 'terminal' ? { kind: 'terminal' } : { kind: 'pipes', stdin: io.stdin },
      abort: control.abort,
    });
    return await through(session, input, cause);
  } finally {
    await session?.close();
    await discardTree(parts.shim, directory);
  }
}

/** Gate, command, final receipts. */
async function through(session: Session, { plan, io, control }: LiveInspection, cause: FirstCause): Promise<Ending> {
  const decision = decideGate(plan.needed, session.requirements, session.receipts);
  if (decision.kind === 'refuse') throw new ProofrunError('ERR_EVIDENCE_MISSING', { message: gateWords(decision), hint: 'job doctor' });
  const early = cause.current();
  if (early !== undefined) return early;
  const drained = io.kind === 'pipes' ? [pass(session.stdout, io.stdout), pass(session.stderr, io.stderr)] : [];
  void session.exited.then(cause.settle);
  control.attach(session);
  await session.release();
  const ending = await cause.settled;
  control.detach();
  const closing = await session.close();
  await Promise.all(drained);
  const lost = lostDimensions(plan.needed, closing.observations);
  return lost.length === 0 ? ending : { kind: 'control_lost', detail: `${lost.join(', ')} not enforced at the end` };
}

/** Resolves when everything has been handed on. */
function pass(from: Session['stdout'], to: Extract<RunIo, { kind: 'pipes' }>['stdout']): Promise<void> {
  if (from === undefined) return Promise.resolve();
  if (to === undefined) from.resume();
  else from.pipe(to, { end: false });
  return new Promise((resolve) => {
    from.once('close', resolve);
    from.once('end', resolve);
  });
}
