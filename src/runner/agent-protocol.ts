import type { JsonObject, JsonValue } from '../core/json.ts';
import { ProofrunError } from '../core/errors.ts';
import { parseStrictJson } from '../core/strict-json.ts';

/** Variable of a job's environment that names the socket. */
export const AGENT_VARIABLE = 'PROOFRUN_AGENTCTL';
export const AGENT_PROTOCOL = 1;

/** What a program in a job may say it does. Said by the guest, and never more than that. */
export const AGENT_STATES = ['active', 'idle', 'quiesced'] as const;
export type AgentState = (typeof AGENT_STATES)[number];

/** What the host asks a program to do. */
export const DIRECTIVES = ['continue', 'quiesce', 'shutdown'] as const;
export type Directive = (typeof DIRECTIVES)[number];

export type GuestMessage =
  | { readonly type: 'hello'; readonly protocol: number; readonly agent?: string; readonly waits?: boolean }
  | { readonly type: 'state'; readonly state: AgentState };

export type HostMessage =
  | { readonly type: 'hello'; readonly protocol: number }
  | { readonly type: 'noted'; readonly state: AgentState }
  | { readonly type: 'directive'; readonly directive: Directive }
  | { readonly type: 'refused'; readonly reason: string };

/** What a person or another program of the same user asks, over the host's socket. */
export type AgentRequest =
  | { readonly op: 'status' }
  | { readonly op: 'quiesce'; readonly timeoutMs: number }
  | { readonly op: 'continue' }
  | { readonly op: 'checkpoint'; readonly timeoutMs: number; readonly name: string | null }
  /** Asks the program to end; when it hasn't after the grace, the run is stopped. */
  | { readonly op: 'cancel'; readonly graceMs: number };

export type AgentAnswer = { readonly kind: 'done'; readonly facts: JsonObject } | { readonly kind: 'refused'; readonly message: string };

/** Longest line of either side, in bytes without the newline. */
export const LONGEST_AGENT_LINE = 4096;
const LONGEST_NAME = 100;

/** Undefined for a line that no guest may say; `protocol` isn't judged here. */
export function parseGuestLine(line: Uint8Array): GuestMessage | undefined {
  const value = parseObject(line);
  if (value === undefined) return undefined;
  const { type, ...rest } = value;
  if (type === 'hello') {
    const { protocol, agent, waits, ...more } = rest;
    if (typeof protocol !== 'number' || Object.keys(more).length > 0) return undefined;
    if (agent !== undefined && (typeof agent !== 'string' || agent.length > LONGEST_NAME)) return undefined;
    if (waits !== undefined && typeof waits !== 'boolean') return undefined;
    return { type, protocol, ...(agent === undefined ? {} : { agent }), ...(waits === undefined ? {} : { waits }) };
  }
  if (type === 'state') {
    const { state, ...more } = rest;
    const known = AGENT_STATES.find((one) => one === state);
    return known === undefined || Object.keys(more).length > 0 ? undefined : { type, state: known };
  }
  return undefined;
}

/** Undefined for a line that the host's side never says. */
export function parseHostLine(line: Uint8Array): HostMessage | undefined {
  const value = parseObject(line);
  switch (typeof value?.type === 'string' ? value.type : '') {
    case 'hello':
      return typeof value?.protocol === 'number' ? { type: 'hello', protocol: value.protocol } : undefined;
    case 'noted': {
      const state = AGENT_STATES.find((one) => one === value?.state);
      return state === undefined ? undefined : { type: 'noted', state };
    }
    case 'directive': {
      const directive = DIRECTIVES.find((one) => one === value?.directive);
      return directive === undefined ? undefined : { type: 'directive', directive };
    }
    case 'refused':
      return typeof value?.reason === 'string' ? { type: 'refused', reason: value.reason } : undefined;
    default:
      return undefined;
  }
}

/** Throws ERR_USAGE, saying what was expected. */
export function parseAgentRequest(line: Uint8Array): AgentRequest {
  const value = parseObject(line);
  const time = (key: string): number | undefined => {
    const found = value?.[key];
    return typeof found === 'number' && found >= 0 && Number.isFinite(found) ? found : undefined;
  };
  const timeoutMs = time('timeout_ms');
  switch (typeof value?.op === 'string' ? value.op : '') {
    case 'status':
      return { op: 'status' };
    case 'continue':
      return { op: 'continue' };
    case 'quiesce':
      if (timeoutMs !== undefined) return { op: 'quiesce', timeoutMs };
      break;
    case 'checkpoint':
      if (timeoutMs !== undefined && (value?.name === undefined || value.name === null || typeof value.name === 'string')) {
        return { op: 'checkpoint', timeoutMs, name: value?.name ?? null };
      }
      break;
    case 'cancel': {
      const graceMs = time('grace_ms');
      if (graceMs !== undefined) return { op: 'cancel', graceMs };
      break;
    }
  }
  throw new ProofrunError('ERR_USAGE', {
    message: 'expected one JSON line: {"op": "status" | "quiesce" | "continue" | "checkpoint" | "cancel"}, with timeout_ms or grace_ms where it waits',
  });
}

export function formatAgentRequest(request: AgentRequest): string {
  switch (request.op) {
    case 'quiesce':
      return line({ op: 'quiesce', timeout_ms: request.timeoutMs });
    case 'checkpoint':
      return line({ op: 'checkpoint', timeout_ms: request.timeoutMs, name: request.name });
    case 'cancel':
      return line({ op: 'cancel', grace_ms: request.graceMs });
    default:
      return line(request);
  }
}

/** Undefined for a line that is no answer. */
export function parseAgentAnswer(text: Uint8Array): AgentAnswer | undefined {
  const value = parseObject(text);
  if (value?.kind === 'refused' && typeof value.message === 'string') return { kind: 'refused', message: value.message };
  if (value?.kind !== 'done' || !isObject(value.facts)) return undefined;
  return { kind: 'done', facts: value.facts };
}

export function formatMessage(message: GuestMessage | HostMessage | AgentAnswer): string {
  return line(message);
}

function line(value: unknown): string {
  return `${JSON.stringify(value)}\n`;
}

function parseObject(bytes: Uint8Array): JsonObject | undefined {
  try {
    const value = parseStrictJson(bytes, { maxLength: LONGEST_AGENT_LINE });
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Cuts bytes into lines. A line that is too long ends the cutting: `overlong` stays true. */
export interface ByteLines {
  readonly overlong: boolean;
  feed(bytes: Uint8Array): readonly Uint8Array[];
}

export function byteLines(longest: number): ByteLines {
  let rest = Buffer.alloc(0);
  let overlong = false;
  return {
    get overlong() {
      return overlong;
    },
    feed: (bytes) => {
      if (overlong) return [];
      rest = Buffer.concat([rest, bytes]);
      const lines: Uint8Array[] = [];
      for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
        if (end > longest) break;
        lines.push(rest.subarray(0, end));
        rest = rest.subarray(end + 1);
      }
      const end = rest.indexOf(10);
      if ((end < 0 ? rest.length : end) > longest) {
        overlong = true;
        rest = Buffer.alloc(0);
      }
      return lines;
    },
  };
}
