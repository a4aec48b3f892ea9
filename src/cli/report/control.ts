import { EXIT_CODES } from '../../core/errors.ts';
import type { JsonObject, JsonValue } from '../../core/json.ts';
import { safeLine, safeText } from '../../core/text-safety.ts';
import type { RunView, StepView } from '../../runtime/record.ts';
import type { ApprovalRow, ControlRunRow } from '../../store/index.ts';
import { ageWords } from './list.ts';
import { plural } from './words.ts';

const SHOWN = 300;

/** `job show`: the run, its limits' totals and every step, newest last. */
export function controlText(view: RunView, open: readonly ApprovalRow[]): string {
  const lines = [
    `${view.id}  ${safeLine(view.agent, 64)}  ${view.state}${view.reason === null ? '' : ` (${safeLine(view.reason, 80)})`}`,
    `  task       ${safeLine(typeof view.task === 'string' ? view.task : JSON.stringify(view.task), SHOWN)}`,
    `  spent      ${plural(view.turns.length, 'reply', 'replies')}, ${plural(view.steps.length, 'step')}, ${plural(view.modelCalls, 'model request')}, ${view.inputTokens} + ${view.outputTokens} tokens, ${dollars(view.costNanoUsd)}`,
    ...view.turns.filter((turn) => turn.kind === 'invalid').map((turn) => `  reply ${turn.number}    invalid: ${safeLine(turn.fault ?? '', SHOWN)}`),
    ...view.steps.flatMap(stepLines),
    ...(view.result === null ? [] : [`  result     ${safeLine(typeof view.result === 'string' ? view.result : JSON.stringify(view.result), 1000)}`]),
    ...open.map((row) => `  waits      ${row.id}: job approvals ${row.id}`),
  ];
  return `${lines.join('\n')}\n`;
}

function stepLines(step: StepView): readonly string[] {
  const words = [
    step.state,
    ...(step.outcome === null || step.state === 'done' ? [] : [step.outcome]),
    ...(step.detail === null ? [] : [safeLine(step.detail, SHOWN)]),
  ];
  return [
    `  step ${String(step.number).padEnd(4)}  ${safeLine(step.tool, 64)} ${safeLine(step.request ?? '(no arguments that are JSON)', SHOWN)}`,
    `             ${words.join(': ')}${evidenceWords(step.evidence)}`,
    ...(step.late === null ? [] : [`             came late: ${safeLine(JSON.stringify(step.late), SHOWN)}`]),
  ];
}

function evidenceWords(evidence: JsonValue): string {
  if (typeof evidence !== 'object' || evidence === null || !('run' in evidence) || typeof evidence.run !== 'string') return '';
  return `  ${safeLine(evidence.run, 40)}`;
}

/** `job show --list`. */
export function controlListText(rows: readonly ControlRunRow[], nowMs: number): string {
  if (rows.length === 0) return 'no agent runs\n';
  const cells = rows.map((row) => [
    row.id,
    safeLine(row.reason === null || row.state === 'completed' ? row.state : `${row.state}: ${row.reason}`, 64),
    String(row.steps),
    dollars(row.cost_nano_usd),
    ageWords(Math.max(0, nowMs - row.created_ms)),
    safeLine(row.name ?? row.agent, 64),
  ]);
  const header = ['RUN', 'STATE', 'STEPS', 'COST', 'AGE', 'AGENT'];
  const widths = header.map((title, column) => Math.max(...[header, ...cells].map((line) => (line[column] ?? title).length)));
  return `${[header, ...cells]
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd((widths[column] ?? 0) + 2))
        .join('')
        .trimEnd(),
    )
    .join('\n')}\n`;
}

/** `job approvals`: one line a question. */
export function approvalListText(rows: readonly ApprovalRow[], nowMs: number): string {
  if (rows.length === 0) return 'nothing waits for a decision\n';
  return rows
    .map((row) => {
      const expires = row.expires_ms === null ? '' : `, expires in ${ageWords(Math.max(0, row.expires_ms - nowMs))}`;
      return `${row.id}  ${safeLine(row.capability, 90)}  step ${row.step} of ${row.run_id}${expires}\n  ${safeLine(row.request, 160)}\n`;
    })
    .join('');
}

const PAGE = 4096;

/**
 * One question in full. With a page: that part of the request's canonical text, so that nothing is out of reach. The last lines are ours.
 */
