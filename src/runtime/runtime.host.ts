import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { canonicalJson } from '../core/canonical-json.ts';
import { CONTROL_ENDS } from '../core/control.ts';
import { ProofrunError } from '../core/errors.ts';
import { newControlRunId } from '../core/ids.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { currentOwner, type ApprovalRow, type NewEvent, type Store } from '../store/index.ts';
import { renewLeases, type LeaseRenewal } from '../store/lease-renewal.host.ts';
import { specDigest } from './approval.ts';
import type { Agent, ControlLimits, Tool } from './contract.ts';
import { approve, cancel, reject, settleUnknown, type Approving, type Decider, type DecisionRequest } from './decisions.host.ts';
import { drive } from './driver.host.ts';
import { openGate, type Gate } from './gate.host.ts';
import { checkLimits } from './limits.ts';
import type { Model } from './model.ts';
import { policiesDigest, type Policy } from './policy.ts';
import { recheck, type Rechecked } from './recheck.ts';
import { RunRecord, type RunView } from './record.ts';
import { resumeRun, taskOf } from './resume.host.ts';
import { ControlSession, type ControlParts, type ControlPoint, type Rules } from './session.host.ts';
import { sweep, type Swept } from './sweeper.host.ts';
import { compileTools } from './tool-schemas.ts';

/** What a run works with. The same is given again to resume it: schema, policy and limits are asked as they are then. */
export interface ControlDefinition {
  readonly agent: Agent;
  readonly tools: readonly Tool[];
  /** None: nothing is allowed. */
  readonly policies: readonly Policy[];
  readonly limits?: ControlLimits;
  readonly model?: { readonly model: Model; readonly name: string; readonly maxOutputTokens: number | null };
}

export interface NewControl extends ControlDefinition {
  /** What the agent is called. */
  readonly agentName: string;
  readonly task: JsonValue;
  /** Absolute. */
  readonly workspace: string;
  readonly name?: string;
  /** Where the definition comes from, for the record and for `job resume`. */
  readonly source?: JsonObject;
}

/** A run that this process owns. */
export interface OpenControl {
  readonly id: string;
  /** Works on it until it ends or waits. See drive(). */
  drive(): Promise<RunView>;
  /** For a loop that isn't ours, instead of drive(). */
  readonly gate: Gate;
  view(): RunView;
}

export interface ControlRuntimeOptions {
  readonly store: Store;
  /** Milliseconds since the epoch. */
  readonly clock?: () => number;
  /** How long a lease holds without being renewed. Default 15 s. */
  readonly leaseMs?: number;
  /** Sees events after they were recorded. */
  readonly onEvent?: (runId: string, event: NewEvent) => void;
  /** What an observer throws. */
  readonly onFault?: (error: unknown) => void;
  /** How long close() waits for effects that are on their way, once they were told to stop. Default 5 s. */
  readonly closeMs?: number;
  /** Crash tests only. */
  readonly at?: (point: ControlPoint) => Promise<void>;
  /** How a wait before another try is made. */
  readonly pause?: ControlParts['pause'];
}

/** The control runtime of one process, over one store. Close it. */
export interface ControlRuntime {
  /** ERR_USAGE for tools, limits or names that can't be. */
  start(run: NewControl): Promise<OpenControl>;
  /** undefined: it ended, or waits for a person again. See resumeRun for errors. */
  resume(runId: string, definition: ControlDefinition): Promise<OpenControl | undefined>;
  approve(request: Approving): ApprovalRow;
  reject(request: DecisionRequest): ApprovalRow;
  settleUnknown(request: DecisionRequest & { readonly observation: string }): ApprovalRow;
  cancel(runId: string, decider: Decider, note?: string): void;
  sweep(): readonly Swept[];
  view(runId: string): RunView;
  recheck(runId: string, policies: readonly Policy[]): Promise<readonly Rechecked[]>;
  /** Waits for effects that are still on their way, `closeMs` at most, so that what they did is recorded, and stops renewing leases. The store stays open. */
  close(): Promise<void>;
}

const LEASE_MS = 15_000;
const CLOSE_MS = 5000;
const MOST_SPEC_BYTES = 4 * 1024 * 1024;

