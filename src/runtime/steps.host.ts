import { canonicalJson, sha256Hex } from '../core/canonical-json.ts';
import { STEP_ENDS } from '../core/control.ts';
import { messageOf } from '../core/errors.ts';
import { newApprovalId } from '../core/ids.ts';
import type { JsonObject } from '../core/json.ts';
import { parseStrictJson } from '../core/strict-json.ts';
import type { ControlChange, PartWrite, StepRow } from '../store/index.ts';
import { capabilityOf, presentQuestion, shownDigest, type Question } from './approval.ts';
import type { Reconciliation } from './contract.ts';
import { executeStep, recordable } from './effect.host.ts';
import { judge, type Judgement } from './judge.ts';
import { deepFreeze } from './request.ts';
import type { ControlSession } from './session.host.ts';
import type { CompiledTool } from './tool-schemas.ts';

const DEFAULT_PARALLEL = 4;

/** on: there may be more to do. over: the run ended. waiting: a person has to decide, and nobody owns the run. */
export type Progress = 'on' | 'waiting' | 'over';

/** Steps of the last reply that haven't ended. */
export function openSteps(session: ControlSession): readonly StepRow[] {
  return session.record.stepsOf(session.record.turns.size).filter((step) => !STEP_ENDS.includes(step.state));
}

/** Works on the first open step; several at once where they are read-only calls that may run. */
export async function advanceSteps(session: ControlSession): Promise<Progress> {
  const resumed = session.startedByResume.splice(0);
  if (resumed.length > 0) {
    await Promise.all(resumed.map((number) => executeStarted(session, number)));
    return 'on';
  }
  const open = openSteps(session);
  const [first] = open;
  if (first === undefined) return 'on';
  switch (first.state) {
    case 'proposed':
      return await advanceProposed(session, open);
    case 'unknown':
      return await resolveUnknown(session, first);
    default:
      session.end({ reason: 'internal_error', detail: `step ${first.number} is ${first.state} and nobody works on it` });
      return 'over';
  }
}

async function advanceProposed(session: ControlSession, open: readonly StepRow[]): Promise<Progress> {
  const batch: { readonly step: StepRow; readonly judged: Judgement & { readonly kind: 'judged' } }[] = [];
  const most = session.rules.limits.parallel ?? DEFAULT_PARALLEL;
  for (const step of open) {
    if (step.state !== 'proposed' || batch.length >= most) break;
    const judgement = await judge(
      { view: session.view(), tools: session.rules.tools, policies: session.rules.policies },
      { step: step.number, tool: step.tool, request: step.arguments },
    );
    await session.parts.at('judged');
    const readOnly = judgement.kind === 'judged' && judgement.verdict.kind === 'allow' && judgement.compiled.spec.effect === 'read-only';
    if (readOnly) {
      batch.push({ step, judged: judgement });
      continue;
    }
    // What comes before it runs first.
    if (batch.length > 0) break;
    return await act(session, step, judgement);
  }
  start(
    session,
    batch.map(({ step, judged }) => ({ step, compiled: judged.compiled, request: judged.request, policy: judged.verdict.record })),
  );
  await Promise.all(batch.map(({ step }) => executeStarted(session, step.number)));
  return 'on';
}

export async function act(session: ControlSession, step: StepRow, judgement: Judgement): Promise<Progress> {
  const now = session.parts.clock();
  const { failures } = session.record.run;
  if (judgement.kind === 'invalid') {
    session.write({
      events: [{ kind: 'step.invalid', data: { step: step.number, fault: judgement.fault } }],
      fields: { failures: failures + 1 },
      writes: [{ table: 'control_steps', key: step.number, from: ['proposed'], set: { state: 'invalid', detail: judgement.fault, ended_ms: now } }],
    });
    return 'on';
  }
  const { compiled, request, verdict } = judgement;
  switch (verdict.kind) {
    case 'unknown':
      session.end({ reason: 'policy_unknown', detail: verdict.fault });
      return 'over';
    case 'deny': {
      const write: PartWrite = {
        table: 'control_steps',
        key: step.number,
        from: ['proposed'],
        set: { state: 'denied', detail: verdict.reason, policy: canonicalJson(verdict.record), effect: compiled.spec.effect, ended_ms: now },
      };
      if (verdict.ends) {
        session.end({ reason: 'policy_ended', detail: verdict.reason }, 'failed', { writes: [write] });
        return 'over';
      }
      session.write({
        events: [{ kind: 'step.denied', data: { step: step.number, ...verdict.record } }],
        fields: { failures: failures + 1 },
        writes: [write],
      });
      return 'on';
    }
    case 'ask': {
      pauseFor(session, {
        step,
        compiled,
        request,
        kind: 'call',
        why: typeof verdict.record['reason'] === 'string' ? verdict.record['reason'] : 'the policy asks',
        policy: verdict.record,
        expiresMs: verdict.expiresMs,
        grantMs: verdict.grantMs,
        onReject: verdict.onReject,
      });
      return 'waiting';
    }
    case 'allow':
      start(session, [{ step, compiled, request, policy: verdict.record }]);
      await executeStarted(session, step.number);
      return 'on';
  }
}

