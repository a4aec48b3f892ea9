import type { ApprovalKind, ApprovalState, ControlState, Effect, OnReject, Outcome, StepState, TurnKind } from '../core/control.ts';
import type { JsonValue } from '../core/json.ts';
import { messageOf } from '../core/errors.ts';
import { parseStrictJson } from '../core/strict-json.ts';
import type { ApprovalRow, ControlChanged, ControlRows, ControlRunRow, ModelAttemptRow, StepRow, TurnRow } from '../store/index.ts';
import { deepFreeze } from './request.ts';

/** A step as policies and agents see it. */
export interface StepView {
  readonly number: number;
  readonly turn: number;
  readonly callId: string;
  readonly tool: string;
  readonly effect: Effect | null;
  /** null: what was received were no arguments. */
  readonly arguments: JsonValue;
  /** Canonical text of the arguments. */
  readonly request: string | null;
  readonly state: StepState;
  readonly outcome: Outcome | null;
  readonly observation: JsonValue;
  readonly detail: string | null;
  readonly policy: JsonValue;
  readonly evidence: JsonValue;
  readonly executions: number;
  /** What came after nobody waited any more. */
  readonly late: JsonValue;
}

export interface TurnView {
  readonly number: number;
  readonly kind: TurnKind;
  readonly stop: string | null;
  readonly reason: string;
  readonly decision: JsonValue;
  readonly fault: string | null;
}

export interface ApprovalView {
  readonly id: string;
  readonly step: number;
  readonly kind: ApprovalKind;
  readonly state: ApprovalState;
  readonly request: string;
  readonly shownSha256: string;
  readonly onReject: OnReject;
  readonly decider: JsonValue;
  readonly note: string | null;
  readonly editedRequest: string | null;
  readonly expiresMs: number | null;
  readonly grantExpiresMs: number | null;
}

/** The truth about a run as it is recorded. Frozen all the way down: nobody can alter it for anybody else. */
export interface RunView {
  readonly id: string;
  readonly name: string | null;
  readonly workspace: string;
  readonly agent: string;
  readonly state: ControlState;
  readonly reason: string | null;
  readonly task: JsonValue;
  readonly createdMs: number;
  readonly failures: number;
  readonly modelCalls: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly costNanoUsd: number;
  readonly result: JsonValue;
  readonly turns: readonly TurnView[];
  readonly steps: readonly StepView[];
  readonly approvals: readonly ApprovalView[];
}

/**
 * The rows of one run in memory: read once, then kept in step with what this process writes. `view` of a record that was kept equals that of one
 * that was read anew.
 */
export class RunRecord {
  readonly task: JsonValue;
  #run: ControlRunRow;
  readonly #turns = new Map<number, TurnRow>();
  readonly #steps = new Map<number, StepRow>();
  readonly #approvals = new Map<string, ApprovalRow>();
  readonly #attempts = new Map<number, ModelAttemptRow>();
  readonly #turnViews = new Map<number, TurnView>();
  readonly #stepViews = new Map<number, StepView>();
  readonly #approvalViews = new Map<string, ApprovalView>();
  #view: RunView | undefined;

  constructor(rows: ControlRows, task: JsonValue) {
    this.task = task;
    this.#run = rows.run;
    for (const row of rows.turns) this.#turns.set(row.number, row);
    for (const row of rows.steps) this.#steps.set(row.number, row);
    for (const row of rows.approvals) this.#approvals.set(row.id, row);
    for (const row of rows.attempts) this.#attempts.set(row.number, row);
  }

  get run(): ControlRunRow {
    return this.#run;
  }

  get turns(): ReadonlyMap<number, TurnRow> {
    return this.#turns;
  }

  get steps(): ReadonlyMap<number, StepRow> {
    return this.#steps;
  }

  get attempts(): ReadonlyMap<number, ModelAttemptRow> {
    return this.#attempts;
  }

  get approvals(): ReadonlyMap<string, ApprovalRow> {
    return this.#approvals;
  }

