import type { ChildProcess } from 'node:child_process';
import { ProofrunError } from '../core/errors.ts';
import { shimComplaint, spawnShim } from './shim-process.host.ts';

/** What an operation brought, as it is in the tree at the end. Numbers of devices and inodes are decimal. */
export interface ToldEntry {
  readonly operation: number;
  readonly ctime: readonly [number, number];
  readonly ino: string;
  readonly dev: string;
}

/** One answer of `shim apply`. */
export interface ApplyAnswer {
  readonly result: 'applied' | 'conflict' | 'failed' | 'stuck' | 'nothing' | 'rolled_back' | 'committed' | 'finished' | 'cleaned' | 'kept' | 'told';
  /** The call that failed, or what differs. */
  readonly what: string;
  readonly errno: number;
  readonly operation: number | undefined;
  /** Operations that could not be put back. */
  readonly stuck: readonly number[];
  /** Operation, seconds and nanoseconds: the ctime of what was put back. */
  readonly restored: readonly (readonly [number, number, number])[];
  /** What was brought and asked to be told (PlanOperation.tell). */
  readonly told: readonly ToldEntry[];
  /** Per root: the staging directory lies in the root itself. */
  readonly inside: readonly boolean[];
  /** One for each operation, decimal. */
  readonly inodes: readonly string[];
}

const RESULTS: readonly string[] = ['applied', 'conflict', 'failed', 'stuck', 'nothing', 'rolled_back', 'committed', 'finished', 'cleaned', 'kept', 'told'];

function isNumbers(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'number');
}

function isStrings(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'string');
}

function isTriples(value: unknown): value is [number, number, number][] {
  return Array.isArray(value) && value.every((item) => isNumbers(item) && item.length === 3);
}

function toldEntries(value: unknown): readonly ToldEntry[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((item: unknown): readonly ToldEntry[] => {
    if (!Array.isArray(item)) return [];
    const [operation, seconds, nanoseconds, ino, dev] = item as readonly unknown[];
    if (!isNumbers([operation, seconds, nanoseconds]) || !isStrings([ino, dev])) return [];
    return [{ operation: Number(operation), ctime: [Number(seconds), Number(nanoseconds)], ino: String(ino), dev: String(dev) }];
  });
}

function protocol(line: string): ProofrunError {
  return new ProofrunError('ERR_SHIM_PROTOCOL', { message: `shim apply said ${line.slice(0, 200)}` });
}

function parseObject(line: string): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    throw protocol(line);
  }
  if (typeof value !== 'object' || value === null) throw protocol(line);
  return value as Readonly<Record<string, unknown>>;
}

function parseAnswer(line: string): ApplyAnswer {
  const it = parseObject(line);
  const result = RESULTS.find((known) => known === it['result']) as ApplyAnswer['result'] | undefined;
  if (result === undefined || !isStrings(it['inodes']) || !isNumbers(it['inside'])) throw protocol(line);
  return {
    result,
    what: typeof it['what'] === 'string' ? it['what'] : '',
    errno: typeof it['errno'] === 'number' ? it['errno'] : 0,
    operation: typeof it['operation'] === 'number' ? it['operation'] : undefined,
    stuck: isNumbers(it['stuck']) ? it['stuck'] : [],
    restored: isTriples(it['restored']) ? it['restored'] : [],
    told: toldEntries(it['told']),
    inside: it['inside'].map((value) => value !== 0),
    inodes: it['inodes'],
  };
}

/** Thrown inside when the shim died while a request was open. */
export class ShimDied extends Error {}

/** A `shim apply` that holds the locks of some roots until it is closed. */
export interface ApplySession {
  readonly pid: number;
  /** Rejects with ShimDied when the process ends before it answered. */
  request(verb: 'run' | 'recover' | 'clean' | 'tell', plan: string): Promise<ApplyAnswer>;
  /** Moves what was there before to a directory of ours, for an undo. */
  keep(plan: string, directory: string): Promise<ApplyAnswer>;
  /** Ends the process and waits; the locks are free afterwards. */
  close(): Promise<void>;
}