interface Starting {
  readonly step: StepRow;
  readonly compiled: CompiledTool;
  readonly request: string;
  readonly policy: JsonObject;
}

/** The row of a step that starts now. */
export function startWrite(session: Pick<ControlSession, 'parts'>, { step, compiled, request, policy }: Starting, fence: number): PartWrite {
  return {
    table: 'control_steps',
    key: step.number,
    from: [step.state],
    set: {
      state: 'started',
      effect: compiled.spec.effect,
      request_sha256: sha256Hex(request),
      spec_sha256: compiled.specSha256,
      policy: canonicalJson(policy),
      executions: step.executions + 1,
      fence,
      started_ms: session.parts.clock(),
      outcome: null,
      detail: null,
      ended_ms: null,
    },
  };
}

/** On disk before anything of it happens, and only under a lease that hasn't lapsed. */
export function start(session: ControlSession, batch: readonly Starting[]): void {
  session.write(
    {
      events: batch.map(({ step, compiled }) => ({
        kind: 'step.started',
        data: { step: step.number, tool: compiled.spec.name, effect: compiled.spec.effect },
      })),
      writes: batch.map((starting) => startWrite(session, starting, session.fence)),
    },
    true,
  );
}

/** The text that runs: as it was proposed, or as an operator edited it. */
export function requestOf(session: Pick<ControlSession, 'record'>, step: StepRow): string {
  const used = session.record.approvalsOf(step.number).findLast((row) => row.state === 'used' && row.edited_request !== null);
  const request = used?.edited_request ?? step.arguments;
  if (request === null) throw new Error(`step ${step.number} has no arguments`);
  return request;
}

export async function executeStarted(session: ControlSession, number: number): Promise<void> {
  const step = session.record.steps.get(number);
  const compiled = step === undefined ? undefined : session.rules.tools.get(step.tool);
  if (step === undefined || compiled === undefined) throw new Error(`step ${number} has no tool`);
  const request = requestOf(session, step);
  if (sha256Hex(request) !== step.request_sha256) throw new Error(`step ${number}: what would run is not what was started`);
  await executeStep(session, compiled, step, request);
}

export interface Pause {
  readonly step: StepRow;
  readonly compiled: CompiledTool;
  readonly request: string;
  readonly kind: Question['kind'];
  readonly why: string;
  readonly policy: JsonObject;
  readonly expiresMs: number | undefined;
  readonly grantMs: number | undefined;
  readonly onReject: 'deny' | 'end';
}

/** The question as a row, bound to everything that is shown. */
export function approvalWrite(
  session: Pick<ControlSession, 'parts' | 'rules' | 'runId' | 'record'>,
  pause: Pause,
): PartWrite & { readonly table: 'control_approvals' } {
  const { compiled, step } = pause;
  const { limits, policySha256 } = session.rules;
  const now = session.parts.clock();
  const reason = session.record.turns.get(step.turn)?.reason ?? '';
  const shown = {
    run: session.runId,
    step: step.number,
    kind: pause.kind,
    capability: capabilityOf(compiled.spec),
    presentation: presentQuestion({ kind: pause.kind, spec: compiled.spec, request: pause.request, reason, why: pause.why }),
    request: pause.request,
    specSha256: compiled.specSha256,
    policySha256,
    onReject: pause.onReject,
  };
  const least = (a: number | undefined, b: number | undefined): number | undefined => (a === undefined ? b : b === undefined ? a : Math.min(a, b));
  const expires = least(pause.expiresMs, limits.approvalMs);
  return {
    table: 'control_approvals',
    insert: {
      id: nextApprovalId(session.record, now),
      step: step.number,
      kind: pause.kind,
      state: 'pending',
      capability: shown.capability,
      presentation: shown.presentation,
      request: shown.request,
      spec_sha256: shown.specSha256,
      policy_sha256: shown.policySha256,
      shown_sha256: shownDigest(shown),
      on_reject: shown.onReject,
      created_ms: now,
      expires_ms: expires === undefined ? null : now + expires,
      grant_ms: least(pause.grantMs, limits.grantMs) ?? null,
      decided_ms: null,
      grant_expires_ms: null,
      decider: null,
      note: null,
      edited_request: null,
      edited_sha256: null,
      settlement: null,
    },
  };
}