  /** Approvals of one step, oldest first. The last alone counts. */
  approvalsOf(step: number): readonly ApprovalRow[] {
    return [...this.#approvals.values()].filter((row) => row.step === step).sort((a, b) => (a.id < b.id ? -1 : 1));
  }

  stepsOf(turn: number): readonly StepRow[] {
    const found: StepRow[] = [];
    // Numbers rise, and the last turn's steps are the last ones.
    for (let number = this.#steps.size; number > 0; number -= 1) {
      const row = this.#steps.get(number);
      if (row === undefined || row.turn < turn) break;
      if (row.turn === turn) found.push(row);
    }
    return found.reverse();
  }

  absorb(changed: ControlChanged): void {
    this.#run = changed.run;
    this.#view = undefined;
    for (const part of changed.parts) {
      switch (part.table) {
        case 'control_turns':
          this.#turns.set(part.row.number, part.row);
          this.#turnViews.delete(part.row.number);
          break;
        case 'control_steps':
          this.#steps.set(part.row.number, part.row);
          this.#stepViews.delete(part.row.number);
          break;
        case 'control_approvals':
          this.#approvals.set(part.row.id, part.row);
          this.#approvalViews.delete(part.row.id);
          break;
        case 'control_attempts':
          this.#attempts.set(part.row.number, part.row);
          break;
      }
    }
  }

  view(): RunView {
    const run = this.#run;
    this.#view ??= Object.freeze({
      id: run.id,
      name: run.name,
      workspace: run.workspace,
      agent: run.agent,
      state: run.state,
      reason: run.reason,
      task: this.task,
      createdMs: run.created_ms,
      failures: run.failures,
      modelCalls: run.model_calls,
      inputTokens: run.input_tokens,
      outputTokens: run.output_tokens,
      costNanoUsd: run.cost_nano_usd,
      result: readCell(run.result),
      turns: views(this.#turns, this.#turnViews, turnView),
      steps: views(this.#steps, this.#stepViews, stepView),
      approvals: views(this.#approvals, this.#approvalViews, approvalView),
    });
    return this.#view;
  }
}

function views<K, R, V>(rows: ReadonlyMap<K, R>, made: Map<K, V>, make: (row: R) => V): readonly V[] {
  const list: V[] = [];
  for (const [key, row] of rows) {
    let view = made.get(key);
    if (view === undefined) {
      view = deepFreeze(make(row));
      made.set(key, view);
    }
    list.push(view);
  }
  return Object.freeze(list);
}

/** JSON of a column. What can't be read is shown as such; the chain says that it was altered. */
export function readCell(text: string | null): JsonValue {
  if (text === null) return null;
  try {
    return deepFreeze(parseStrictJson(text));
  } catch (error) {
    return { unreadable: messageOf(error) };
  }
}

function turnView(row: TurnRow): TurnView {
  return { number: row.number, kind: row.kind, stop: row.stop, reason: row.reason, decision: readCell(row.decision), fault: row.fault };
}

export function stepView(row: StepRow): StepView {
  return {
    number: row.number,
    turn: row.turn,
    callId: row.call_id,
    tool: row.tool,
    effect: row.effect,
    arguments: readCell(row.arguments),
    request: row.arguments,
    state: row.state,
    outcome: row.outcome,
    observation: readCell(row.observation),
    detail: row.detail,
    policy: readCell(row.policy),
    evidence: readCell(row.evidence),
    executions: row.executions,
    late: readCell(row.late),
  };
}

function approvalView(row: ApprovalRow): ApprovalView {
  return {
    id: row.id,
    step: row.step,
    kind: row.kind,
    state: row.state,
    request: row.request,
    shownSha256: row.shown_sha256,
    onReject: row.on_reject,
    decider: readCell(row.decider),
    note: row.note,
    editedRequest: row.edited_request,
    expiresMs: row.expires_ms,
    grantExpiresMs: row.grant_expires_ms,
  };
}
