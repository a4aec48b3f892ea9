import type { JsonObject, JsonValue } from '../core/json.ts';
import { ProofrunError } from '../core/errors.ts';
import type { OutputStream } from './kept-output.host.ts';

/**
 * What other commands of the same user say to the process that owns a live run, over a unix socket in the run's directory: JSON lines.
 * The socket is a convenience of the person, never evidence and never reachable from inside a sandbox.
 */
export type ControlRequest =
  /** A signal for the command. */
  | { readonly op: 'signal'; readonly signal: NodeJS.Signals }
  /** SIGTERM, and after the grace the whole tree is killed. */
  | { readonly op: 'stop'; readonly graceMs: number }
  /** Kills the whole tree. */
  | { readonly op: 'kill' }
  /** Answered when the run is committed. */
  | { readonly op: 'wait' }
  /** As `wait`, with the output so far and what comes. */
  | { readonly op: 'follow'; readonly streams: readonly OutputStream[] };

export type ControlAnswer =
  /** The request was carried out. */
  | { readonly kind: 'done' }
  | { readonly kind: 'refused'; readonly message: string }
  /** `data` is base64. */
  | { readonly kind: 'output'; readonly stream: OutputStream; readonly data: string }
  /** Bytes that were not kept, or that came faster than they were read. */
  | { readonly kind: 'gap'; readonly stream: OutputStream; readonly bytes: number }
  /** The run is committed; the store has its end. */
  | { readonly kind: 'ended' };

/** Longest line that either side reads, in characters; output is cut well below. */
export const LONGEST_LINE = 1 << 20;
/** Bytes of output of one line. */
export const OUTPUT_PIECE = 64 * 1024;

export function formatLine(message: ControlRequest | ControlAnswer): string {
  return `${JSON.stringify(message)}\n`;
}

/** Throws ERR_USAGE for a line that is no request. */
export function parseRequest(line: string): ControlRequest {
  const value = parseObject(line);
  switch (textOf(value.op)) {
    case 'signal':
      if (typeof value.signal === 'string' && /^SIG[A-Z0-9]{1,10}$/.test(value.signal)) return { op: 'signal', signal: value.signal as NodeJS.Signals };
      break;
    case 'stop':
      if (typeof value.graceMs === 'number' && value.graceMs >= 0) return { op: 'stop', graceMs: value.graceMs };
      break;
    case 'kill':
      return { op: 'kill' };
    case 'wait':
      return { op: 'wait' };
    case 'follow':
      return { op: 'follow', streams: (['stdout', 'stderr'] as const).filter((stream) => Array.isArray(value.streams) && value.streams.includes(stream)) };
  }
  throw malformed();
}

/** Throws ERR_USAGE for a line that is no answer. */
export function parseAnswer(line: string): ControlAnswer {
  const value = parseObject(line);
  const stream = value.stream === 'stdout' || value.stream === 'stderr' ? value.stream : undefined;
  switch (textOf(value.kind)) {
    case 'done':
      return { kind: 'done' };
    case 'ended':
      return { kind: 'ended' };
    case 'refused':
      if (typeof value.message === 'string') return { kind: 'refused', message: value.message };
      break;
    case 'output':
      if (stream !== undefined && typeof value.data === 'string') return { kind: 'output', stream, data: value.data };
      break;
    case 'gap':
      if (stream !== undefined && typeof value.bytes === 'number') return { kind: 'gap', stream, bytes: value.bytes };
      break;
  }
  throw malformed();
}

/** Cuts incoming text into lines. `feed` returns the lines that are complete now; throws ERR_USAGE when one is too long. */
export function lineCutter(): { feed(text: string): readonly string[] } {
  let rest = '';
  return {
    feed: (text) => {
      const lines = (rest + text).split('\n');
      rest = lines.pop() ?? '';
      if (rest.length > LONGEST_LINE) throw malformed();
      return lines;
    },
  };
}

function parseObject(line: string): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    throw malformed();
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw malformed();
  return value as JsonObject;
}

function textOf(value: JsonValue | undefined): string {
  return typeof value === 'string' ? value : '';
}

function malformed(): ProofrunError {
  return new ProofrunError('ERR_USAGE', { message: 'the control socket of a run received a line that it does not know' });
}