export interface SessionOptions {
  /** Steps at which the shim waits until `onPause` has settled (tests of crashes). */
  readonly pauses?: readonly string[];
  readonly onPause?: (step: string, pid: number) => void | Promise<void>;
  /** How far a long run is. */
  readonly onProgress?: (progress: ApplyProgress) => void;
}

export interface ApplyProgress {
  /** Staging writes everything new beside the tree; applying brings it in. */
  readonly stage: 'staging' | 'applying';
  readonly done: number;
  readonly total: number;
}

/** Starts `shim apply` and takes the locks. Throws ERR_APPLY_LOCKED at once when another process holds one. */
export async function openApplySession(shim: string, locks: readonly string[], options: SessionOptions = {}): Promise<ApplySession> {
  const child: ChildProcess = spawnShim(shim, ['apply', ...[...new Set(locks)].sort()], 'pipe');
  const waiting: string[] = [];
  let wake: (() => void) | undefined;
  let ended = false;
  let partial = '';
  let errors = '';
  const rouse = (): void => {
    wake?.();
    wake = undefined;
  };
  child.stdout?.setEncoding('latin1');
  child.stdout?.on('data', (text: string) => {
    const lines = (partial + text).split('\n');
    partial = lines.pop() ?? '';
    waiting.push(...lines);
    if (lines.length > 0) rouse();
  });
  child.stderr?.on('data', (chunk: Buffer) => {
    errors = (errors + chunk.toString('utf8')).slice(-4096);
  });
  // A shim that is gone shows as its end, not as a broken pipe.
  child.stdin?.on('error', () => undefined);
  let startError: Error | undefined;
  const closed = new Promise<void>((resolve) => {
    child.once('error', (error) => {
      startError = error;
      ended = true;
      rouse();
      resolve();
    });
    child.once('close', () => {
      ended = true;
      rouse();
      resolve();
    });
  });
  const nextLine = async (): Promise<string | undefined> => {
    while (waiting.length === 0 && !ended) {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
    return waiting.shift();
  };

  const first = await nextLine();
  if (first === undefined) {
    const { text } = shimComplaint(errors);
    throw new ProofrunError(startError === undefined ? 'ERR_STAGE_LAYER' : 'ERR_SHIM_MISSING', {
      message: startError?.message ?? (text === '' ? 'shim apply ended at once' : text),
    });
  }
  const greeting = parseObject(first);
  if (greeting['event'] === 'busy') {
    await closed;
    const holder = typeof greeting['holder'] === 'number' && greeting['holder'] > 0 ? ` (process ${greeting['holder']})` : '';
    throw new ProofrunError('ERR_APPLY_LOCKED', {
      message: `another command is applying to this workspace${holder}`,
      hint: 'wait for it to end, then try again',
    });
  }
  if (greeting['event'] !== 'locked') throw protocol(first);
  for (const pause of options.pauses ?? []) {
    child.stdin?.write(`pause ${pause}\n`);
  }
  const pid = child.pid ?? 0;
  const answerTo = async (text: string): Promise<ApplyAnswer> => {
    child.stdin?.write(text);
    for (;;) {
      const line = await nextLine();
      if (line === undefined) {
        throw new ShimDied(shimComplaint(errors).text);
      }
      const event = parseObject(line);
      if (event['event'] === 'pause' && typeof event['step'] === 'string') {
        await options.onPause?.(event['step'], pid);
        child.stdin?.write('\n');
        continue;
      }
      if (event['event'] === 'progress') {
        const { stage, done, total } = event;
        if ((stage === 'staging' || stage === 'applying') && typeof done === 'number' && typeof total === 'number') {
          options.onProgress?.({ stage, done, total });
        }
        continue;
      }
      return parseAnswer(line);
    }
  };
  return {
    pid,
    request: async (verb, plan) => await answerTo(`${verb} ${plan}\n`),
    keep: async (plan, directory) => await answerTo(`keep ${plan}\n${directory}\n`),
    close: async () => {
      child.stdin?.end();
      await closed;
    },
  };
}
