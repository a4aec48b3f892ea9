import { sha256Hex } from '../core/canonical-json.ts';
import { ProofrunError } from '../core/errors.ts';
import type { ToolAnswer } from './contract.ts';
import { recordDecision } from './driver.host.ts';
import { settleOutside } from './effect.host.ts';
import { judge, type Judgement } from './judge.ts';
import { reached } from './limits.ts';
import { stepView, type StepView } from './record.ts';
import type { ControlSession } from './session.host.ts';
import { act, executeStarted, openSteps, requestOf, start } from './steps.host.ts';

/** Leave to do one thing once. The outside loop executes exactly `request` and tells how it went. */
export interface Permit {
  readonly step: number;
  readonly tool: string;
  /** Canonical text of the arguments; an operator may have edited them. */
  readonly request: string;
  /** The same for every execution of one step. */
  readonly operation: string;
  readonly execution: number;
}

export type GateAnswer =
  /** It may run: `execute` or `begin` it. */
  | { readonly kind: 'allowed'; readonly step: number }
  | { readonly kind: 'denied' | 'invalid'; readonly step: number; readonly detail: string }
  /** A person has to decide; the run waits and is to be resumed. */
  | { readonly kind: 'waiting'; readonly step: number; readonly approval: string }
  /** The run ended with it. */
  | { readonly kind: 'over'; readonly reason: string };

export interface GateCall {
  readonly tool: string;
  readonly arguments: string | Uint8Array;
  /** What the loop says why. */
  readonly reason: string;
}

/** The gate for a loop that isn't ours: it proposes, and nothing runs that isn't recorded and allowed. One call at a time. */
export interface Gate {
  propose(call: GateCall): Promise<GateAnswer>;
  /** Runs a proposed step that may run, with the tool of this runtime. */
  execute(step: number): Promise<StepView>;
  /** Records that a step that may run starts now, for a loop that executes it itself. */
  begin(step: number): Promise<Permit>;
  /** How a begun step went. */
  settle(step: number, answer: ToolAnswer): StepView;
  /** Steps that a resumption has approved and started: to be executed, or handed to the loop. */
  approved(): readonly Permit[];
}

export function openGate(session: ControlSession): Gate {
  const view = (number: number): StepView => {
    const row = session.record.steps.get(number);
    if (row === undefined) throw stateError(session, `there is no step ${number}`);
    return stepView(row);
  };
  const judged = async (number: number): Promise<Judgement & { readonly kind: 'judged' }> => {
    const step = session.record.steps.get(number);
    if (step?.state !== 'proposed') throw stateError(session, `step ${number} is ${step?.state ?? 'missing'}, expected proposed`);
    const over = reached(session.rules.limits, session.spent());
    if (over !== undefined) {
      session.end(over);
      throw stateError(session, `it ended: ${over.reason}`);
    }
    // Again: what is true now decides, not what was true when it was proposed.
    const judgement = await judge(
      { view: session.view(), tools: session.rules.tools, policies: session.rules.policies },
      { step: number, tool: step.tool, request: step.arguments },
    );
    if (judgement.kind === 'judged' && judgement.verdict.kind === 'allow') {
      start(session, [{ step, compiled: judgement.compiled, request: judgement.request, policy: judgement.verdict.record }]);
      return judgement;
    }
    await act(session, step, judgement);
    throw stateError(session, `step ${number} may not run: ${view(number).detail ?? session.view().state}`);
  };
  const permit = (number: number): Permit => {
    const step = session.record.steps.get(number);
    if (step?.state !== 'started') throw stateError(session, `step ${number} is ${step?.state ?? 'missing'}, expected started`);
    const request = requestOf(session, step);
    if (sha256Hex(request) !== step.request_sha256) throw stateError(session, `step ${number}: what would run is not what was started`);
    return { step: number, tool: step.tool, request, operation: `${session.runId}/${number}`, execution: step.executions };
  };
  return {
    propose: async (call) => {
      const over = reached(session.rules.limits, session.spent());
      if (over !== undefined) {
        session.end(over);
        return { kind: 'over', reason: over.reason };
      }
      if (openSteps(session).length > 0) throw stateError(session, 'a step is open: settle it first');
      const decision = { kind: 'calls', reason: call.reason, calls: [{ id: 'call', tool: call.tool, arguments: call.arguments }] };
      if (recordDecision(session, decision, undefined) === 'over') return { kind: 'over', reason: session.view().reason ?? '' };
      const step = openSteps(session)[0];
      if (step === undefined) throw stateError(session, 'the call has another form than a call');
      const judgement = await judge(
        { view: session.view(), tools: session.rules.tools, policies: session.rules.policies },
        { step: step.number, tool: step.tool, request: step.arguments },
      );
      if (judgement.kind === 'judged' && judgement.verdict.kind === 'allow') return { kind: 'allowed', step: step.number };
      const progress = await act(session, step, judgement);
      if (progress === 'over') return { kind: 'over', reason: session.view().reason ?? '' };
      if (progress === 'waiting') return { kind: 'waiting', step: step.number, approval: session.record.approvalsOf(step.number).at(-1)?.id ?? '' };
      const after = view(step.number);
      return { kind: after.state === 'denied' ? 'denied' : 'invalid', step: step.number, detail: after.detail ?? '' };
    },
    execute: async (number) => {
      if (session.startedByResume.includes(number)) session.startedByResume.splice(session.startedByResume.indexOf(number), 1);
      else await judged(number);
      await executeStarted(session, number);
      return view(number);
    },
    begin: async (number) => {
      await judged(number);
      return permit(number);
    },
    settle: (number, answer) => {
      const step = session.record.steps.get(number);
      const compiled = step === undefined ? undefined : session.rules.tools.get(step.tool);
      if (step === undefined || compiled === undefined) throw stateError(session, `there is no step ${number} with a tool`);
      settleOutside(session, compiled, step, answer);
      return view(number);
    },
    approved: () => session.startedByResume.splice(0).map(permit),
  };
}

function stateError(session: ControlSession, fact: string): ProofrunError {
  return new ProofrunError('ERR_RUN_STATE', { message: `${session.runId}: ${fact}`, hint: `job show ${session.runId}` });
}