/** Ids of one run rise, whatever the clock does: the last is the latest. */
function nextApprovalId(record: Pick<ControlSession['record'], 'approvals'>, now: number): string {
  const last = [...record.approvals.keys()].sort().at(-1);
  for (let time = now; ; time += 1) {
    const id = newApprovalId(time);
    if (last === undefined || id > last) return id;
  }
}

/** The step waits, the question is there, and nobody owns the run: one transaction. */
export function pauseFor(session: ControlSession, pause: Pause): void {
  const approval = approvalWrite(session, pause);
  session.write({
    state: 'waiting',
    lease: { kind: 'release' },
    events: [pauseEvent(pause, approval)],
    writes: [
      {
        table: 'control_steps',
        key: pause.step.number,
        from: [pause.step.state],
        set: { state: 'waiting', effect: pause.compiled.spec.effect, spec_sha256: pause.compiled.specSha256, policy: canonicalJson(pause.policy) },
      },
      approval,
    ],
  });
  session.abort('the run waits for a person');
}

export function pauseEvent(pause: Pause, approval: PartWrite): ControlChange['events'][number] {
  const row = 'insert' in approval && approval.table === 'control_approvals' ? approval.insert : undefined;
  return { kind: 'approval.asked', data: { step: pause.step.number, approval: row?.id ?? '', shown_sha256: row?.shown_sha256 ?? '', kind: pause.kind } };
}

/** An execution whose end nobody saw: whoever can look says, else a person decides, on this very step. */
async function resolveUnknown(session: ControlSession, step: StepRow): Promise<Progress> {
  const compiled = session.rules.tools.get(step.tool);
  if (compiled === undefined) {
    session.end({ reason: 'outcome_unknown', detail: `step ${step.number}: the tool ${step.tool} is gone, and whether it ran is not known` });
    return 'over';
  }
  const request = requestOf(session, step);
  const found = await reconcile(session, compiled, step, request);
  await session.parts.at('reconciling');
  const now = session.parts.clock();
  if (found.kind === 'happened') {
    const recorded = recordable({ outcome: 'answered_ok', value: found.value });
    if (recorded.outcome !== 'answered_ok') {
      session.end({ reason: 'internal_error', detail: `step ${step.number}: what the reconciler found can't be recorded: ${recorded.detail ?? ''}` });
      return 'over';
    }
    session.write({
      events: [{ kind: 'step.reconciled', data: { step: step.number, found: found.kind } }],
      fields: { failures: 0 },
      writes: [
        {
          table: 'control_steps',
          key: step.number,
          from: ['unknown'],
          set: { state: 'done', observation: recorded.observation, detail: 'found to have happened', ended_ms: now },
        },
      ],
    });
    return 'on';
  }
  if (found.kind === 'did_not_happen') {
    session.write({
      events: [{ kind: 'step.reconciled', data: { step: step.number, found: found.kind } }],
      fields: { failures: session.record.run.failures + 1 },
      writes: [{ table: 'control_steps', key: step.number, from: ['unknown'], set: { state: 'failed', detail: 'found not to have happened', ended_ms: now } }],
    });
    return 'on';
  }
  pauseFor(session, {
    step,
    compiled,
    request,
    kind: 'unknown_outcome',
    why: step.detail ?? 'the process that executed it ended',
    policy: parsePolicy(step),
    expiresMs: undefined,
    grantMs: undefined,
    onReject: 'deny',
  });
  return 'waiting';
}

async function reconcile(session: ControlSession, compiled: CompiledTool, step: StepRow, request: string): Promise<Reconciliation> {
  // Bound: a person has looked already, and somebody asked again.
  if (compiled.tool.reconcile === undefined) return { kind: 'unknown' };
  try {
    const found: unknown = await compiled.tool.reconcile({
      runId: session.runId,
      step: step.number,
      operation: `${session.runId}/${step.number}`,
      execution: step.executions,
      arguments: deepFreeze(parseStrictJson(request)),
      request,
    });
    const kind = typeof found === 'object' && found !== null && 'kind' in found ? found.kind : undefined;
    return kind === 'happened' || kind === 'did_not_happen' ? (found as Reconciliation) : { kind: 'unknown' };
  } catch (error) {
    session.parts.observe(session.runId, [{ kind: 'step.reconciler_failed', data: { step: step.number, fault: messageOf(error) } }]);
    return { kind: 'unknown' };
  }
}

function parsePolicy(step: StepRow): JsonObject {
  const value = step.policy === null ? null : parseStrictJson(step.policy);
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : {};
}
