import { canonicalSha256 } from '../core/canonical-json.ts';
import type { ApprovalKind, OnReject } from '../core/control.ts';
import { safeText } from '../core/text-safety.ts';
import type { ApprovalRow } from '../store/index.ts';
import type { ToolSpec } from './contract.ts';

/** Everything that a decision is bound to. */
export interface Shown {
  readonly run: string;
  readonly step: number;
  readonly kind: ApprovalKind;
  readonly capability: string;
  /** The text that was shown. */
  readonly presentation: string;
  /** Canonical text of the arguments. */
  readonly request: string;
  readonly specSha256: string;
  readonly policySha256: string;
  readonly onReject: OnReject;
}

/** The hash that a person decides on. */
export function shownDigest(shown: Shown): string {
  return canonicalSha256({
    run: shown.run,
    step: shown.step,
    kind: shown.kind,
    capability: shown.capability,
    presentation: shown.presentation,
    request: shown.request,
    spec_sha256: shown.specSha256,
    policy_sha256: shown.policySha256,
    on_reject: shown.onReject,
  });
}

/** What a row says was shown. */
export function shownOf(row: ApprovalRow): Shown {
  return {
    run: row.run_id,
    step: row.step,
    kind: row.kind,
    capability: row.capability,
    presentation: row.presentation,
    request: row.request,
    specSha256: row.spec_sha256,
    policySha256: row.policy_sha256,
    onReject: row.on_reject,
  };
}

/** A row whose hashes follow from what it holds. One that was altered grants nothing. */
export function isIntact(row: ApprovalRow): boolean {
  if (shownDigest(shownOf(row)) !== row.shown_sha256) return false;
  if (row.edited_request === null) return row.edited_sha256 === null;
  return shownDigest({ ...shownOf(row), request: row.edited_request }) === row.edited_sha256;
}

/** Digest of what is said about a tool. */
export function specDigest(spec: ToolSpec): string {
  return canonicalSha256({ name: spec.name, description: spec.description, effect: spec.effect, input_schema: spec.inputSchema, timeout_ms: spec.timeoutMs });
}

/** `write_file (side-effect)`. */
export function capabilityOf(spec: ToolSpec): string {
  return `${spec.name} (${spec.effect})`;
}

const SHOWN_ARGUMENTS = 4096;
const SHOWN_REASON = 1000;

export interface Question {
  readonly kind: ApprovalKind;
  readonly spec: ToolSpec;
  readonly request: string;
  /** The agent's own words. */
  readonly reason: string;
  /** Why somebody is asked: the policy's words, or what became of the execution. */
  readonly why: string;
}

/**
 * The text on which a person decides. Everything that an agent, a model or a server wrote passes the sanitiser and is bounded, head and tail, with
 * its size; each of its lines is quoted, so that none can pass for one of ours; and the text ends with a line of our own.
 */
export function presentQuestion(question: Question): string {
  const { spec } = question;
  return [
    question.kind === 'call'
      ? `The agent asks to run ${safeText(spec.name, { max: 64 })} (${spec.effect}).`
      : `An execution of ${safeText(spec.name, { max: 64 })} (${spec.effect}) was cut off: whether it happened is not known.`,
    `Asked because: ${safeText(question.why, { max: SHOWN_REASON })}`,
    ...quoted('The tool says of itself', spec.description, SHOWN_REASON),
    ...quoted('The agent says', question.reason, SHOWN_REASON),
    ...quoted('Arguments', question.request, SHOWN_ARGUMENTS),
    question.kind === 'call'
      ? 'Approving runs exactly these arguments once. Nothing above in quoted lines was written by Proofrun.'
      : 'Approving runs it once more. Rejecting leaves it as it is. Nothing above in quoted lines was written by Proofrun.',
  ].join('\n');
}

function quoted(title: string, text: string, max: number): readonly string[] {
  const size = Buffer.byteLength(text);
  if (size === 0) return [`${title}: nothing`];
  const lines = safeText(text, { lines: true, max }).split('\n');
  return [`${title} (${size} bytes):`, ...lines.map((line) => `  | ${line}`)];
}