export function openRuntime(options: ControlRuntimeOptions): ControlRuntime {
  const { store } = options;
  const leaseMs = options.leaseMs ?? LEASE_MS;
  const leaseId = randomUUID();
  const sessions = new Set<ControlSession>();
  let renewal: LeaseRenewal | undefined;
  let closed = false;
  const parts: ControlParts = {
    store: store.control,
    clock: options.clock ?? Date.now,
    observe: (runId, events) => {
      for (const event of events) {
        try {
          options.onEvent?.(runId, event);
        } catch (error) {
          options.onFault?.(error);
        }
      }
    },
    at: options.at ?? (async () => undefined),
    pause:
      options.pause ??
      (async (ms, signal) => {
        await delay(ms, undefined, { signal, ref: true }).catch(() => undefined);
      }),
  };
  const lease = { leaseId, leaseMs };
  const own = (session: ControlSession): OpenControl => {
    sessions.add(session);
    return {
      id: session.runId,
      drive: async () => {
        try {
          await drive(session);
          return current(session);
        } finally {
          // Kept for close() while effects of it are on their way.
          void Promise.all([...session.inFlight]).then(() => sessions.delete(session));
        }
      },
      gate: openGate(session),
      view: () => session.view(),
    };
  };
  /** As recorded: another process may have ended it. */
  const current = (session: ControlSession): RunView => {
    const row = parts.store.read(session.runId);
    return row === undefined || row.last_seq === session.record.run.last_seq ? session.view() : view(session.runId);
  };
  const view = (runId: string): RunView => {
    const rows = parts.store.rows(runId);
    return new RunRecord(rows, specTask(rows.run.spec_sha256)).view();
  };
  const specTask = (sha256: string): JsonValue => {
    try {
      return taskOf(parts.store.spec(sha256));
    } catch (error) {
      // A damaged run is shown all the same.
      if (error instanceof ProofrunError && error.code === 'ERR_STORE_UNREADABLE') return null;
      throw error;
    }
  };
  const ready = (): void => {
    if (closed) throw new ProofrunError('ERR_RUN_STATE', { message: 'the runtime is closed', hint: 'open another' });
    renewal ??= renewLeases({ file: store.file, leaseId, leaseMs });
  };
  return {
    start: async (run) => {
      const rules = await compileRules(run);
      ready();
      const now = parts.clock();
      const spec = canonicalJson({
        agent: run.agentName,
        task: run.task,
        limits: { ...rules.limits },
        policy_sha256: rules.policySha256,
        model: run.model === undefined ? null : { name: run.model.name, max_output_tokens: run.model.maxOutputTokens },
        tools: run.tools.map(({ spec: tool }) => ({
          name: tool.name,
          description: tool.description,
          effect: tool.effect,
          input_schema: tool.inputSchema,
          timeout_ms: tool.timeoutMs,
          sha256: specDigest(tool),
        })),
        source: run.source ?? null,
      });
      if (spec.length > MOST_SPEC_BYTES) {
        throw new ProofrunError('ERR_USAGE', {
          message: `the run's specification has ${spec.length} bytes, at most ${MOST_SPEC_BYTES} are kept`,
          hint: 'shorten the task or the schemas',
        });
      }
      const id = newControlRunId(now);
      const events = [{ kind: 'run.started', data: { agent: run.agentName, policy_sha256: rules.policySha256 } }];
      const created = parts.store.create(
        {
          id,
          name: run.name ?? null,
          workspace: run.workspace,
          agent: run.agentName,
          spec,
          deadlineMs: rules.limits.elapsedMs === undefined ? null : now + rules.limits.elapsedMs,
          lease: { owner: currentOwner(), leaseId, expiresMs: now + leaseMs },
        },
        events,
      );
      parts.observe(id, events);
      return own(new ControlSession(parts, rules, { run: created.run, turns: [], steps: [], approvals: [], attempts: [] }, taskOf(spec)));
    },
    resume: async (runId, definition) => {
      const rules = await compileRules(definition);
      ready();
      const resumed = await resumeRun(parts, rules, runId, lease);
      return resumed.kind === 'session' ? own(resumed.session) : undefined;
    },
    approve: (request) => approve(parts, request),
    reject: (request) => reject(parts, request),
    settleUnknown: (request) => settleUnknown(parts, request),
    cancel: (runId, decider, note) => {
      cancel(parts, runId, decider, note);
    },
    sweep: () => sweep(parts),
    view,
    recheck: async (runId, policies) => await recheck(view(runId), policies),
    close: async () => {
      closed = true;
      for (const session of sessions) if (!CONTROL_ENDS.includes(session.record.run.state)) session.abort('the runtime closes');
      const settled = new AbortController();
      const grace = delay(options.closeMs ?? CLOSE_MS, undefined, { signal: settled.signal }).catch(() => undefined);
      // A tool that doesn't stop when it is told to must not hold the process for ever: its step is unknown on disk already.
      await Promise.race([Promise.all([...sessions].flatMap((session) => [...session.inFlight])), grace]);
      settled.abort();
      await renewal?.stop();
    },
  };
}

async function compileRules(definition: ControlDefinition): Promise<Rules> {
  const limits = definition.limits ?? {};
  const { model } = definition;
  checkLimits(limits, model === undefined ? undefined : { name: model.name, price: model.model.price(model.name), maxOutputTokens: model.maxOutputTokens });
  return {
    agent: definition.agent,
    tools: await compileTools(definition.tools),
    policies: [...definition.policies],
    policySha256: policiesDigest(definition.policies),
    limits,
    model: model?.model,
  };
}
