import { messageOf } from '../core/errors.ts';
import type { JsonValue } from '../core/json.ts';
import { parseStrictJson } from '../core/strict-json.ts';

/** The largest login file that is copied in or written back, in bytes. */
export const LOGIN_BYTES = 1024 * 1024;
/** Nesting of a login file. */
const DEEPEST = 16;
/** The longest text or list in a refreshed value. */
const LONGEST_TEXT = 64 * 1024;
const LONGEST_LIST = 1000;

export interface LoginShape {
  readonly values: readonly string[];
  readonly newest?: string;
}

export type LoginJudgement = { readonly kind: 'refreshed' } | { readonly kind: 'refused'; readonly reason: string };

/**
 * Whether a file that a job left may take the place of the one that it was given: a JSON object that has every key it had, and that differs from it only
 * at the places that the profile names, in texts, numbers, booleans, nulls and lists of texts. So a job can't add what a tool would act on
 * (a helper command, a place to fetch settings from). What it can do is put another login into the named places. Total.
 */
export function judgeLogin(before: Uint8Array, after: Uint8Array, { values }: LoginShape): LoginJudgement {
  const old = parse(before);
  if (old.kind === 'error') return refused(`what it was is not a JSON object (${old.reason})`);
  const next = parse(after);
  if (next.kind === 'error') return refused(`it is not a JSON object (${next.reason})`);
  const patterns = values.map((one) => one.split('.'));
  const reason = difference(old.value, next.value, [], patterns);
  return reason === undefined ? { kind: 'refreshed' } : refused(reason);
}

/** Which of two files of one shape was refreshed later; undefined: it can't be told. */
export function laterLogin(a: Uint8Array, b: Uint8Array, { newest }: LoginShape): 'a' | 'b' | undefined {
  if (newest === undefined) return undefined;
  const [left, right] = [a, b].map((bytes) => timeAt(bytes, newest.split('.')));
  if (left === undefined || right === undefined || left === right) return undefined;
  return left > right ? 'a' : 'b';
}

type Parsed = { readonly kind: 'ok'; readonly value: Record<string, JsonValue> } | { readonly kind: 'error'; readonly reason: string };

function parse(bytes: Uint8Array): Parsed {
  try {
    const value = parseStrictJson(bytes, { maxDepth: DEEPEST, maxLength: LOGIN_BYTES });
    return isObject(value) ? { kind: 'ok', value } : { kind: 'error', reason: 'another JSON value' };
  } catch (error) {
    return { kind: 'error', reason: messageOf(error) };
  }
}

/** The first difference that isn't allowed, in words; names keys, never values. */
function difference(
  old: JsonValue | undefined,
  next: JsonValue | undefined,
  at: readonly string[],
  patterns: readonly (readonly string[])[],
): string | undefined {
  if (old !== undefined && next === undefined) return `it has lost ${shown(at)}`;
  const named = patterns.some((pattern) => pattern.length === at.length && pattern.every((key, index) => key === '*' || key === at[index]));
  if (named && isPlain(next) && (old === undefined || isPlain(old))) return undefined;
  if (isObject(next) && (old === undefined ? named : isObject(old))) {
    for (const key of new Set([...Object.keys(old ?? {}), ...Object.keys(next)])) {
      const found = difference(own(old, key), own(next, key), [...at, key], patterns);
      if (found !== undefined) return found;
    }
    return undefined;
  }
  if (old === undefined) return `it has a new ${shown(at)}`;
  return JSON.stringify(old) === JSON.stringify(next) ? undefined : `it has another ${shown(at)}`;
}

function isPlain(value: JsonValue | undefined): boolean {
  if (Array.isArray(value)) return value.length <= LONGEST_LIST && value.every((one) => typeof one === 'string' && one.length <= LONGEST_TEXT);
  // A token, a time, a name: nothing that a terminal or a header would act on.
  // eslint-disable-next-line no-control-regex
  if (typeof value === 'string') return value.length <= LONGEST_TEXT && !/[\u0000-\u001f\u007f]/.test(value);
  return value === null || typeof value === 'number' || typeof value === 'boolean';
}

function timeAt(bytes: Uint8Array, keys: readonly string[]): number | undefined {
  const parsed = parse(bytes);
  let value: JsonValue | undefined = parsed.kind === 'ok' ? parsed.value : undefined;
  for (const key of keys) value = own(value, key);
  const time = typeof value === 'string' ? Date.parse(value) : value;
  return typeof time === 'number' && Number.isFinite(time) ? time : undefined;
}

function own(value: JsonValue | undefined, key: string): JsonValue | undefined {
  return isObject(value) && Object.hasOwn(value, key) ? value[key] : undefined;
}

function isObject(value: JsonValue | undefined): value is Record<string, JsonValue> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function shown(at: readonly string[]): string {
  return JSON.stringify(at.join('.').slice(0, 100));
}

function refused(reason: string): LoginJudgement {
  return { kind: 'refused', reason };
}
