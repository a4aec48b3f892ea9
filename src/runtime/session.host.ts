import { CONTROL_ENDS, STEP_ENDS, type EndReason } from '../core/control.ts';
import { messageOf, ProofrunError } from '../core/errors.ts';
import type { JsonValue } from '../core/json.ts';
import type { ControlChange, ControlRows, ControlStore, NewEvent, PartWrite } from '../store/index.ts';
import type { Agent, ControlLimits } from './contract.ts';
import type { End, Spent } from './limits.ts';
import type { Model } from './model.ts';
import type { Policy } from './policy.ts';
import { RunRecord, type RunView } from './record.ts';
import type { CompiledTool } from './tool-schemas.ts';

/** Moments between two writes at which a crash test may kill the process. */
export type ControlPoint = 'deciding' | 'decided' | 'model-sent' | 'model-answered' | 'judged' | 'tool-started' | 'tool-answered' | 'reconciling' | 'late';

/** What all runs of one process share. */
export interface ControlParts {
  readonly store: ControlStore;
  /** Milliseconds since the epoch. */
  readonly clock: () => number;
  /** Sees what was recorded, after it was. What it throws is told to `onFault` and changes nothing. */
  readonly observe: (runId: string, events: readonly NewEvent[]) => void;
  /** Crash tests only. */
  readonly at: (point: ControlPoint) => Promise<void>;
  /** Resolves after so many milliseconds, or when the signal says so. */
  readonly pause: (ms: number, signal: AbortSignal) => Promise<void>;
}

/** Who works on a run, and under which rules: compiled once. */
export interface Rules {
  readonly agent: Agent;
  readonly tools: ReadonlyMap<string, CompiledTool>;
  readonly policies: readonly Policy[];
  readonly policySha256: string;
  readonly limits: ControlLimits;
  readonly model: Model | undefined;
}

/** Writes of the run's parts that end with it: nothing stays open without an owner. */
export function closingWrites(rows: Pick<RunRecord, 'steps' | 'approvals' | 'attempts'>, why: string, now: number): readonly PartWrite[] {
  const writes: PartWrite[] = [];
  for (const step of rows.steps.values()) {
    if (STEP_ENDS.includes(step.state) || step.state === 'unknown') continue;
    // What is on its way may still happen: its outcome comes late.
    if (step.state === 'started') {
      writes.push({ table: 'control_steps', key: step.number, from: ['started'], set: { state: 'unknown', detail: why, ended_ms: now } });
    } else writes.push({ table: 'control_steps', key: step.number, from: [step.state], set: { state: 'failed', detail: why, ended_ms: now } });
  }
  for (const approval of rows.approvals.values()) {
    if (approval.state !== 'pending' && approval.state !== 'approved') continue;
    writes.push({ table: 'control_approvals', key: approval.id, from: ['pending', 'approved'], set: { state: 'withdrawn', decided_ms: now } });
  }
  for (const attempt of rows.attempts.values()) {
    if (attempt.state !== 'reserved') continue;
    // It may be served yet: it costs what was reserved.
    writes.push({ table: 'control_attempts', key: attempt.number, from: ['reserved'], set: { state: 'orphaned', outcome: 'no_answer', settled_ms: now } });
  }
  return writes;
}

/** One run under one lease. Its writes carry the fence: once another process owns the run, nothing of this one is recorded or started any more. */
export class ControlSession {
  readonly parts: ControlParts;
  readonly rules: Rules;
  readonly runId: string;
  readonly fence: number;
  readonly record: RunRecord;
  /** Effects of this process that are on their way. */
  readonly inFlight = new Set<Promise<void>>();
  /** Steps that a resumption has started together with its own decision, to be executed first. */
  readonly startedByResume: number[] = [];
  readonly #abort = new AbortController();
  /** Set by a limit inside a turn: nothing that the agent says afterwards counts. */
  ending: End | undefined;

  constructor(parts: ControlParts, rules: Rules, rows: ControlRows, task: JsonValue) {
    this.parts = parts;
    this.rules = rules;
    this.runId = rows.run.id;
    this.fence = rows.run.fence;
    this.record = new RunRecord(rows, task);
  }

  /** Aborted when the run is over or lost. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  abort(why: string): void {
    this.#abort.abort(new Error(why));
  }

  /** A change under our lease. `alive`: it starts an effect, so the lease must not have lapsed. */
  write(change: Omit<ControlChange, 'guard'>, alive = false): void {
    const changed = this.parts.store.change(this.runId, {
      ...change,
      guard: { states: ['running'], fence: this.fence, ...(alive ? { alive: true } : {}) },
    });
    this.record.absorb(changed);
    if (CONTROL_ENDS.includes(changed.run.state)) this.abort(`the run is ${changed.run.state}`);
    this.parts.observe(this.runId, change.events);
  }

  /** Ends the run; open parts end with it, in the same transaction. */
  end(end: End, state: 'failed' | 'completed' = 'failed', more: Pick<ControlChange, 'fields' | 'writes' | 'add'> = {}): void {
    const now = this.parts.clock();
    const written = new Set((more.writes ?? []).flatMap((write) => ('key' in write ? [`${write.table}:${write.key}`] : [])));
    const closing = closingWrites(this.record, `the run ended: ${end.reason}`, now).filter(
      (write) => !('key' in write) || !written.has(`${write.table}:${write.key}`),
    );
    this.write({
      state,
      fields: { reason: end.reason, detail: end.detail, ...more.fields },
      events: [{ kind: `run.${state}`, data: { reason: end.reason, detail: end.detail } }],
      ...(more.add === undefined ? {} : { add: more.add }),
      writes: [...(more.writes ?? []), ...closing],
    });
  }

  spent(): Spent {
    const { run } = this.record;
    const now = this.parts.clock();
    return {
      steps: run.steps,
      failures: run.failures,
      modelCalls: run.model_calls,
      inputTokens: run.input_tokens,
      outputTokens: run.output_tokens,
      costNanoUsd: run.cost_nano_usd,
      activeMs: run.active_ms + Math.max(0, now - (run.active_since_ms ?? now)),
      elapsedMs: Math.max(0, now - run.created_ms),
      repeats: repeats(this.record),
    };
  }

  view(): RunView {
    return this.record.view();
  }

  /** The store as another process may have left it: whether the run is still ours. */
  stillOurs(): boolean {
    const row = this.parts.store.read(this.runId);
    return row?.state === 'running' && row.fence === this.fence;
  }
}

/** Replies running, counted from the last, that asked for the same calls. */
function repeats(record: RunRecord): number {
  const key = (turn: number): string => JSON.stringify(record.stepsOf(turn).map((step) => [step.tool, step.arguments ?? step.raw]));
  const last = record.turns.size;
  if (record.turns.get(last)?.kind !== 'calls') return 0;
  const wanted = key(last);
  let count = 0;
  // Only whole turns count: the one that is being worked on is judged when it has ended.
  for (let turn = last; turn > 0 && record.turns.get(turn)?.kind === 'calls' && key(turn) === wanted; turn -= 1) count += 1;
  return count;
}

/** A failure of ours as the end of a run: what can't be encoded or recorded is never replaced by something else. */
export function internalEnd(error: unknown): End {
  return { reason: 'internal_error' satisfies EndReason, detail: messageOf(error) };
}

/** Somebody else owns the run, or ended it. */
export function isLost(error: unknown): boolean {
  return error instanceof ProofrunError && error.code === 'ERR_STORE_STALE';
}