export function approvalText(row: ApprovalRow, late: JsonValue, page: number | undefined): string {
  const pages = Math.max(1, Math.ceil(row.request.length / PAGE));
  const body =
    page === undefined
      ? [row.presentation]
      : [
          `Arguments, page ${Math.min(page, pages)} of ${pages}:`,
          ...safeText(pageOf(row.request, Math.min(page, pages)), { lines: true })
            .split('\n')
            .map((line) => `  | ${line}`),
        ];
  const came = late === null ? [] : [`What it did came late: ${safeLine(JSON.stringify(late), 1000)}`];
  const prefix = row.shown_sha256.slice(0, 12);
  const decide = row.state === 'pending' ? [`Decide with: job approve ${row.id} ${prefix}   or   job reject ${row.id} ${prefix}`] : [`This was ${row.state}.`];
  return `${[`${row.id}  step ${row.step} of ${row.run_id}  ${pages === 1 ? '' : `${pages} pages`}`.trimEnd(), ...body, ...came, ...decide].join('\n')}\n`;
}

/** Cut between characters, never inside one. */
function pageOf(text: string, page: number): string {
  const start = (page - 1) * PAGE;
  const isLow = (at: number): boolean => (text.charCodeAt(at) & 0xfc00) === 0xdc00;
  return text.slice(isLow(start) ? start + 1 : start, isLow(start + PAGE) ? start + PAGE + 1 : start + PAGE);
}

/** $0.0123. */
export function dollars(nano: number): string {
  return `$${(nano / 1e9).toFixed(4)}`;
}

/** The exit code of `job run --agent` and `job resume`. */
export function controlExitCode(view: Pick<RunView, 'state' | 'reason'>): number {
  if (view.state === 'completed') return 0;
  if (view.state === 'waiting' || view.state === 'running') return EXIT_CODES.waiting_for_approval;
  const reason = view.reason ?? '';
  if (reason.startsWith('limit_')) return EXIT_CODES.limit;
  if (reason === 'internal_error') return EXIT_CODES.internal;
  return ['cancelled', 'rejected', 'policy_ended', 'policy_unknown', 'approval_expired', 'grant_expired'].includes(reason) ? EXIT_CODES.refused : 1;
}

export function controlJson(view: RunView): JsonObject {
  return {
    id: view.id,
    name: view.name,
    workspace: view.workspace,
    agent: view.agent,
    state: view.state,
    reason: view.reason,
    task: view.task,
    created_ms: view.createdMs,
    failures: view.failures,
    model_calls: view.modelCalls,
    input_tokens: view.inputTokens,
    output_tokens: view.outputTokens,
    cost_nano_usd: view.costNanoUsd,
    result: view.result,
    turns: view.turns.map((turn) => ({
      number: turn.number,
      kind: turn.kind,
      stop: turn.stop,
      reason: turn.reason,
      decision: turn.decision,
      fault: turn.fault,
    })),
    steps: view.steps.map((step) => ({
      number: step.number,
      turn: step.turn,
      tool: step.tool,
      effect: step.effect,
      arguments: step.arguments,
      request: step.request,
      state: step.state,
      outcome: step.outcome,
      observation: step.observation,
      detail: step.detail,
      policy: step.policy,
      evidence: step.evidence,
      executions: step.executions,
      late: step.late,
    })),
    approvals: view.approvals.map((one) => ({
      id: one.id,
      step: one.step,
      kind: one.kind,
      state: one.state,
      request: one.request,
      shown_sha256: one.shownSha256,
      on_reject: one.onReject,
      decider: one.decider,
      note: one.note,
      edited_request: one.editedRequest,
      expires_ms: one.expiresMs,
      grant_expires_ms: one.grantExpiresMs,
    })),
  };
}

export function approvalJson(row: ApprovalRow): JsonObject {
  return {
    id: row.id,
    run: row.run_id,
    step: row.step,
    kind: row.kind,
    state: row.state,
    capability: row.capability,
    presentation: row.presentation,
    request: row.request,
    shown_sha256: row.shown_sha256,
    spec_sha256: row.spec_sha256,
    policy_sha256: row.policy_sha256,
    on_reject: row.on_reject,
    created_ms: row.created_ms,
    expires_ms: row.expires_ms,
    decided_ms: row.decided_ms,
    note: row.note,
    edited_request: row.edited_request,
    edited_sha256: row.edited_sha256,
  };
}
